"""ACME where several replicas share the work."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.acme.protocol.messages import Action
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.cache.shard_members import Shards
from certwright.controllers.manager import Controllers
from certwright.controllers.settings import Settings
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from controllers.acme.fake_world import fake_world
from support.world import CONTROLLER


async def test_a_lost_account_is_looked_after_by_the_replica_that_misses_it() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        await fake.world.stop_controllers()
        # The issuer is in the shard of somebody else, who knows of no trouble.
        acme = AcmeOptions(make_transport=fake.ca.transport, responder=fake.shown)
        await fake.world.start_controllers(acme=acme, mine=lambda key: key.name != "acme")
        fake.ca.accounts.clear()
        await fake.issue("web")
        await fake.world.advance(timedelta(minutes=5))
        assert await fake.world.is_ready("web"), await fake.message_of()
        assert [action for action, _ in fake.ca.requests].count(Action.NEW_ACCOUNT) == 2


@pytest.mark.parametrize("restarted", [False, True])
async def test_each_replica_orders_its_own_and_rests_then(*, restarted: bool) -> None:
    async with fake_world() as fake:
        await fake.issuer()
        acme = AcmeOptions(make_transport=fake.ca.transport, responder=fake.shown)
        world = fake.world
        await world.start_controllers(acme=acme, mine=Shards(frozenset({0}), 2))
        client = Client(LocalTransport(world.recording.handle, CONTROLLER), user_agent="other")
        theirs = Shards(frozenset({1}), 2)
        other = Controllers(client, world.clock, Inline(), Settings(acme=acme), theirs)
        other.start()
        await world.settle()
        names = [f"web-{number}" for number in range(6)]
        assert {theirs(ObjectKey("default", name)) for name in names} == {True, False}
        for name in names:
            await fake.issue(name, f"{name}.example.org")
        if restarted:
            await world.start_controllers(acme=acme, mine=Shards(frozenset({0}), 2))
        await world.advance(timedelta(minutes=1))
        for name in names:
            assert await world.is_ready(name)
        assert [action for action, _ in fake.ca.requests].count(Action.NEW_ORDER) == len(names)
        # Nobody asks again and again whose the Orders are that belong to requests which he does not hold.
        assert world.controllers is not None
        for member in (world.controllers, other):
            queues = {controller.name: controller.queue.waiting for controller in member._controllers}
            assert (queues["orders"], queues["challenges"]) == (0, 0)
        await other.close()


async def test_one_replica_probes_and_all_keep_to_the_attempts_and_are_released_together() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        acme = AcmeOptions(make_transport=fake.ca.transport, responder=fake.shown)
        world = fake.world
        await world.start_controllers(acme=acme, mine=Shards(frozenset({0}), 3))
        others = []
        for number in (1, 2):
            client = Client(LocalTransport(world.recording.handle, CONTROLLER), user_agent=f"other-{number}")
            other = Controllers(
                client, world.clock, Inline(), Settings(acme=acme), Shards(frozenset({number}), 3)
            )
            other.start()
            others.append(other)
        await world.settle()
        fake.ca.is_away = True
        names = [f"web-{number}" for number in range(24)]
        for name in names:
            await fake.issue(name, f"{name}.example.org")
        before = fake.ca.counted()
        await world.advance(timedelta(minutes=30))
        asked = fake.ca.counted() - before
        assert asked[Action.DIRECTORY] <= 30
        placed = fake.ca.counted()[Action.NEW_ORDER] + fake.ca.counted()[Action.NEW_NONCE]
        assert placed <= 12
        fake.ca.is_away = False
        await world.advance(timedelta(minutes=3))
        assert all([await world.is_ready(name) for name in names])
        for other in others:
            await other.close()
