"""Certificates by DNS-01 through a DNS provider, from Pebble, which looks the values up in PowerDNS."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from certwright.kit.outgoing import ServerRules
from certwright.kube.api.core import EVENTS, SERVICE_ACCOUNTS
from certwright.kube.apiserver.auth.tokens import DEFAULT_ISSUER
from certwright.resources.operator_policy import OperatorPolicy
from support.acme_world import AcmeWorld, acme_world
from support.dns.powerdns import KEY, TSIG_SECRET, PowerDnsServer, running_powerdns, served
from support.dns.route53 import StrictRoute53
from support.ministack import running_ministack
from support.pebble import Pebble, running_pebble
from support.world import CONTROLLER

ZONE = "example.org"
POWER_DNS = {"apiKeySecretRef": {"name": "powerdns", "key": "key"}}
RFC2136 = {
    "tsigKeyName": "certwright",
    "tsigAlgorithm": "HMACSHA256",
    "tsigSecretSecretRef": {"name": "powerdns", "key": "tsig"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    with running_powerdns([ZONE]) as running:
        yield running


@pytest.fixture(scope="module")
def ca(server: PowerDnsServer) -> Iterator[Pebble]:
    with running_pebble(names=server.address) as pebble:
        yield pebble


@pytest.fixture
async def world(server: PowerDnsServer, ca: Pebble) -> AsyncIterator[AcmeWorld]:
    policy = OperatorPolicy(servers=ServerRules(allow_http=True))
    async with acme_world(ca, bind=server, policy=policy) as made:
        secret = {"key": KEY.encode(), "tsig": TSIG_SECRET.encode()}
        await made.secret("powerdns", secret, "kube-system")
        provider = {**POWER_DNS, "host": server.url}
        await made.issuer("provider", solvers=[{"dns01": {"powerDNS": provider}}])
        update = {**RFC2136, "nameserver": server.address}
        await made.issuer("update", solvers=[{"dns01": {"rfc2136": update}}])
        yield made


async def test_a_wildcard_and_its_apex(world: AcmeWorld, server: PowerDnsServer) -> None:
    await world.certificate("both", f"*.w.{ZONE}", f"w.{ZONE}", issuer="provider")
    chain = await world.chain_of("both")
    assert set(chain[0].dns_names) == {f"*.w.{ZONE}", f"w.{ZONE}"}
    assert served(server, f"_acme-challenge.w.{ZONE}") == set()


async def test_twenty_certificates_together(world: AcmeWorld, server: PowerDnsServer) -> None:
    names = [f"n{number}.{ZONE}" for number in range(20)]
    await asyncio.gather(
        *(world.certificate(f"many{number}", name, issuer="provider") for number, name in enumerate(names))
    )
    await asyncio.gather(*(world.chain_of(f"many{number}") for number in range(20)))
    assert [served(server, f"_acme-challenge.{name}") for name in names] == [set()] * 20


async def test_a_provider_takes_the_writes_and_events_of_dynamic_updates(world: AcmeWorld) -> None:
    for issuer in ("update", "provider"):
        await world.certificate(f"by-{issuer}", f"{issuer}.{ZONE}", issuer=issuer)
        await world.chain_of(f"by-{issuer}")
    await world.stop_controllers()
    events = (await world.client.list(EVENTS)).items
    reasons = {
        issuer: sorted(
            event.reason for event in events if event.involved_object.name.startswith(f"by-{issuer}")
        )
        for issuer in ("update", "provider")
    }
    assert reasons["provider"] == reasons["update"]
    writes = Counter(
        write.partition("by-")[2].partition("-")[0] for write in world.object_writes if "by-" in write
    )
    # Pebble may be a moment late for either.
    assert writes["provider"] <= writes["update"] + 2


async def test_a_service_account_with_a_role_in_aws(server: PowerDnsServer, ca: Pebble) -> None:
    """A token of our API server, exchanged at STS for credentials, with which Route 53 is changed."""
    with running_ministack() as aws:
        strict = await asyncio.to_thread(StrictRoute53, aws, ZONE)
        strict.publish = Publisher(server).publish
        account = "system:serviceaccount:kube-system:dns"
        role = await asyncio.to_thread(aws.make_federated_role, "dns", DEFAULT_ISSUER, account, "route53:*")
        async with strict.running() as url:
            policy = OperatorPolicy(dns01_endpoints={"route53": url})
            async with acme_world(ca, bind=server, policy=policy) as world:
                meta = {"name": "dns", "namespace": "kube-system"}
                await world.create(SERVICE_ACCOUNTS, {"metadata": meta})
                await allow_tokens(world, "kube-system", "dns")
                auth = {"kubernetes": {"serviceAccountRef": {"name": "dns"}}}
                await world.issuer("aws", solvers=[{"dns01": {"route53": {"role": role, "auth": auth}}}])
                await world.certificate("aws", f"*.aws.{ZONE}", f"aws.{ZONE}", issuer="aws")
                assert set((await world.chain_of("aws"))[0].dns_names) == {f"*.aws.{ZONE}", f"aws.{ZONE}"}
        assert strict.calls["POST /"] == 1
        assert await asyncio.to_thread(strict.values, f"_acme-challenge.aws.{ZONE}") == set()


@dataclass(frozen=True)
class Publisher:
    """Writes what Route 53 would serve to PowerDNS."""

    server: PowerDnsServer

    async def publish(self, name: str, values: Sequence[str]) -> None:
        """Replace the TXT values of a name."""
        records = [{"content": value, "disabled": False} for value in values]
        change = {"name": f"{name}.", "type": "TXT", "ttl": 1, "changetype": "REPLACE", "records": records}
        url = f"{self.server.url}/api/v1/servers/localhost/zones/{ZONE}."
        async with aiohttp.ClientSession(raise_for_status=True) as client:
            await client.patch(url, json={"rrsets": [change]}, headers={"X-API-Key": KEY})


async def allow_tokens(world: AcmeWorld, namespace: str, account: str) -> None:
    """Allow the controllers to request tokens of a ServiceAccount."""
    rule = {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": [account],
        "verbs": ["create"],
    }
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tokens"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": CONTROLLER.name}
    objects: dict[str, dict[str, Any]] = {
        "roles": {"rules": [rule]},
        "rolebindings": {"roleRef": ref, "subjects": [user]},
    }
    for plural, content in objects.items():
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}"
        body = json.dumps({"metadata": {"name": "tokens"}, **content}).encode()
        await world.client.raw("POST", path, body=body, headers={"content-type": "application/json"})
