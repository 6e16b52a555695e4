"""Of many Certificates each is finished before others begin; those of one namespace do not delay those of
another, renewals not new ones, and those that end soon go first."""

from __future__ import annotations

import re
from datetime import timedelta

from certwright.controllers.deliveries.permissions import DeliveryOptions, Root
from certwright.controllers.shims.annotations import ShimOptions
from certwright.kube.api.core import NAMESPACES, Namespace
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.world import World, make_world

_MANY = 100
_TOGETHER = 50
"""Twice as many writes as keys are worked on at the same time."""


async def _create_many(world: World) -> None:
    await world.create(ISSUERS, make_issuer("self"))
    for number in range(_MANY):
        await world.create(CERTIFICATES, make_certificate(f"c{number}", "self"))


def _writes_until(world: World, name: str) -> int:
    """How many objects the controllers wrote before the Secret of that name."""
    writes = world.recording.object_writes()
    path = f"/api/v1/namespaces/other/secrets/{name}"
    return next(number for number, write in enumerate(writes) if write.path.startswith(path))


async def test_hundreds_of_one_namespace_do_not_go_before_one_of_another() -> None:
    async with make_world(controllers=False) as world:
        await _create_many(world)
        await world.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="other")))
        await world.create(ISSUERS, make_issuer("self", namespace="other"))
        await world.create(CERTIFICATES, make_certificate("web", "self", namespace="other"))
        await world.start_controllers()
        assert await world.is_ready("web", "other")
        assert await world.is_ready(f"c{_MANY - 1}")
        assert len(world.recording.object_writes()) >= 7 * _MANY
        assert _writes_until(world, "web") < 7 * _TOGETHER


async def test_one_that_ends_soon_goes_before_new_ones() -> None:
    async with make_world() as world:
        await world.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="other")))
        await world.create(ISSUERS, make_issuer("self", namespace="other"))
        short = make_certificate("short", "self", namespace="other", duration="1h", renew_before="20m")
        await world.add(CERTIFICATES, short)
        first = (await world.secret("short", "other")).data["tls.crt"]
        await world.stop_controllers()
        await _create_many(world)
        for number in range(_MANY):
            await world.create(CERTIFICATES, make_certificate(f"d{number}", "self", namespace="other"))
        world.clock.advance(timedelta(minutes=50))
        world.recording.writes.clear()
        await world.start_controllers()
        assert (await world.secret("short", "other")).data["tls.crt"] != first
        assert _writes_until(world, "short") < 7 * _TOGETHER


def _targets_written(world: World) -> list[int]:
    """The positions of the writes of target Secrets among all writes."""
    writes = world.recording.object_writes()
    return [number for number, write in enumerate(writes) if re.search(r"/secrets/[cd]\d+$", write.path)]


async def test_of_many_each_is_finished_before_others_begin() -> None:
    async with make_world(controllers=False) as world:
        await _create_many(world)
        world.recording.writes.clear()
        await world.start_controllers()
        written = _targets_written(world)
        assert len(written) == _MANY
        assert written[0] < 7 * _TOGETHER
        assert written[len(written) // 2] < 0.6 * written[-1]


async def test_a_new_certificate_does_not_wait_for_all_renewals() -> None:
    async with make_world() as world:
        await _create_many(world)
        await world.settle()
        await world.stop_controllers()
        world.clock.advance(timedelta(days=89, hours=23))
        await world.create(CERTIFICATES, make_certificate("d1", "self"))
        world.recording.writes.clear()
        await world.start_controllers()
        assert await world.is_ready("d1")
        paths = [write.path for write in world.recording.object_writes()]
        assert len(_targets_written(world)) == _MANY + 1
        assert next(n for n, path in enumerate(paths) if path.endswith("/secrets/d1")) < 7 * _TOGETHER


async def test_no_namespace_occupies_all_workers_of_a_controller() -> None:
    roots = DeliveryOptions(roots={"web": Root(directory="/nowhere")})
    async with make_world(shims=ShimOptions(), deliveries=roots) as world:
        queues = world.manager.wiring.queues
        shares = {name: queue.most_per_flow for name, queue in queues.items()}
        assert shares["authorities"] == shares["cainjector-customresourcedefinitions"] == 1
        assert shares["certificates"] == shares["ingress-shim"] == shares["deliveries"] == 28
        assert shares["challenges"] == 4 * 28
        assert None not in shares.values()
