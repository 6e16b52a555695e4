"""The process may be killed between any two writes: the next start comes to the same end, signing once."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from certwright.kit.exchange import Request, Response
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources import conditions, errors
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, SECRETS
from controllers.scene import Scene
from support.world import CONTROLLER, World

Handler = Callable[[Request], Awaitable[Response]]


class Guillotine:
    """An API server that cuts the controllers off once they have written `writes` times."""

    def __init__(self, handler: Handler, writes: int) -> None:
        self._handler = handler
        self._left = writes

    async def handle(self, request: Request) -> Response:
        """Serve, or be gone. The answer to the last write is lost."""
        if request.user != CONTROLLER or request.method == "GET" or "/events" in request.target:
            return await self._handler(request)
        if self._left == 0:
            raise errors.Unreachable("cut off")
        response = await self._handler(request)
        self._left -= response.status < 400
        if self._left == 0:
            raise errors.Unreachable("cut off")
        return response


class Unreliable:
    """An API server of whose answers to the controllers many are an error, or are lost after the deed."""

    def __init__(self, handler: Handler, seed: int) -> None:
        self._handler = handler
        self._random = random.Random(seed)

    async def handle(self, request: Request) -> Response:
        """Serve, fail before, or fail after."""
        if request.user != CONTROLLER or "watch=true" in request.target:
            return await self._handler(request)
        dice = self._random.random()
        if dice < 0.1:
            raise errors.Unreachable("lost on the way there")
        if dice < 0.2:
            return Response(500, {}, b"no")
        response = await self._handler(request)
        if dice < 0.3:
            raise errors.Unreachable("lost on the way back")
        return response


async def check_end(scene: Scene, *, revision: int) -> None:
    """One request, one signature, a pair that belongs together, nothing left over."""
    world = scene.world
    certificate = await world.certificate("web")
    assert await world.is_ready("web")
    assert conditions.find(certificate.status.conditions, "Issuing") is None
    assert certificate.status.revision == revision
    assert certificate.status.next_private_key_secret_name is None
    assert await scene.next_keys() == []
    requests = await scene.requests()
    assert [r.metadata.name for r in requests] == [f"web-{revision}"]
    secret = await world.secret("web")
    assert secret.data["tls.crt"] == requests[0].status.certificate
    leaf = read_certificate(secret.data["tls.crt"])
    assert public_key_der(load_private_key(secret.data["tls.key"])) == leaf.public_key_der


def signatures(world: World, request: str) -> int:
    """How often that request's status was written: once, with the certificate in it."""
    return sum(w.path.endswith(f"/{request}/status") for w in world.recording.object_writes())


@pytest.mark.parametrize("writes", range(1, 8))
async def test_a_crash_after_any_write_of_an_issuance_changes_nothing_in_the_end(
    scene: Scene, writes: int
) -> None:
    recording = scene.world.recording
    whole = recording.handler
    recording.handler = Guillotine(whole, writes).handle
    await scene.issue()
    await scene.world.stop_controllers()
    recording.handler = whole
    await scene.world.start_controllers()
    await check_end(scene, revision=1)
    # Not one write more than without the crash (the one whose answer was lost was not recorded).
    assert signatures(scene.world, "web-1") + (writes == 4) == 1
    assert len(recording.object_writes()) + 1 == 7


@pytest.mark.parametrize("writes", range(1, 9))
async def test_a_crash_after_any_write_of_a_renewal_changes_nothing_in_the_end(
    scene: Scene, writes: int
) -> None:
    await scene.issue()
    recording = scene.world.recording
    whole = recording.handler
    recording.handler = Guillotine(whole, writes).handle
    await scene.world.advance_to(scene.world.clock.now() + timedelta(days=60, hours=1))
    await scene.world.stop_controllers()
    recording.handler = whole
    await scene.world.start_controllers()
    await check_end(scene, revision=2)


@pytest.mark.parametrize("seed", range(6))
async def test_an_unreliable_api_server_delays_but_changes_nothing(scene: Scene, seed: int) -> None:
    recording = scene.world.recording
    recording.handler = Unreliable(recording.handler, seed).handle
    await scene.issue()
    await scene.world.advance(timedelta(minutes=30))
    await check_end(scene, revision=1)
    assert signatures(scene.world, "web-1") <= 1


@pytest.mark.parametrize("seed", range(12))
async def test_crashes_errors_and_meddling_together_end_well(scene: Scene, seed: int) -> None:
    world, dice = scene.world, random.Random(seed)
    whole = world.recording.handler
    await scene.issue()
    for turn in range(6):
        unreliable = Unreliable(whole, dice.randrange(10**6)).handle
        world.recording.handler = Guillotine(unreliable, dice.randint(1, 6)).handle
        await world.start_controllers()
        await meddle(scene, dice, turn)
        await world.advance(timedelta(seconds=dice.random() * 5))
    world.recording.handler = whole
    await world.start_controllers()
    await world.advance(timedelta(minutes=30))
    revision = (await world.certificate("web")).status.revision
    assert revision is not None
    await check_end(scene, revision=revision)


async def meddle(scene: Scene, dice: random.Random, turn: int) -> None:
    """Do what users do."""
    client = scene.world.client
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "now"}
    match dice.randrange(4):
        case 0:
            for name in ("web", *(key.metadata.name for key in await scene.next_keys())):
                with contextlib.suppress(errors.NotFound):
                    await client.delete(SECRETS, name, "default")
        case 1:
            await client.patch(
                CERTIFICATES, "web", "default", {"spec": {"dnsNames": [f"{turn}.example.com"]}}
            )
        case 2:
            status = {"status": {"conditions": [issuing]}}
            await client.patch(CERTIFICATES, "web", "default", status, subresource="status")
        case 3:
            for request in await scene.requests():
                await client.delete(CERTIFICATE_REQUESTS, request.metadata.name, "default")
                # So that something is left to compare the Secret with.
                await scene.change_spec("web", duration=f"{1000 + turn}h")
