"""From a Certificate to its chain, with a real CA (Pebble) and a real name server (BIND)."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from certwright.acme.protocol.messages import Action
from certwright.controllers.manager import ControllerManager
from certwright.kube.api import conditions
from certwright.kube.api.core import EVENTS
from certwright.kube.api.errors import Invalid
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.table import CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS, ORDERS
from support.acme_world import AcmeWorld, acme_world
from support.bind import Bind, running_bind
from support.pebble import Pebble, running_pebble, serving, shown
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PROGRAM = """\
import json, os, sys, urllib.request
verb = {"present": "set-txt", "cleanup": "clear-txt"}[sys.argv[2]]
body = {"host": os.environ["ACME_RECORD"] + ".", "value": os.environ["ACME_VALUE"]}
urllib.request.urlopen(sys.argv[1] + "/" + verb, json.dumps(body).encode())
"""
_RECORDS = {
    "example.org": "_acme-challenge.alias CNAME _acme-challenge.there.delegated.test.",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(pebble: Pebble, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AcmeWorld]:
    """A world with an issuer that proves by HTTP-01. The operator allows web roots in the tests' own folder,
    and a program."""
    folder = tmp_path_factory.getbasetemp()
    program = folder / "program.py"
    program.write_text(_PROGRAM)
    policy = OperatorPolicy(
        webroots=(str(folder),),
        exec_solvers={"hook": (sys.executable, str(program), pebble.names._management)},
    )
    async with acme_world(pebble, policy=policy) as made:
        await made.issuer()
        yield made


@pytest.fixture(scope="module")
def bind() -> Iterator[Bind]:
    """Two zones, and an alias from one into the other."""
    with running_bind(["example.org", "delegated.test"], records=_RECORDS) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zone(bind: Bind) -> AsyncIterator[AcmeWorld]:
    """A world whose names are in BIND, with an issuer that proves by updates of its zones."""
    with running_pebble(names=bind.address) as pebble:
        async with acme_world(pebble, bind=bind) as made:
            for algorithm, strategy in (("HMACSHA256", "None"), ("HMACSHA512", "Follow")):
                name = algorithm.lower()
                await made.secret(name, {"key": bind.secrets[name].encode()}, "kube-system")
                rfc2136 = {
                    "nameserver": bind.address,
                    "tsigKeyName": name,
                    "tsigAlgorithm": algorithm,
                    "tsigSecretSecretRef": {"name": name, "key": "key"},
                }
                solver = {"dns01": {"rfc2136": rfc2136, "cnameStrategy": strategy}}
                await made.issuer(strategy.lower(), solvers=[solver])
            yield made


def running(world: AcmeWorld) -> ControllerManager:
    """The controllers."""
    assert world.controllers is not None
    return world.controllers


def calls(world: AcmeWorld) -> Counter[str]:
    """How many requests were made for orders, by what they are for, refused nonces left out. When to renew is
    asked beside them, and may be asked late."""
    acme_calls = running(world).wiring.acme_requests.take()
    made = Counter[str]()
    for kind, tally in acme_calls:
        if kind.status != "400" and kind.action != Action.RENEWAL_INFO:
            made[kind.action] += tally.count
    return made


def passes(world: AcmeWorld, controller: str) -> int:
    """How often that controller has looked at an object."""
    return sum(worker.runs for worker in running(world).wiring.controllers if worker.name == controller)


async def test_by_a_web_root(world: AcmeWorld, tmp_path: Path) -> None:
    with serving(tmp_path, "127.0.0.2", world.pebble.http_port):
        world.pebble.names.set_addresses("root.example.org", ["127.0.0.2"])
        await world.issuer("root", solvers=[{"http01": {"webroot": {"path": str(tmp_path)}}}])
        await world.certificate("root", "root.example.org", issuer="root")
        assert (await world.chain_of("root"))[0].dns_names == ("root.example.org",)
    assert shown(tmp_path) == []


async def test_by_a_program(world: AcmeWorld) -> None:
    await world.issuer("program", solvers=[{"exec": {"command": ["hook"]}}])
    await world.certificate("program", "*.program.example.org", issuer="program")
    assert (await world.chain_of("program"))[0].dns_names == ("*.program.example.org",)


async def test_a_proof_that_the_ca_does_not_see_stays_to_be_read(world: AcmeWorld) -> None:
    # We find what the CA does not: its name server says something else than ours.
    world.pebble.names.set_addresses("hidden.example.org", ["127.0.0.3"])
    await world.issuer("hidden", solvers=[{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "0s"}])
    await world.certificate("hidden", "hidden.example.org", issuer="hidden")
    failed = await world.until(CERTIFICATES, "hidden", lambda c: bool(c.status.failed_issuance_attempts))
    condition = conditions.find(failed.status.conditions, "Issuing")
    assert condition is not None
    (challenge,) = [
        challenge
        for challenge in (await world.client.list(CHALLENGES)).items
        if challenge.metadata.name.startswith("hidden")
    ]
    assert challenge.status.state == "invalid"
    assert challenge.status.reason.startswith("Error accepting authorization: ")
    assert f"hidden.example.org: {challenge.status.reason}" in condition.message
    assert not challenge.status.presented
    before, looked = calls(world), passes(world, "orders")
    await world.client.patch(ORDERS, *_of(challenge), {"metadata": {"labels": {"touched": "yes"}}})
    await until(lambda: passes(world, "orders") > looked and running(world).idle)
    assert calls(world) == before
    await world.client.delete(CERTIFICATES, "hidden", "default")


def _of(challenge: Any) -> tuple[str, str]:
    return challenge.metadata.owner_references[0].name, challenge.metadata.namespace


async def test_a_warm_account_takes_14_writes_and_four_events(world: AcmeWorld) -> None:
    await world.certificate("cold", "cold.example.org")
    await world.chain_of("cold")
    await until(lambda: running(world).idle)
    before, begin = calls(world), len(world.object_writes)
    await world.certificate("warm", "warm.example.org")
    await world.chain_of("warm")
    await world.until(CERTIFICATES, "warm", lambda c: c.status.next_private_key_secret_name is None)
    await until(lambda: running(world).idle)
    # What is made has no name in its path, and nothing else is made now.
    writes = [write for write in world.object_writes[begin:] if "warm" in write or write.startswith("POST ")]
    # What takes a busy machine longer than a moment is told: by the Challenge, and by the three above it.
    slow = [write for write in writes if "/challenges/" in write and write.endswith("/status")]
    assert len(writes) <= 14 + 4 * len(slow)
    made = calls(world) - before
    # The CA is asked again for what takes it long.
    assert slow or made.total() <= 12
    for asked_again in (Action.ORDER, Action.AUTHORIZATION):
        del made[asked_again]
    assert made == {Action.NEW_ORDER: 1, Action.CHALLENGE: 1, Action.FINALIZE: 1, Action.CERTIFICATE: 1}
    await running(world).flush()
    events = [e for e in (await world.client.list(EVENTS)).items if e.metadata.name.startswith("warm")]
    assert len(events) <= 4


async def test_a_restart_asks_nothing_and_makes_nothing(world: AcmeWorld) -> None:
    await world.certificate("before", "before.example.org")
    await world.chain_of("before")
    await world.until(CERTIFICATES, "before", lambda c: c.status.acme is not None)
    await until(lambda: running(world).idle)
    orders = len((await world.client.list(ORDERS)).items)
    await world.start_controllers()
    # Each object is looked at once.
    await until(lambda: passes(world, "orders") >= orders and running(world).idle)
    assert calls(world) == Counter()
    assert len((await world.client.list(ORDERS)).items) == orders


async def test_two_issuers_with_one_key_share_a_client(world: AcmeWorld) -> None:
    await world.issuer("one")
    first = await world.until(CLUSTER_ISSUERS, "one", is_ready)
    await world.issuer("two", privateKeySecretRef={"name": "one-account"})
    second = await world.until(CLUSTER_ISSUERS, "two", is_ready)
    assert first.status.acme is not None
    assert second.status.acme is not None
    assert first.status.acme.uri == second.status.acme.uri
    assert world.controllers is not None
    clients = world.controllers.wiring.clients.registry._clients.values()
    assert [client.kid for client in clients].count(first.status.acme.uri) == 1


def is_ready(issuer: Any) -> bool:
    """Whether an issuer can order."""
    return conditions.is_true(issuer.status.conditions, "Ready")


async def test_many_certificates_of_one_zone_by_dns(zone: AcmeWorld) -> None:
    await asyncio.gather(
        *(
            zone.certificate(f"many{n}", "*.m.example.org", f"m{n}.example.org", issuer="none")
            for n in range(5)
        )
    )
    for number in range(5):
        await zone.chain_of(f"many{number}")


async def test_an_alias_is_followed_by_dns(zone: AcmeWorld) -> None:
    await zone.certificate("alias", "alias.example.org", issuer="follow")
    assert (await zone.chain_of("alias"))[0].dns_names == ("alias.example.org",)


async def test_what_an_order_is_may_not_be_changed(world: AcmeWorld) -> None:
    await world.certificate("fixed", "fixed.example.org")
    await world.chain_of("fixed")
    (order,) = [o for o in (await world.client.list(ORDERS)).items if o.metadata.name.startswith("fixed")]
    with pytest.raises(Invalid, match="order spec is immutable after creation"):
        await world.client.patch(
            ORDERS, order.metadata.name, "default", {"spec": {"dnsNames": ["other.example.org"]}}
        )
