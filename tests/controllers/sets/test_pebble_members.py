"""Two Pebbles and a CA of our own in one set: the Pebbles are killed and restarted under load."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import trustme

from certwright.controllers.acme.revoking import Holder, revoke
from certwright.resources.issuer import read_member
from certwright.resources.table import CERTIFICATE_REQUESTS, CLUSTER_ISSUER_SETS, CLUSTER_ISSUERS, ORDERS
from issuers.authority import new_root
from support.acme_world import AcmeWorld, acme_world
from support.pebble import Pebble, running_pebble
from support.programs import free_port

SET = {"name": "all", "kind": "ClusterIssuerSet", "group": "certwright.io"}


class Restarted:
    """A Pebble that can be killed, and started again at the same place with no memory."""

    def __init__(self, shared: Pebble) -> None:
        self._port, self._authority = free_port(), trustme.CA()
        self._shared = shared
        self._running = contextlib.ExitStack()
        self.pebble = self.start()

    def start(self) -> Pebble:
        """Start it. It looks for responses where the shared one does."""
        self.pebble = self._running.enter_context(
            running_pebble(
                http_port=self._shared.http_port,
                tls_port=self._shared.tls_port,
                names=self._shared.names.address,
                port=self._port,
                authority=self._authority,
            )
        )
        return self.pebble

    def kill(self) -> None:
        """End it."""
        self._running.close()


@pytest.fixture
def stays() -> Iterator[Pebble]:
    """A server that is not in the set, with the names that the others look at."""
    with running_pebble() as running:
        yield running


@pytest.fixture
def pebbles(stays: Pebble) -> Iterator[tuple[Restarted, Restarted]]:
    """The two servers of the set."""
    first, second = Restarted(stays), Restarted(stays)
    try:
        yield first, second
    finally:
        first.kill()
        second.kill()


@pytest.fixture
async def world(stays: Pebble, pebbles: tuple[Restarted, Restarted]) -> AsyncIterator[AcmeWorld]:
    """A world with a set of both and a CA."""
    async with acme_world(stays) as made:
        for name, pebble in zip(("first", "second"), pebbles, strict=True):
            bundle = base64.b64encode(pebble.pebble.ca_bundle).decode()
            await made.issuer(name, server=pebble.pebble.directory, caBundle=bundle)
        await made.secret("ca", new_root("Root").secret(), "kube-system")
        await made.create(CLUSTER_ISSUERS, {"metadata": {"name": "ca"}, "spec": {"ca": {"secretName": "ca"}}})
        members = [
            {"name": issuer_name, "kind": "ClusterIssuer"} for issuer_name in ("first", "second", "ca")
        ]
        await made.create(CLUSTER_ISSUER_SETS, {"metadata": {"name": "all"}, "spec": {"issuers": members}})
        yield made


async def load(world: AcmeWorld, wave: str, count: int) -> list[str]:
    """Create that many Certificates whose issuer is the set."""
    names = [f"{wave}{number}" for number in range(count)]
    for name in names:
        await world.certificate(name, f"{name}.example.org", issuerRef=SET)
    return names


async def signers(world: AcmeWorld, wave: str) -> Counter[str]:
    """How many requests of that wave each member has signed."""
    requests = (await world.client.list(CERTIFICATE_REQUESTS)).items
    members = [
        read_member(request.metadata.annotations)
        for request in requests
        if request.metadata.name.startswith(wave)
    ]
    return Counter(member.name for member in members if member is not None)


async def test_certificates_are_issued_while_servers_are_killed_and_restarted(
    world: AcmeWorld, pebbles: tuple[Restarted, Restarted]
) -> None:
    first, second = pebbles
    for name in await load(world, "calm", 3):
        await world.ready(name)
    assert await signers(world, "calm") == {"first": 3}
    revoked = await revoke(
        world.client, Holder("default", "calm0"), reason="superseded", user_agent="certwright-test"
    )
    assert revoked.server == first.pebble.directory
    during = await load(world, "during", 8)
    first.kill()
    after = await load(world, "after", 8)
    for name in after:
        await world.ready(name)
    assert await signers(world, "after") == {"second": 8}
    second.kill()
    alone = await load(world, "alone", 4)
    for name in alone:
        await world.ready(name)
    assert await signers(world, "alone") == {"ca": 4}
    first.start()
    second.start()
    again = await load(world, "again", 4)
    for name in (*during, *again):
        await world.ready(name)
    requests = (await world.client.list(CERTIFICATE_REQUESTS)).items
    assert len(requests) == 27


async def test_orders_in_flight_at_a_server_that_is_killed_are_issued_soon_after_its_restart(
    world: AcmeWorld, pebbles: tuple[Restarted, Restarted]
) -> None:
    first, second = pebbles
    first.kill()
    names = await load(world, "during", 12)
    await placed(world, "second", 6)
    second.kill()
    for name in await load(world, "alone", 4):
        await world.ready(name)
    second.start()
    # It knows neither the account nor the orders. One of those that wait finds that out as the first trial,
    # which is made as soon as a probe is answered.
    for name in names:
        await world.ready(name, within_s=45)


async def placed(world: AcmeWorld, member: str, count: int) -> None:
    """Return when that member has taken so many orders."""
    async with asyncio.timeout(60):
        while True:
            orders = (await world.client.list(ORDERS)).items
            if (
                sum(bool(order.status.url) for order in orders if order.spec.issuer_ref.name == member)
                >= count
            ):
                return
            await asyncio.sleep(0.01)
