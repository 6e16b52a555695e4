"""Several replicas of the controllers, one API server, a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from certwright.controllers.manager import ControllerManager
from certwright.controllers.replicas.replica import Replica
from certwright.controllers.replicas.shards import ClusterSettings, ShardedReplica, beside_a_server
from certwright.controllers.settings import Settings
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from certwright.kube.util.tasks import TaskSet
from controllers.members import Member, alone, seconds
from controllers.scene import Scene
from controllers.test_shards import allow_shards
from support.world import CONTROLLER, World, make_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with make_world(controllers=False) as made:
        yield made


@pytest.fixture
async def scene(world: World) -> Scene:
    return Scene(world)


async def test_one_of_two_works_and_the_other_keeps_still(world: World) -> None:
    first, second = alone(world, "one"), alone(world, "two")
    scene = Scene(world)
    await scene.add_ca()
    await scene.issue()
    assert await world.is_ready("web")
    assert (first.replica.leads, second.replica.leads) == (True, False)
    assert len([c for c in first.changes if "/certificates/web" in c]) > 0
    assert second.changes == []
    assert (
        b'leader_election_master_status{name="cert-manager-controller"} 1' in first.replica.metrics.take()()
    )
    assert (
        b'leader_election_master_status{name="cert-manager-controller"} 0' in second.replica.metrics.take()()
    )
    assert b"certmanager_certificate_ready_status" in first.replica.metrics.take()()


async def test_a_replica_that_dies_in_the_middle_of_an_issuance_is_followed_and_nothing_is_done_twice(
    world: World,
) -> None:
    scene = Scene(world)
    first, second = alone(world, "one"), alone(world, "two")
    await scene.add_ca()
    await scene.issue()
    for number in range(3):
        # Cut off after so many changes of the next issuance.
        await scene.change_spec("web", dnsNames=[f"{number}.example.com"])
        await world.settle()
    before = len(await scene.requests())
    await first.die()
    await scene.change_spec("web", dnsNames=["last.example.com"])
    await world.advance(seconds(59))
    assert second.changes == []
    await world.advance(seconds(19))
    assert second.replica.leads
    assert await world.is_ready("web")
    names = [request.metadata.name for request in await scene.requests()]
    assert len(names) == before
    signed = [w.path for w in world.recording.object_writes() if w.path.endswith("/status")]
    requests = [path for path in signed if "/certificaterequests/" in path]
    assert len(requests) == len(set(requests))


async def test_a_replica_that_is_cut_off_stops_and_changes_nothing_when_the_line_is_back(
    world: World,
) -> None:
    scene = Scene(world)
    first, second = alone(world, "one"), alone(world, "two")
    await scene.add_ca()
    await scene.issue()
    first.cut = "cable"
    await world.advance(seconds(41))
    assert (first.replica.leads, second.replica.leads) == (False, False)
    await scene.change_spec("web", dnsNames=["new.example.com"])
    await world.advance(seconds(60))
    assert second.replica.leads
    first.changes.clear()
    first.cut = ""
    await world.advance(seconds(120))
    assert first.changes == []
    assert first.replica.holder == "two"
    assert await world.is_ready("web")
    # And back again.
    await second.close()
    await world.advance(seconds(18))
    await scene.change_spec("web", dnsNames=["newer.example.com"])
    await world.settle()
    assert first.replica.leads
    assert await world.is_ready("web")


class Lingering(ControllerManager):
    """Closing them takes so long that it is broken off."""

    lingers = True

    async def close(self) -> None:
        lingers, self.lingers = self.lingers, False
        if lingers:
            await asyncio.Event().wait()
        await super().close()


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_replica_that_is_closed_while_it_stops_its_controllers_leaves_nothing_running(
    world: World, shards: int
) -> None:
    await allow_shards(world)
    settings = ClusterSettings(identity="one", kube_api_qps=-1, shards=shards)
    member: Member[Replica] | Member[ShardedReplica]
    if shards == 1:
        member = Member(world, Replica, settings, controllers=Lingering)
    else:
        member = Member(world, ShardedReplica, settings, controllers=Lingering)
    await world.settle()
    assert informers()
    member.cut = "cable"
    await world.advance(seconds(41))
    assert not member.replica.leads
    await member.close()
    await world.settle()
    assert informers() == []


def informers() -> list[str]:
    """The local copies that follow the server."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("informer of")]


async def test_without_an_election_controllers_work_at_once(world: World) -> None:
    tasks = TaskSet()
    made = beside_a_server(
        LocalTransport(world.server.handle, CONTROLLER),
        ClusterSettings(identity="one", leader_elect=False),
        clock=world.clock,
        make=lambda client, _: ControllerManager(client, world.clock, Inline()),
        tasks=tasks,
    )
    assert isinstance(made, ControllerManager)
    await tasks.close()


async def test_options_that_make_no_sense_are_told_before_the_lease_is_there(world: World) -> None:
    with pytest.raises(ValueError, match="no-such"):
        beside_a_server(
            LocalTransport(world.server.handle, CONTROLLER),
            ClusterSettings(identity="one", kube_api_qps=-1),
            clock=world.clock,
            make=lambda client, _: ControllerManager(
                client, world.clock, Inline(), Settings(enabled="no-such")
            ),
            tasks=TaskSet(),
        )


async def test_other_settings_start_with_new_caches_unless_they_are_wrong_or_it_is_closed(
    world: World,
) -> None:
    controllers = await world.start_controllers()
    followed = sorted(informers())
    before = controllers.wiring
    with pytest.raises(ValueError, match="no-such"):
        await controllers.reload(Settings(enabled="no-such"))
    assert controllers.wiring is before
    await controllers.reload(msgspec.structs.replace(before.settings, issuer_attempts_per_hour=3))
    await world.settle()
    assert controllers.synced
    assert controllers.wiring.settings.issuer_attempts_per_hour == 3
    assert sorted(informers()) == followed
    await asyncio.gather(controllers.reload(before.settings), controllers.close())
    await controllers.reload(before.settings)
    await world.settle()
    assert informers() == []
