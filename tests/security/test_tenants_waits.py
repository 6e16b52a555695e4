"""Two tenants at one issuer: whatever one stores, the other's Certificate is Ready as soon as alone."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from acme.fake_ca import Refusal
from certwright.controllers.acme.shared_ledger import config_map_name
from certwright.kube.api import codec
from certwright.kube.api.core import CONFIG_MAPS, SECRETS
from certwright.kube.api.kinds import Kind
from certwright.pki.keys import KeyPlan, encode_private_key, generate
from certwright.resources.table import CERTIFICATES, CHALLENGES, ISSUERS
from controllers.acme.fake_world import HTTP01, FakeWorld, fake_world

pytestmark = pytest.mark.every(6)

Json = dict[str, Any]

OBJECTS: Final = 120
"""Twice `max_concurrent_challenges`, of which one namespace never holds all."""
TOLERANCE: Final = timedelta(seconds=1)
"""Intervals between polls of the CA are jittered."""
LIMIT: Final = timedelta(minutes=5)
SHARED: Final = {"name": "acme", "kind": "ClusterIssuer"}


async def create(fake: FakeWorld, kind: Kind[Any], namespace: str, name: str, **parts: Any) -> None:
    """Create an object of a tenant."""
    metadata = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}
    await fake.world.create(kind, codec.from_dict(kind, obj))


async def certificate(
    fake: FakeWorld, namespace: str, name: str, dns_name: str, issuer: Json = SHARED
) -> None:
    """Create a Certificate of a tenant."""
    spec = {"secretName": name, "dnsNames": [dns_name], "issuerRef": issuer}
    await create(fake, CERTIFICATES, namespace, name, spec=spec | {"privateKey": {"algorithm": "ECDSA"}})


async def refused_names(fake: FakeWorld) -> None:
    """Names whose proof the CA does not accept."""
    for number in range(OBJECTS):
        name = f"bad{number}.example.org"
        fake.ca.verdicts[name] = Refusal("unauthorized", "wrong proof", status=403)
        await certificate(fake, "team-a", f"bad-{number}", name)


async def names_never_ordered(fake: FakeWorld) -> None:
    """Names that the CA refuses at the order."""
    for number in range(OBJECTS):
        await certificate(fake, "team-a", f"bad-{number}", f"bad{number}.exa_mple.org")


async def slow_proofs(fake: FakeWorld) -> None:
    """Names whose proof the CA looks at for ever."""
    for number in range(OBJECTS):
        fake.ca.slow.add(f"slow{number}.example.org")
        await certificate(fake, "team-a", f"slow-{number}", f"slow{number}.example.org")


async def a_ca_that_is_away(fake: FakeWorld) -> None:
    """Issuers of the tenant at a CA that does not answer. They share one account key, because generating RSA
    keys would take longer than the test."""
    away = fake.second_ca()
    away.is_away = True
    key = base64.b64encode(encode_private_key(generate(KeyPlan.of("ECDSA", 256)))).decode()
    await create(fake, SECRETS, "team-a", "account", data={"tls.key": key})
    for number in range(OBJECTS):
        account = {"name": "account"}
        acme = {"server": away.directory, "privateKeySecretRef": account, "solvers": [HTTP01]}
        await create(fake, ISSUERS, "team-a", f"away-{number}", spec={"acme": acme})
        issuer = {"name": f"away-{number}"}
        await certificate(fake, "team-a", f"away-{number}", f"a{number}.example.org", issuer)


async def no_issuer(fake: FakeWorld) -> None:
    """Certificates of issuers that do not exist, or lack their Secret."""
    await create(fake, ISSUERS, "team-a", "empty", spec={"ca": {"secretName": "absent"}})
    for number in range(OBJECTS):
        issuer = {"name": ("absent", "empty")[number % 2]}
        await certificate(fake, "team-a", f"none-{number}", f"a{number}.example.org", issuer)


async def one_secret_for_all(fake: FakeWorld) -> None:
    """Certificates that write one Secret in turn."""
    for number in range(OBJECTS):
        spec = {"secretName": "same", "dnsNames": [f"a{number}.example.org"], "issuerRef": SHARED}
        await create(fake, CERTIFICATES, "team-a", f"same-{number}", spec=spec)


async def marks_of_the_controllers(fake: FakeWorld) -> None:
    """The limits of the CA written by hand, and Secrets for the controllers' attention."""
    labels = {"controller.cert-manager.io/fao": "true", "cert-manager.io/next-private-key": "true"}
    limits = '{"name":"x","limits":{"newOrders":{"count":0,"windowSeconds":1e9,"refills":false}}}'
    marks = {"metadata": {"labels": {"certwright.io/acme-limits": "true"}}}
    data = {"server": fake.ca.directory, "limits.json": limits, "state.json": "["}
    await create(fake, CONFIG_MAPS, "team-a", config_map_name(fake.ca.directory), data=data, **marks)
    for number in range(OBJECTS):
        names = {"cert-manager.io/certificate-name": "web"}
        await create(
            fake, SECRETS, "team-a", f"web-{number}", metadata={"labels": labels, "annotations": names}
        )


async def forged_orders(fake: FakeWorld) -> None:
    """Challenges of an Order that does not exist, for the name that the other tenant needs."""
    for number in range(OBJECTS):
        spec = {
            "url": f"{fake.ca.base}/challenge/{number}/http-01",
            "authorizationURL": f"{fake.ca.base}/authz/{number}",
            "dnsName": "b.example.org",
            "type": "HTTP-01",
            "token": f"token-{number}",
            "key": "k",
            "solver": HTTP01,
            "issuerRef": SHARED,
        }
        await create(fake, CHALLENGES, "team-a", f"forged-{number}", spec=spec)


LOADS: Final = (
    refused_names,
    names_never_ordered,
    slow_proofs,
    a_ca_that_is_away,
    no_issuer,
    one_secret_for_all,
    marks_of_the_controllers,
    forged_orders,
)


async def ready_after(load: Callable[[FakeWorld], Awaitable[None]] | None, pause: timedelta) -> timedelta:
    """How long team-b waits for a Certificate that it creates that long after team-a's objects."""
    async with fake_world() as fake:
        world = fake.world
        for namespace in ("team-a", "team-b"):
            await world.client.raw(
                "POST",
                "/api/v1/namespaces",
                body=f'{{"metadata":{{"name":"{namespace}"}}}}'.encode(),
                headers={"content-type": "application/json"},
            )
        await fake.issuer()
        await certificate(fake, "team-b", "before", "before.example.org")
        await world.advance(timedelta(minutes=1))
        assert await world.is_ready("before", "team-b")
        if load is not None:
            await load(fake)
        await world.advance(pause)
        world.recording.writes.clear()
        begin = world.clock.now()
        await certificate(fake, "team-b", "web", "b.example.org")
        await world.settle()
        while not await world.is_ready("web", "team-b") and world.clock.now() < begin + LIMIT:
            moment = world.clock.next_deadline()
            await world.advance_to(moment or begin + LIMIT)
        assert await world.is_ready("web", "team-b"), await world.certificate("web", "team-b")
        assert await world.is_ready("before", "team-b")
        return world.clock.now() - begin


@pytest.mark.parametrize("pause", [timedelta(0), timedelta(minutes=30)], ids=["together", "later"])
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.__name__)
async def test_a_certificate_is_ready_as_soon_as_alone(
    load: Callable[[FakeWorld], Awaitable[None]], pause: timedelta
) -> None:
    beside, alone = await ready_after(load, pause), await ready_after(None, pause)
    assert beside <= alone + TOLERANCE
