"""What is known before an order is placed is reported before it: by a real PowerDNS and a fake Cloudflare,
with a real CA (Pebble), whose new orders are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from certwright.acme.protocol.messages import Action
from certwright.kit.outgoing import ServerRules
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.resources import names
from certwright.resources.acme import Challenge
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS, ORDERS
from support.acme_world import AcmeWorld, acme_world
from support.dns import powerdns
from support.dns.cloudflare import FakeCloudflare
from support.dns.powerdns import PowerDnsServer, running_powerdns
from support.pebble import running_pebble
from support.shifted import ShiftedClock

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    with running_powerdns(["example.org", "elsewhere.test"]) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cloudflare() -> AsyncIterator[FakeCloudflare]:
    """An account with the zone example.net."""
    fake = FakeCloudflare("example.net")
    async with fake.running():
        yield fake


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(server: PowerDnsServer, cloudflare: FakeCloudflare) -> AsyncIterator[AcmeWorld]:
    policy = OperatorPolicy(
        servers=ServerRules(allow_http=True), dns01_endpoints={"cloudflare": cloudflare.url}
    )
    with running_pebble(names=server.address) as pebble:
        async with acme_world(pebble, bind=server, policy=policy, clock=ShiftedClock()) as made:
            yield made


def power_dns(server: PowerDnsServer, secret: str) -> Json:
    return {"dns01": {"powerDNS": {"host": server.url, "apiKeySecretRef": {"name": secret, "key": "key"}}}}


def cloudflare_solver(secret: str, *zones: str) -> Json:
    solver: Json = {"dns01": {"cloudflare": {"apiTokenSecretRef": {"name": secret, "key": "token"}}}}
    return {**solver, "selector": {"dnsZones": list(zones)}} if zones else solver


async def set_secret(world: AcmeWorld, name: str, data: dict[str, str]) -> None:
    await world.client.patch(SECRETS, name, "kube-system", {"stringData": data})


async def ready_of(world: AcmeWorld, name: str, status: str) -> str:
    """The message of the issuer's condition Ready once it has that status."""

    def message(issuer: Any) -> str:
        condition = conditions.find(issuer.status.conditions, "Ready")
        return condition.message if condition is not None and condition.status == status else ""

    return message(await world.until(CLUSTER_ISSUERS, name, lambda issuer: bool(message(issuer))))


def new_orders(world: AcmeWorld) -> int:
    assert world.controllers is not None
    calls = world.controllers.wiring.acme_requests.take()
    return sum(
        tally.count for kind, tally in calls if kind.action == Action.NEW_ORDER and kind.status == "201"
    )


async def first_challenge(world: AcmeWorld, name: str) -> Challenge:
    """A Challenge of the Certificate, as soon as there is one."""
    async with asyncio.timeout(30):
        while True:
            for challenge in (await world.client.list(CHALLENGES)).items:
                if challenge.metadata.name.startswith(f"{name}-"):
                    return challenge
            await asyncio.sleep(0.005)


async def reason_of_order(world: AcmeWorld, name: str) -> str:
    """The reason of the Certificate's Order, as soon as it has one."""
    async with asyncio.timeout(30):
        while True:
            orders = [
                order
                for order in (await world.client.list(ORDERS)).items
                if order.metadata.name.startswith(name)
            ]
            if orders and orders[0].status.reason:
                return orders[0].status.reason
            await asyncio.sleep(0.02)


async def test_a_missing_secret_is_in_the_issuers_condition_and_its_creation_ends_the_wait(
    world: AcmeWorld, server: PowerDnsServer
) -> None:
    await world.issuer("missing", solvers=[power_dns(server, "missing")])
    message = await ready_of(world, "missing", "False")
    assert message == (
        "Failed to verify solvers: spec.acme.solvers[0]: dns01.powerDNS.apiKeySecretRef: "
        'Secret "missing" does not exist; create it'
    )
    before = new_orders(world)
    await world.certificate("missing", "missing.example.org", "*.missing.example.org", issuer="missing")
    await world.until(
        CERTIFICATES, "missing", lambda certificate: message in str(certificate.status.conditions)
    )
    assert new_orders(world) == before
    await world.secret("missing", {"other": b"x"}, "kube-system")
    no_entry = 'has no entry "key"'
    await world.until(CLUSTER_ISSUERS, "missing", lambda issuer: no_entry in str(issuer.status.conditions))
    await set_secret(world, "missing", {"key": powerdns.KEY})
    await ready_of(world, "missing", "True")
    await world.chain_of("missing")
    assert new_orders(world) == before + 1


async def test_a_rejected_key_is_in_the_issuers_condition_and_a_correct_one_ends_the_wait(
    world: AcmeWorld, server: PowerDnsServer
) -> None:
    await world.secret("rejected", {"key": b"wrong"}, "kube-system")
    await world.issuer("rejected", solvers=[power_dns(server, "rejected")])
    message = await ready_of(world, "rejected", "False")
    assert message.startswith(
        "Failed to verify solvers: spec.acme.solvers[0]: PowerDNS refused to report its"
    )
    assert "status 401" in message
    issuer = await world.client.get(CLUSTER_ISSUERS, "rejected", "")
    account = issuer.status.acme
    assert account is not None
    before = new_orders(world)
    await world.certificate("rejected", "rejected.example.org", issuer="rejected")
    await set_secret(world, "rejected", {"key": powerdns.KEY})
    await world.chain_of("rejected")
    assert new_orders(world) == before + 1
    after = await world.client.get(CLUSTER_ISSUERS, "rejected", "")
    assert after.status.acme == account


async def test_one_bad_solver_does_not_stop_the_names_of_the_others(
    world: AcmeWorld, server: PowerDnsServer, cloudflare: FakeCloudflare
) -> None:
    await world.secret("good", {"key": powerdns.KEY.encode()}, "kube-system")
    await world.secret("bad", {"token": b"expired"}, "kube-system")
    solvers = [cloudflare_solver("bad", "example.net"), power_dns(server, "good")]
    await world.issuer("several", solvers=solvers)
    message = await ready_of(world, "several", "True")
    assert "; but spec.acme.solvers[0]: Cloudflare refused to list the zones: status 403" in message
    before, asked = new_orders(world), cloudflare.calls.total()
    for number in range(10):
        await world.certificate(f"net{number}", f"net{number}.example.net", issuer="several")
    await world.certificate("org", "org.example.org", issuer="several")
    await world.chain_of("org")
    for number in range(10):
        reason = await reason_of_order(world, f"net{number}")
        assert reason.startswith(f"not ordered yet: net{number}.example.net: Cloudflare refused to list the")
        assert reason.endswith("; checked again within 1 minute")
    assert new_orders(world) == before + 1
    assert cloudflare.calls.total() <= asked + 1
    for number in range(10):
        await world.client.delete(CERTIFICATES, f"net{number}", "default")


async def test_a_zone_that_the_account_does_not_have_is_the_orders_reason(
    world: AcmeWorld, cloudflare: FakeCloudflare
) -> None:
    await world.secret("zones", {"token": b"cloudflare-token"}, "kube-system")
    await world.issuer("zones", solvers=[cloudflare_solver("zones")])
    await ready_of(world, "zones", "True")
    before, asked = new_orders(world), cloudflare.calls["GET /zones"]
    many = [f"n{number}.elsewhere.test" for number in range(20)]
    await world.certificate("many", *many, issuer="zones")
    reason = await reason_of_order(world, "many")
    why = "the account has no zone elsewhere.test; create the zone, or use credentials of its account"
    assert reason == (
        f"not ordered yet: {', '.join(many[:3])} and 17 more: {why}; checked again within 1 minute"
    )
    assert new_orders(world) == before
    # The zone by DNS, and one name between it and each name.
    assert cloudflare.calls["GET /zones"] - asked <= 1 + 2 * len(many)
    await world.client.delete(CERTIFICATES, "many", "default")


async def test_the_order_is_placed_when_the_zone_exists(world: AcmeWorld, server: PowerDnsServer) -> None:
    await world.secret("later", {"key": powerdns.KEY.encode()}, "kube-system")
    await world.issuer("later", solvers=[power_dns(server, "later")])
    await ready_of(world, "later", "True")
    before = new_orders(world)
    await world.certificate("later", "a.later.test", issuer="later")
    assert "a.later.test: the account has no zone later.test;" in await reason_of_order(world, "later")
    assert new_orders(world) == before
    await server.create_zone("later.test")
    assert isinstance(world.clock, ShiftedClock)
    world.clock.jump(timedelta(minutes=2))
    await world.chain_of("later")
    assert new_orders(world) == before + 1


async def test_a_dynamic_update_that_would_be_refused_is_the_orders_reason(
    world: AcmeWorld, server: PowerDnsServer
) -> None:
    await world.secret("tsig", {"key": b"d3JvbmctLXdyb25nLS13cm9uZy0td3Jvbmct"}, "kube-system")
    rfc2136 = {
        "nameserver": server.address,
        "tsigKeyName": "certwright",
        "tsigAlgorithm": "HMACSHA256",
        "tsigSecretSecretRef": {"name": "tsig", "key": "key"},
    }
    await world.issuer("tsig", solvers=[{"dns01": {"rfc2136": rfc2136}}])
    await ready_of(world, "tsig", "True")
    before = new_orders(world)
    await world.certificate("tsig", "tsig.example.org", issuer="tsig")
    assert "tsig.example.org: " in await reason_of_order(world, "tsig")
    assert new_orders(world) == before
    await set_secret(world, "tsig", {"key": powerdns.TSIG_SECRET})
    await world.chain_of("tsig")
    assert new_orders(world) == before + 1


async def test_a_record_with_a_label_of_the_account_proves_names(
    world: AcmeWorld, server: PowerDnsServer
) -> None:
    await world.secret("label", {"key": powerdns.KEY.encode()}, "kube-system")
    solver = power_dns(server, "label")
    solver["dns01"]["type"] = "DNS-ACCOUNT-01"
    await world.issuer("label", solvers=[solver])
    await world.certificate("label", "label.example.org", "*.label.example.org", issuer="label")
    challenge = await first_challenge(world, "label")
    assert challenge.spec.type == "DNS-ACCOUNT-01"
    issuer = await world.client.get(CLUSTER_ISSUERS, "label", "")
    assert issuer.status.acme is not None
    assert challenge.metadata.annotations[names.ACME_ACCOUNT] == issuer.status.acme.uri
    await world.chain_of("label")
    assert await server.names("example.org") == set()


async def test_a_missing_permanent_record_is_the_orders_reason_and_its_creation_ends_the_wait(
    world: AcmeWorld, server: PowerDnsServer
) -> None:
    await world.issuer("persist", solvers=[{"dnsPersist01": {}}])
    await ready_of(world, "persist", "True")
    issuer = await world.client.get(CLUSTER_ISSUERS, "persist", "")
    assert issuer.status.acme is not None
    record = issuer.status.acme.persistent_record
    assert record is not None
    assert record.name == "_validation-persist.DOMAIN"
    assert record.value == f"pebble.letsencrypt.org; accounturi={issuer.status.acme.uri}"
    assert record.wildcard_value == f"{record.value}; policy=wildcard"
    before = new_orders(world)
    await world.certificate("persist", "p.elsewhere.test", "*.p.elsewhere.test", issuer="persist")
    name = "_validation-persist.p.elsewhere.test"
    reason = await reason_of_order(world, "persist")
    assert f'create the TXT record {name} once, with the value "{record.value}"' in reason
    # A record for the name itself does not authorize its wildcard.
    await server.add_record("elsewhere.test", name, "TXT", f'"{record.value}"')
    assert isinstance(world.clock, ShiftedClock)
    world.clock.jump(timedelta(minutes=2))
    only_wildcard = "not ordered yet: *.p.elsewhere.test: the name server"
    await world.until(
        CERTIFICATE_REQUESTS, "persist-1", lambda request: only_wildcard in str(request.status.conditions)
    )
    assert new_orders(world) == before
    await server.add_record("elsewhere.test", name, "TXT", f'"{record.wildcard_value}"')
    world.clock.jump(timedelta(minutes=2))
    await world.chain_of("persist")
    assert new_orders(world) == before + 1


async def test_an_alias_into_a_zone_of_another_account_is_the_orders_reason(
    world: AcmeWorld, server: PowerDnsServer
) -> None:
    """The solver is chosen by the name; the zone that the alias leads to must be in its account."""
    await world.secret("alias", {"token": b"cloudflare-token"}, "kube-system")
    solver = cloudflare_solver("alias")
    solver["dns01"]["cnameStrategy"] = "Follow"
    await world.issuer("alias", solvers=[solver])
    target = "_acme-challenge.there.elsewhere.test"
    await server.add_record("example.org", "_acme-challenge.alias.example.org", "CNAME", f"{target}.")
    before = new_orders(world)
    await world.certificate("alias", "alias.example.org", issuer="alias")
    reason = await reason_of_order(world, "alias")
    assert "alias.example.org: the account has no zone elsewhere.test" in reason
    assert f"(_acme-challenge.alias.example.org is an alias of {target})" in reason
    await world.secret("owner", {"key": powerdns.KEY.encode()}, "kube-system")
    solvers = [{"dns01": {**power_dns(server, "owner")["dns01"], "cnameStrategy": "Follow"}}]
    patch = {"spec": {"acme": {"solvers": solvers}}}
    await world.client.patch(CLUSTER_ISSUERS, "alias", "", patch)
    await world.chain_of("alias")
    assert new_orders(world) == before + 1
