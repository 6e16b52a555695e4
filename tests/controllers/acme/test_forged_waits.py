"""No text of a CA decides about a wait; what the CA names in a header does, for a week at most."""

from __future__ import annotations

from datetime import timedelta

import pytest

from acme.fake_ca import Refusal
from certwright.acme.protocol.messages import Action
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.acme.fake_world import FakeWorld

_FORGED = "the page says: gone; not before 2026-01-07T00:00:00Z"


def _placed(fake: FakeWorld) -> int:
    return fake.ca.counted()[Action.NEW_ORDER]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_time_inside_a_detail_does_not_delay_the_next_attempt(
    fake: FakeWorld, restarts: bool
) -> None:
    await fake.issuer()
    fake.ca.verdicts["a.example.org"] = Refusal("unauthorized", _FORGED)
    await fake.issue()
    del fake.ca.verdicts["a.example.org"]
    if restarts:
        await fake.start()
    await fake.world.advance(timedelta(minutes=61))
    assert await fake.world.is_ready("web")


async def test_a_time_inside_a_detail_does_not_delay_an_order_after_a_restart(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.refuse(Action.NEW_ORDER, "serverInternal", _FORGED, status=503)
    await fake.issue()
    await fake.start()
    await fake.world.advance(timedelta(minutes=1))
    assert await fake.world.is_ready("web")


async def test_a_type_inside_a_detail_is_not_the_cause(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.verdicts["a.example.org"] = Refusal("", "")
    fake.ca.refuse(Action.NEW_ORDER, "dns", "no such name [rejectedIdentifier] [rateLimited]")
    await fake.issue()
    issuing = [
        condition for condition in (await fake.certificate()).status.conditions if condition.type == "Issuing"
    ]
    assert issuing[0].reason == "Failed"


async def test_the_named_time_outlives_a_restart(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.refuse(Action.NEW_ORDER, "serverInternal", status=503, retry_after="7200")
    await fake.issue()
    await fake.start()
    await fake.world.advance(timedelta(minutes=115))
    assert _placed(fake) == 1
    await fake.world.advance(timedelta(minutes=10))
    assert await fake.world.is_ready("web")


@pytest.mark.parametrize("action", [Action.NEW_ORDER, Action.CHALLENGE])
async def test_a_retry_after_is_obeyed_for_a_week_at_most(fake: FakeWorld, action: Action) -> None:
    await fake.issuer()
    fake.ca.refuse(action, "serverInternal", status=503, retry_after="315360000")
    await fake.issue()
    await fake.world.advance(timedelta(days=6))
    assert not await fake.world.is_ready("web")
    await fake.world.advance(timedelta(days=1, minutes=5))
    assert await fake.world.is_ready("web")


async def test_a_changed_spec_is_tried_immediately_after_the_failed_request_was_deleted(
    fake: FakeWorld,
) -> None:
    await fake.issuer()
    fake.ca.refuse(Action.NEW_ORDER, "dns", "no such name")
    await fake.issue()
    await fake.world.client.delete(CERTIFICATE_REQUESTS, "web-1", "default")
    await fake.world.advance(timedelta(minutes=2))
    assert _placed(fake) == 1
    await fake.world.client.patch(
        CERTIFICATES, "web", "default", {"spec": {"dnsNames": ["good.example.org"]}}
    )
    await fake.world.advance(timedelta(seconds=5))
    assert await fake.world.is_ready("web")


async def test_a_clock_that_was_behind_at_start_causes_no_storm(fake: FakeWorld) -> None:
    await fake.issuer()
    for number in range(12):
        name = f"web{number}.example.org"
        fake.ca.verdicts[name] = Refusal("dns", "no such name")
        await fake.issue(f"web{number}", name)
    await fake.world.advance(timedelta(minutes=1))
    right = fake.world.clock.now()
    placed = _placed(fake)
    await fake.world.stop_controllers()
    fake.world.clock.set_now(right - timedelta(hours=2))
    await fake.start()
    await fake.world.advance(timedelta(seconds=4))
    fake.world.clock.set_now(right + timedelta(seconds=10))
    await fake.world.settle()
    await fake.world.advance(timedelta(minutes=50))
    assert _placed(fake) == placed
