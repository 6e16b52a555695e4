"""Replicas that divide the work differently exclude each other; those that end are replaced in moments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest

from certwright.controllers.replicas.replica import Replica
from certwright.controllers.replicas.shards import LEASE_NAME, ShardedReplica
from certwright.kube.api.core import LEASES, Lease, LeaseSpec
from certwright.kube.api.errors import Forbidden
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.apiserver.bootstrap import AUTOUPDATE
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.runtime.lease import format_micro_time
from controllers.members import Member, alone, seconds, sharded
from controllers.scene import Scene
from controllers.test_shards import NAMES, allow_shards, check_all_issued_once, issue
from support.world import CONTROLLER, World, make_world

ROLES = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", "role", True, dict[str, Any])


def metric(member: Member[ShardedReplica]) -> bytes:
    lines = member.replica.metrics.take()().splitlines()
    return next(line for line in lines if line.startswith(b"certwright_shards_conflict{"))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with make_world(controllers=False) as made:
        await allow_shards(made)
        yield made


async def hold(world: World, holder: str) -> None:
    """Have another program hold the lease of all from now on."""
    now = format_micro_time(world.clock.now())
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=60, acquire_time=now, renew_time=now)
    meta = ObjectMeta(name=LEASE_NAME, namespace="kube-system")
    await world.create(LEASES, Lease(metadata=meta, spec=spec))


async def group_of(world: World) -> LeaseSpec:
    return (await world.get(LEASES, LEASE_NAME, "kube-system")).spec


async def test_replicas_with_another_number_of_shards_wait_and_say_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old = [sharded(world, name, 2) for name in ("a", "b")]
    await world.settle()
    new = [sharded(world, name, 3) for name in ("x", "y", "z")]
    scene = Scene(world)
    await scene.add_ca()
    await issue(scene, NAMES)
    await world.advance(seconds(30))
    # Which shard a Certificate is in depends on the number: none is left out, none has two.
    await check_all_issued_once(world, NAMES)
    assert [len(member.replica.shards) for member in (*old, *new)] == [1, 1, 0, 0, 0]
    assert all(not member.changes for member in new)
    assert "certwright-shards-of-2 holds the lease kube-system/cert-manager-controller" in caplog.text
    assert "--shards must be the same for all replicas" in caplog.text
    assert [metric(member).endswith(b" 1") for member in (*old, *new)] == [False, False, True, True, True]
    assert new[0].replica.holder == "certwright-shards-of-2"


async def test_a_rolling_change_of_the_number_hands_over_when_the_last_old_one_ends(world: World) -> None:
    old = [sharded(world, name, 2) for name in ("a", "b")]
    await world.settle()
    new = [sharded(world, name, 3) for name in ("x", "y", "z")]
    await world.advance(seconds(20))
    await old[0].close()
    await world.advance(seconds(5))
    assert old[1].replica.shards == {0, 1}
    assert [len(member.replica.shards) for member in new] == [0, 0, 0]
    await old[1].close()
    await world.advance(seconds(2))
    assert sorted(len(member.replica.shards) for member in new) == [1, 1, 1]
    assert (await group_of(world)).holder_identity == "certwright-shards-of-3"
    scene = Scene(world)
    await scene.add_ca()
    await issue(scene, NAMES)
    await check_all_issued_once(world, NAMES)


async def test_shards_that_all_died_are_followed_by_others_when_their_lease_ends(world: World) -> None:
    old = sharded(world, "a", 2)
    await world.settle()
    await old.die()
    new = sharded(world, "x", 3)
    await world.advance(seconds(58))
    assert new.replica.shards == frozenset()
    # The Lease ends, and it looks once more.
    await world.advance(seconds(2 + 14))
    assert len(new.replica.shards) >= 1


@pytest.mark.parametrize("first", ["shards", "alone"])
async def test_shards_and_a_replica_without_shards_exclude_each_other(world: World, first: str) -> None:
    member: Member[Replica] | Member[ShardedReplica] = (
        alone(world, "a") if first == "alone" else sharded(world, "a", 2)
    )
    await world.settle()
    two: Member[Replica] | Member[ShardedReplica] = (
        sharded(world, "b", 2) if first == "alone" else alone(world, "b")
    )
    await world.advance(seconds(100))
    assert (member.replica.leads, two.replica.leads) == (True, False)
    assert two.changes == []
    await member.close()
    await world.advance(seconds(18))
    assert two.replica.leads


async def test_shards_wait_for_cert_managers_own_controller_and_it_for_them(world: World) -> None:
    await hold(world, "cert-manager-7d4b5")
    member = sharded(world, "a", 2)
    await world.advance(seconds(55))
    assert member.replica.shards == frozenset()
    assert member.replica.holder == "cert-manager-7d4b5"
    # It renews no longer; a replica looks again within a retry period.
    await world.advance(seconds(20))
    assert member.replica.leads
    for _ in range(10):
        before = await group_of(world)
        await world.advance(seconds(30))
        # As client-go sees it: held by another, and renewed within its duration.
        after = await group_of(world)
        assert after.holder_identity == "certwright-shards-of-2"
        assert after.renew_time != before.renew_time
    await member.close()
    assert (await group_of(world)).holder_identity == ""


@pytest.mark.parametrize("after_s", [3, 31])
async def test_a_shard_that_ends_in_good_order_is_replaced_within_two_seconds(
    world: World, after_s: float
) -> None:
    two = sharded(world, "two", 2)
    await world.advance(seconds(1))
    member = sharded(world, "one", 2)
    # Soon after the start, `two` has never seen a holder of the other shard.
    await world.advance(seconds(after_s))
    assert (len(member.replica.shards), len(two.replica.shards)) == (1, 1)
    scene = Scene(world)
    await scene.add_ca()
    await member.close()
    await issue(scene, NAMES)
    await world.advance(seconds(2))
    assert two.replica.shards == {0, 1}
    await check_all_issued_once(world, NAMES)


async def test_the_last_of_several_that_end_together_frees_the_lease_of_all(world: World) -> None:
    members = [sharded(world, name, 2) for name in ("one", "two")]
    await world.advance(seconds(31))
    for member in members:
        await member.close()
    assert (await group_of(world)).holder_identity == ""


async def test_a_replica_that_goes_keeps_the_lease_of_all_for_those_that_stay(world: World) -> None:
    first, _ = sharded(world, "one", 2), sharded(world, "two", 2)
    await world.advance(seconds(31))
    await first.close()
    assert (await group_of(world)).holder_identity == "certwright-shards-of-2"


async def test_all_shards_killed_and_started_again_do_not_wait_out_their_leases(world: World) -> None:
    members = [sharded(world, name, 2) for name in ("one", "two")]
    await world.advance(seconds(31))
    for member in members:
        await member.die()
    members = [sharded(world, name, 2) for name in ("one", "two")]
    await world.advance(seconds(2))
    assert sorted(len(member.replica.shards) for member in members) == [1, 1]


async def test_a_shard_given_to_a_newcomer_is_taken_by_no_other(world: World) -> None:
    first, second = sharded(world, "one", 3), sharded(world, "two", 3)
    await world.advance(seconds(60))
    assert sorted((len(first.replica.shards), len(second.replica.shards))) == [1, 2]
    three = sharded(world, "three", 3)
    await world.advance(seconds(10))
    assert [len(member.replica.shards) for member in (first, second, three)] == [1, 1, 1]


async def allow(world: World, rules: list[dict[str, Any]]) -> None:
    """Make these the rules of the role for leader election."""
    await world.patch(
        ROLES,
        "cert-manager:leaderelection",
        {"metadata": {"annotations": {AUTOUPDATE: "false"}}, "rules": rules},
        namespace="kube-system",
    )


async def test_a_role_without_watch_and_patch_is_enough_to_replace_a_shard(world: World) -> None:
    leases: dict[str, Any] = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    names = [LEASE_NAME, *(f"{LEASE_NAME}-shard-{number}" for number in range(2))]
    named = leases | {"verbs": ["get", "update"], "resourceNames": names}
    await allow(world, [named, leases | {"verbs": ["create"]}])
    first, second = sharded(world, "one", 2), sharded(world, "two", 2)
    await world.advance(seconds(60))
    assert (len(first.replica.shards), len(second.replica.shards)) == (1, 1)
    await first.close()
    await world.advance(seconds(14))
    assert second.replica.shards == {0, 1}
    before = world.recording.requests
    await world.advance(timedelta(hours=1))
    assert second.replica.shards == {0, 1}
    # Three Leases of its own, and a refused watch every two minutes.
    assert world.recording.requests - before <= 345 * 3 + 60 + 300


async def test_the_default_role_allows_to_watch_the_lease_of_all_and_no_other(world: World) -> None:
    client = Client(LocalTransport(world.server.handle, CONTROLLER), user_agent="test")

    async def watch(fields: str) -> None:
        events = client.watch(
            LEASES, "kube-system", resource_version="", fields=fields, timeout_s=1, bookmarks=False
        )
        async with aclosing(events):
            await anext(events)

    await hold(world, "x")
    await watch(f"metadata.name={LEASE_NAME}")
    for fields in ("", f"metadata.name={LEASE_NAME}-x"):
        with pytest.raises(Forbidden):
            await watch(fields)


async def test_two_replicas_with_one_identity_are_detected_and_the_older_stops(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    member = alone(world, "same")
    await world.settle()
    assert member.replica.leads
    await world.advance(seconds(1))
    two = alone(world, "same")
    await world.settle()
    await world.advance(seconds(15))
    assert (member.replica.leads, two.replica.leads) == (False, True)
    assert "another process with the identity same" in caplog.text
    member.changes.clear()
    await world.advance(seconds(300))
    assert (member.replica.leads, two.replica.leads) == (False, True)
    assert member.changes == []
    await two.close()
    await world.advance(seconds(20))
    assert member.replica.leads


async def test_a_request_for_a_lease_that_gets_no_answer_is_given_up_after_ten_seconds(world: World) -> None:
    member = alone(world, "one")
    await world.settle()
    member.silent = True
    await world.advance(seconds(27))
    member.silent = False
    await world.advance(seconds(15))
    # One renewal was given up in time for the next.
    assert member.replica.leads
    await world.advance(seconds(60))
    assert member.replica.leads
