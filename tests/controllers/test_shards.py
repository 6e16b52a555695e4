"""Replicas that share the work, over one API server, on a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from certwright.controllers.cache.shard_members import shard_of
from certwright.controllers.manager import ControllerManager
from certwright.controllers.replicas.shards import ClusterSettings, ShardedReplica, beside_a_server
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from certwright.kube.util.tasks import TaskSet
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.members import Member, seconds, sharded
from controllers.scene import Scene, make_certificate
from support.world import CONTROLLER, World, make_world


def issued_by(replica: Member[ShardedReplica]) -> set[str]:
    """The requests whose certificates it wrote."""
    wrote = [c.split("/") for c in replica.changes if "/certificaterequests/" in c and c.endswith("/status")]
    return {parts[-2] for parts in wrote}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with make_world(controllers=False) as made:
        await allow_shards(made)
        yield made


async def allow_shards(world: World) -> None:
    """As `deploy/` does: cert-manager's own role names its one Lease only."""
    meta = {"name": "shards", "namespace": "kube-system"}
    rbac = "rbac.authorization.k8s.io"
    role = Kind(rbac, "v1", "Role", "roles", "role", True, dict[str, Any])
    binding = Kind(rbac, "v1", "RoleBinding", "rolebindings", "rolebinding", True, dict[str, Any])
    names = [f"cert-manager-controller-shard-{number}" for number in range(4)]
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rules = [rule | {"verbs": ["get", "update"], "resourceNames": names}]
    await world.create(role, {"metadata": meta, "rules": rules})
    reference = {"apiGroup": rbac, "kind": "Role", "name": "shards"}
    subject = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": "cert-manager"}
    await world.create(binding, {"metadata": meta, "roleRef": reference, "subjects": [subject]})


async def issue(scene: Scene, names: Iterable[str]) -> None:
    for name in names:
        await scene.world.create(CERTIFICATES, make_certificate(name, "ca"))
    await scene.world.settle()


async def check_all_issued_once(world: World, names: list[str]) -> None:
    for name in names:
        assert await world.is_ready(name), name
    requests = (await world.client.list(CERTIFICATE_REQUESTS, "default")).items
    of = [r.metadata.name.rpartition("-")[0] for r in requests]
    assert sorted(n for n in of if n in names) == sorted(names)
    signed = [w.path for w in world.recording.object_writes() if "/certificaterequests/" in w.path]
    signed = [path for path in signed if path.endswith("/status")]
    assert len(signed) == len(set(signed))


NAMES = [f"web-{letter}" for letter in "abcdefghijkl"]


def test_a_certificate_is_always_in_the_same_shard() -> None:
    assert [shard_of(ObjectKey("default", name), 4) for name in NAMES[:4]] == [3, 1, 3, 0]


async def test_two_replicas_share_the_certificates_and_sign_each_once(world: World) -> None:
    first, second = sharded(world, "one", 2), sharded(world, "two", 2)
    await world.settle()
    assert (len(first.replica.shards), len(second.replica.shards)) == (1, 1)
    scene = Scene(world)
    await scene.add_ca()
    await issue(scene, NAMES)
    await check_all_issued_once(world, NAMES)
    assert issued_by(first)
    assert issued_by(second)
    assert not issued_by(first) & issued_by(second)
    for member in (first, second):
        for name in issued_by(member):
            shard = shard_of(ObjectKey("default", name.rpartition("-")[0]), 2)
            assert shard in member.replica.shards


async def test_one_replica_alone_comes_to_hold_every_shard(world: World) -> None:
    member = sharded(world, "one", 4)
    await world.advance(seconds(60))
    assert member.replica.shards == {0, 1, 2, 3}
    scene = Scene(world)
    await scene.add_ca()
    await issue(scene, NAMES)
    await check_all_issued_once(world, NAMES)


async def test_the_shards_of_one_that_died_are_taken_over_when_its_leases_end(world: World) -> None:
    first, second = sharded(world, "one", 2), sharded(world, "two", 2)
    scene = Scene(world)
    await scene.add_ca()
    await first.die()
    await issue(scene, NAMES)
    await world.advance(seconds(40))
    assert len(second.replica.shards) == 1
    # Sixty seconds since it was seen to be renewed, which may be a look later.
    await world.advance(seconds(20 + 14))
    assert second.replica.shards == {0, 1}
    await check_all_issued_once(world, NAMES)


async def test_the_shards_of_one_that_died_are_taken_over_when_its_leases_end_and_not_a_look_later(
    world: World,
) -> None:
    member = sharded(world, "one", 2)
    await world.advance(seconds(1))
    # It reads the Leases of the first one at its start.
    two = sharded(world, "two", 2)
    await world.advance(seconds(1))
    await member.die()
    await world.advance(seconds(57))
    assert len(two.replica.shards) < 2
    await world.advance(seconds(3))
    assert two.replica.shards == {0, 1}


async def test_a_newcomer_is_given_a_shard_by_the_one_that_has_most(world: World) -> None:
    member = sharded(world, "one", 2)
    await world.advance(seconds(60))
    assert len(member.replica.shards) == 2
    scene = Scene(world)
    await scene.add_ca()
    two = sharded(world, "two", 2)
    await world.advance(seconds(5))
    assert (len(member.replica.shards), len(two.replica.shards)) == (1, 1)
    await issue(scene, NAMES)
    await check_all_issued_once(world, NAMES)
    assert issued_by(member)
    assert issued_by(two)
    # For good: nobody takes it back.
    before = member.replica.shards
    await world.advance(seconds(300))
    assert member.replica.shards == before


async def test_a_third_replica_of_two_shards_waits(world: World) -> None:
    members = [sharded(world, name, 2) for name in ("one", "two", "three")]
    await world.advance(seconds(200))
    assert sorted(len(member.replica.shards) for member in members) == [0, 1, 1]
    working = next(member for member in members if member.replica.shards)
    await working.close()
    members.remove(working)
    await world.advance(seconds(15))
    assert [len(member.replica.shards) for member in members] == [1, 1]


async def test_a_replica_that_is_cut_off_changes_nothing_when_the_line_is_back(world: World) -> None:
    first, second = sharded(world, "one", 2), sharded(world, "two", 2)
    scene = Scene(world)
    await scene.add_ca()
    await issue(scene, NAMES[:4])
    first.cut = "for a while"
    # The 40 s in which it could not renew, and the moment after them.
    await world.advance(seconds(41))
    assert first.replica.shards == frozenset()
    await world.advance(seconds(80))
    assert first.replica.shards == frozenset()
    assert second.replica.shards == {0, 1}
    first.changes.clear()
    await issue(scene, NAMES[4:])
    await check_all_issued_once(world, NAMES)
    first.cut = ""
    assert first.changes == []
    await world.advance(seconds(60))
    assert (len(first.replica.shards), len(second.replica.shards)) == (1, 1)


async def test_shards_need_an_election(world: World) -> None:
    for settings, sentence in (
        (ClusterSettings(identity="x", shards=0), "at least one shard"),
        (ClusterSettings(identity="x", shards=2, leader_elect=False), "they need leader election"),
    ):
        with pytest.raises(ValueError, match=sentence):
            beside_a_server(
                LocalTransport(world.server.handle, CONTROLLER),
                settings,
                clock=world.clock,
                make=lambda client, mine: ControllerManager(client, world.clock, Inline(), mine=mine),
                tasks=TaskSet(),
            )
