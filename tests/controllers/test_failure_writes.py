"""What a failed issuance writes: the retry record, then the status, once each; a kill between them loses no
wait."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.resources.certificate import Certificate
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.acme.fake_world import fake_world
from controllers.crashes import Guillotine
from controllers.external_issuer import mark
from controllers.scene import make_certificate
from support.world import START, World

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
THING = IssuerReference(name="thing", kind="Thing", group="example.com")
RECORD, STATUS = "PATCH certificates/web", "PATCH certificates/web/status"


def writes_of(world: World) -> list[str]:
    """The controllers' writes of the Certificate since the last call."""
    writes = [
        f"{write.method} {write.path.partition('/default/')[2]}" for write in world.recording.object_writes()
    ]
    world.recording.writes.clear()
    return [write for write in writes if write.partition(" ")[2].startswith("certificates/")]


async def ask(world: World) -> Certificate:
    await world.add(CERTIFICATES, make_certificate("web", "thing", issuer_ref=THING))
    world.recording.writes.clear()
    return await world.certificate("web")


@pytest.mark.parametrize("kind", ["Failed", "InvalidRequest"])
async def test_each_failure_writes_the_record_and_the_status_once(kind: str, world: World) -> None:
    await ask(world)
    for failures in (1, 2, 3):
        await mark(world, "web-1", kind)
        assert writes_of(world) == [RECORD, STATUS]
        assert (await world.certificate("web")).status.failed_issuance_attempts == failures
        await world.advance(33 * HOUR)
        # The next attempt writes that it begins.
        assert writes_of(world) == [STATUS]


async def test_a_name_that_a_ca_refuses_writes_both_once() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        await fake.issue("web", "web.exa_mple.org")
        await fake.world.advance(MINUTE)
        assert (await fake.certificate()).status.failed_issuance_attempts == 1
        # First that it begins, and the name of the key's Secret.
        assert writes_of(fake.world) == [STATUS, RECORD, STATUS]


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
@pytest.mark.parametrize("answered", [False, True])
async def test_a_kill_between_the_writes_loses_no_wait(writes: int, answered: bool, world: World) -> None:
    await ask(world)
    handler = world.recording.handler
    world.recording.handler = Guillotine(handler, writes, answered=answered).handle
    await mark(world, "web-1", "Failed")
    await world.stop_controllers()
    world.recording.handler = handler
    await world.start_controllers()
    failed = await world.certificate("web")
    assert (failed.status.failed_issuance_attempts, failed.status.last_failure_time) == (1, START)
    former = (await world.get(CERTIFICATE_REQUESTS, "web-1")).metadata.uid
    await world.advance(59 * MINUTE)
    assert (await world.get(CERTIFICATE_REQUESTS, "web-1")).metadata.uid == former
    await world.advance(2 * MINUTE)
    assert (await world.get(CERTIFICATE_REQUESTS, "web-1")).metadata.uid != former
