"""What an issuance leaves behind gives way to what is nearer to a certificate, and is never forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from certwright.pki.certificates import read_certificate
from certwright.resources.table import CERTIFICATES
from controllers.acme.fake_world import fake_world
from controllers.scene import Scene, make_certificate
from kube.runtime.busy import busy, busy_for
from support.world import World

_TURNS = 2_000


@asynccontextmanager
async def issued_in_a_rush(scene: Scene) -> AsyncIterator[None]:
    """The loop is busy, and the Certificate `web` has just become Ready."""
    async with busy(scene.world.clock):
        await scene.world.create(CERTIFICATES, make_certificate("web", "ca"))
        await until_ready(scene.world)
        yield


async def until_ready(world: World) -> None:
    """Return when the Certificate `web` is Ready."""
    for _ in range(_TURNS):
        if await world.is_ready("web"):
            return
        await asyncio.sleep(0)
    raise AssertionError("never Ready")


async def events_of(world: World) -> list[str]:
    """The reasons of the Events about the Certificate `web`, in their order."""
    return [event.reason for event in await world.events() if event.involved_object.name == "web"]


async def public_key(scene: Scene) -> bytes:
    """Of the certificate that is there."""
    return read_certificate((await scene.world.secret("web")).data["tls.crt"]).public_key_der


async def test_in_a_rush_nothing_is_cleared_up_before_a_certificate_is_ready(scene: Scene) -> None:
    async with issued_in_a_rush(scene):
        assert len(await scene.next_keys()) == 1
        assert await events_of(scene.world) == []
    await scene.world.settle()
    assert await scene.next_keys() == []
    assert await events_of(scene.world) == ["Issuing", "Requested", "Issuing"]


async def test_where_the_rush_goes_on_all_is_cleared_up_within_seconds(scene: Scene) -> None:
    async with issued_in_a_rush(scene):
        await busy_for(timedelta(seconds=6))
        assert await scene.next_keys() == []
        assert len(await events_of(scene.world)) == 3


async def test_what_a_killed_process_had_yet_to_clear_up_the_next_one_does(scene: Scene) -> None:
    async with issued_in_a_rush(scene):
        await scene.world.stop_controllers()
    assert len(await scene.next_keys()) == 1
    await scene.world.start_controllers()
    assert await scene.next_keys() == []
    assert (await scene.world.certificate("web")).status.revision == 1


async def test_a_key_that_waits_for_its_deletion_is_not_taken_for_a_new_one(scene: Scene) -> None:
    async with issued_in_a_rush(scene):
        await scene.world.stop_controllers()
    assert len(await scene.next_keys()) == 1
    before = await public_key(scene)
    await scene.change_spec("web", dnsNames=["other.example.com"])
    await scene.world.start_controllers()
    assert (await scene.world.certificate("web")).status.revision == 2
    assert await public_key(scene) != before
    assert await scene.next_keys() == []


async def test_a_renewal_right_after_an_issuance_has_a_key_of_its_own(scene: Scene) -> None:
    async with issued_in_a_rush(scene):
        before = await public_key(scene)
        patch = {"spec": {"dnsNames": ["other.example.com"]}}
        await scene.world.client.patch(CERTIFICATES, "web", "default", patch)
        await busy_for(timedelta(seconds=3))
    await scene.world.settle()
    assert (await scene.world.certificate("web")).status.revision == 2
    assert await public_key(scene) != before
    assert await scene.next_keys() == []


@pytest.mark.parametrize("is_killed", [False, True], ids=["after the rush", "by the next process"])
async def test_challenges_that_have_waited_are_deleted(*, is_killed: bool) -> None:
    async with fake_world() as fake:
        await fake.issuer()
        async with busy(fake.world.clock):
            certificate = make_certificate("web", "acme", kind="ClusterIssuer")
            await fake.world.create(CERTIFICATES, certificate)
            await until_ready(fake.world)
            assert [challenge.status.state for challenge in await fake.challenges()] == [""]
            if is_killed:
                await fake.world.stop_controllers()
        await (fake.start() if is_killed else fake.world.settle())
        assert await fake.challenges() == []
        assert fake.shown.tokens == {}
