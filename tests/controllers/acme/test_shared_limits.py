"""One CA, several replicas: together they place as many orders as its limits allow, and no more.

The CA is a fake one, the clock is the test's; API server and controllers are real. Each replica has its own
local copies, its own connections to the CA and its own view of the ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest

from certwright.acme.protocol.messages import Action
from certwright.acme.ratelimits.published import CaLimits, Limit
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.cache.shard_members import Shards, shard_of
from certwright.controllers.circuit_breaker import ATTEMPTS_PER_HOUR
from certwright.controllers.manager import ControllerManager
from certwright.controllers.settings import Settings
from certwright.diagnosis.limits import read
from certwright.kit.rate_limit import Rate
from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.errors import Unreachable
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Request, Response
from certwright.resources.table import CERTIFICATES
from controllers.acme.fake_world import FakeWorld, fake_world
from controllers.scene import make_certificate
from support.world import CONTROLLER

pytestmark = pytest.mark.every(3)

HOUR = timedelta(hours=1)
LIMIT = 4
MANY = 12


@dataclass
class Replicas:
    """Controllers of `count` shards beside each other, over the API server and the CA of `fake`."""

    fake: FakeWorld
    count: int
    attempts: int = 0
    """Of orders in an hour; 0: without a circuit breaker, so that only the CA's limits stop an order."""
    running: dict[int, ControllerManager] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    """Replicas whose requests no longer reach the API server."""

    async def start(self, shard: int) -> None:
        """Start the replica that works on that shard."""

        async def handle(request: Request) -> Response:
            if shard in self.cut:
                raise Unreachable("cut off")
            return await self.fake.world.recording.handle(request)

        clock = self.fake.world.clock
        client = Client(LocalTransport(handle, CONTROLLER), user_agent=f"shard {shard}", clock=clock)
        mine = Shards(frozenset({shard}), self.count) if self.count > 1 else None
        settings = Settings(acme=self.fake._acme(), issuer_attempts_per_hour=self.attempts)
        made = ControllerManager(client, clock, Inline(), settings, mine)
        self.running[shard] = made
        made.start()
        await self.fake.world.settle()

    async def kill(self, shard: int) -> None:
        """End the replica as SIGKILL does: what is under way is neither finished nor written."""
        self.cut.add(shard)
        await self.running.pop(shard).close()
        self.cut.discard(shard)

    async def close(self) -> None:
        """Stop all."""
        for member in self.running.values():
            await member.close()

    async def issue_all(self, *names: str) -> None:
        """Create a Certificate per domain name; the names of the Certificates spread over the shards."""
        for number, name in enumerate(names):
            certificate = make_certificate(f"web-{number}", "acme", kind="ClusterIssuer", dns_names=(name,))
            await self.fake.world.create(CERTIFICATES, certificate)
        shards = {shard_of(ObjectKey("default", f"web-{n}"), self.count) for n in range(len(names))}
        assert shards == set(range(self.count))
        await self.fake.world.advance(timedelta(minutes=1))

    @property
    def orders_placed(self) -> int:
        """How often the CA was asked for a new order."""
        return self.fake.ca.counted()[Action.NEW_ORDER]


@asynccontextmanager
async def replicas(count: int, attempts: int = 0, **limits: Limit) -> AsyncIterator[Replicas]:
    """So many replicas, and an issuer at a CA with these limits."""
    known = CaLimits(name="the CA", limits=limits)
    async with fake_world(limits={"ca.example": known}) as fake:
        await fake.world.stop_controllers()
        made = Replicas(fake, count, attempts)
        try:
            for shard in range(count):
                await made.start(shard)
            await fake.issuer()
            yield made
        finally:
            await made.close()


@pytest.fixture(params=[1, 2, 3])
def count(request: pytest.FixtureRequest) -> int:
    """How many shards."""
    number: int = request.param
    return number


def different(number: int) -> list[str]:
    return [f"www.site{i}.org" for i in range(number)]


async def kept(made: Replicas) -> ConfigMap:
    (config_map,) = (
        await made.fake.world.client.list(CONFIG_MAPS, labels="certwright.io/acme-limits=true")
    ).items
    return config_map


async def test_all_shards_together_place_as_many_orders_as_the_account_may(count: int) -> None:
    async with replicas(count, newOrders=Limit(Rate(LIMIT, HOUR, refills=False))) as made:
        await made.issue_all(*different(MANY))
        assert made.orders_placed == LIMIT
        await made.fake.world.advance(HOUR + timedelta(minutes=1))
        assert made.orders_placed == 2 * LIMIT
        await made.fake.world.advance(HOUR + timedelta(minutes=1))
        assert made.orders_placed == MANY
        assert made.fake.ca.counted()[Action.NEW_ACCOUNT] == 1


async def test_all_shards_together_get_as_many_certificates_as_a_domain_may_have(count: int) -> None:
    async with replicas(count, certificatesPerDomain=Limit(Rate(LIMIT, HOUR, refills=False))) as made:
        await made.issue_all(*(f"www{i}.example.org" for i in range(MANY)))
        assert made.orders_placed == LIMIT


async def test_all_shards_together_get_as_many_certificates_as_a_set_of_names_may_have(count: int) -> None:
    async with replicas(count, certificatesPerSet=Limit(Rate(LIMIT, HOUR, refills=False))) as made:
        await made.issue_all(*["www.example.org"] * MANY)
        # The CA answers some requests with an order that exists.
        assert len(made.fake.ca.orders) == LIMIT


async def test_a_name_that_failed_too_often_in_any_shard_is_left_alone_by_all(count: int) -> None:
    async with replicas(count, failedValidations=Limit(Rate(LIMIT, HOUR, refills=False))) as made:
        made.fake.ca.sees = lambda _found, _kind: False
        for number in range(MANY):
            await made.fake.issue(f"web-{number}", "dead.example.org")
            await made.fake.world.advance(timedelta(seconds=20))
        assert made.orders_placed == LIMIT


async def test_all_shards_together_register_as_many_accounts_as_the_address_may(count: int) -> None:
    async with replicas(count, newAccounts=Limit(Rate(LIMIT, HOUR, refills=False))) as made:
        # The issuer of the fixture has one.
        for number in range(MANY):
            await made.fake.issuer(f"more-{number}")
        await made.fake.world.advance(timedelta(minutes=1))
        assert made.fake.ca.counted()[Action.NEW_ACCOUNT] == LIMIT


async def test_what_one_shard_learns_from_a_refusal_holds_for_all(count: int) -> None:
    async with replicas(count) as made:
        made.fake.ca.refuse(
            Action.NEW_ORDER, "rateLimited", "too much", status=429, retry_after="3600", times=1
        )
        await made.fake.issue("first", "www.first.org")
        await made.fake.world.advance(timedelta(seconds=2))
        assert made.orders_placed == 1
        await made.issue_all(*different(MANY))
        assert made.orders_placed == 1


@pytest.mark.every(5)
@pytest.mark.parametrize("step", range(1, 15))
async def test_a_shard_killed_between_reservation_and_order_neither_loses_nor_doubles(step: int) -> None:
    async with replicas(2, newOrders=Limit(Rate(LIMIT, HOUR, refills=False))) as made:
        fake = made.fake
        # After so many writes and requests to the CA nothing that a replica sends arrives any more.
        fake.cut.left = 4 * step
        await made.issue_all(*different(MANY))
        for shard in (0, 1):
            await made.kill(shard)
        fake.cut.left = 10**9
        for shard in (0, 1):
            await made.start(shard)
        await fake.world.advance(timedelta(minutes=10))
        assert len(fake.ca.orders) == LIMIT


async def test_another_shard_learns_that_a_reservation_was_given_back() -> None:
    async with replicas(2, certificatesPerDomain=Limit(Rate(1, 10 * HOUR, refills=False))) as made:
        made.fake.ca.sees = lambda authorization, _kind: authorization.name != "dead.example.org"
        names = [f"web-{n}" for n in range(20)]
        first = next(name for name in names if shard_of(ObjectKey("default", name), 2) == 0)
        second = next(name for name in names if shard_of(ObjectKey("default", name), 2) == 1)
        await made.fake.issue(first, "dead.example.org")
        await made.fake.issue(second, "live.example.org")
        await made.fake.world.advance(timedelta(minutes=5))
        assert await made.fake.world.is_ready(second)


async def test_the_command_counts_what_all_shards_used_and_what_waits(count: int) -> None:
    async with replicas(count, newOrders=Limit(Rate(LIMIT, HOUR, refills=False))) as made:
        await made.issue_all(*different(MANY))
        manifest = msgspec.to_builtins(await kept(made))
        (row,) = read(manifest, [], {}, made.fake.world.clock.now())
        assert (row.used, row.waiting) == (LIMIT, MANY - LIMIT)


def ledger_writes(made: Replicas) -> list[str]:
    return [write.path for write in made.fake.world.recording.writes if "/configmaps" in write.path]


async def test_a_ca_without_limits_costs_no_write(count: int) -> None:
    async with replicas(count) as made:
        await made.issue_all(*different(MANY))
        assert made.orders_placed == MANY
        assert ledger_writes(made) == []


async def test_a_lost_account_is_looked_after_by_the_replica_that_misses_it(fake: FakeWorld) -> None:
    await fake.world.stop_controllers()
    # The issuer is in the shard of somebody else, who knows of no trouble.
    acme = AcmeOptions(make_transport=fake.ca.transport, responder=fake.shown)
    await fake.world.start_controllers(acme=acme, mine=lambda key: key.name != "acme")
    fake.ca.accounts.clear()
    await fake.issue("web", after=timedelta(minutes=5))
    assert await fake.world.is_ready("web"), await fake.message_of()
    assert [action for action, _ in fake.ca.requests].count(Action.NEW_ACCOUNT) == 2


@pytest.mark.parametrize("restarted", [False, True])
async def test_each_replica_orders_its_own_and_rests_then(*, restarted: bool) -> None:
    async with replicas(2) as made:
        fake, names = made.fake, [f"web-{number}" for number in range(6)]
        assert {shard_of(ObjectKey("default", name), 2) for name in names} == {0, 1}
        for name in names:
            await fake.issue(name, f"{name}.example.org")
        if restarted:
            await made.running.pop(0).close()
            await made.start(0)
        await fake.world.advance(timedelta(minutes=1))
        for name in names:
            assert await fake.world.is_ready(name)
        assert made.orders_placed == len(names)
        # Nobody asks again and again whose the Orders are that belong to requests which he does not hold.
        for member in made.running.values():
            queues = {controller.name: controller.queue.waiting for controller in member.wiring.controllers}
            assert (queues["orders"], queues["challenges"]) == (0, 0)


async def test_one_replica_probes_and_all_keep_to_the_attempts_and_are_released_together() -> None:
    async with replicas(3, attempts=ATTEMPTS_PER_HOUR) as made:
        fake, names = made.fake, [f"web-{number}" for number in range(24)]
        fake.ca.is_away = True
        for name in names:
            await fake.issue(name, f"{name}.example.org")
        before = fake.ca.counted()
        await fake.world.advance(timedelta(minutes=30))
        asked = fake.ca.counted() - before
        assert asked[Action.DIRECTORY] <= 30
        assert made.orders_placed + fake.ca.counted()[Action.NEW_NONCE] <= 12
        fake.ca.is_away = False
        await fake.world.advance(timedelta(minutes=3))
        assert all([await fake.world.is_ready(name) for name in names])
