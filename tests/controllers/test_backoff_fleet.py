"""Many certificates that fail: nobody attempts early whatever happens to the process, no certificate ends for
want of attempts, and the cause decides about the wait. CERTWRIGHT_SOAK=1 has ten thousand fail."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.durations import doubled
from certwright.kube.util.http_messages import Request, Response
from certwright.resources.causes import Cause, Why
from certwright.resources.table import CERTIFICATES
from controllers.crashes import Guillotine
from controllers.external_issuer import ISSUER, add_external_issuer
from controllers.scene import Scene, make_certificate
from support.world import START, World

pytestmark = pytest.mark.every(2)

HOUR = timedelta(hours=1)
Handler = Callable[[Request], Awaitable[Response]]


async def add(world: World, number: int, *, duration: str = "2160h") -> list[str]:
    names = [f"c{index:05}" for index in range(number)]
    for name in names:
        await world.create(CERTIFICATES, make_certificate(name, "", issuer_ref=ISSUER, duration=duration))
    return names


async def status_of(world: World, name: str) -> tuple[str, str]:
    """Reason and message of Issuing."""
    issuing = await world.condition(name, "Issuing")
    return issuing.reason, issuing.message


@pytest.mark.parametrize(("life", "outage"), [(160, 40), (160, 50), (24, 7.5), (1, 0.25)])
async def test_no_certificate_ends_while_its_ca_is_out(world: World, life: float, outage: float) -> None:
    """A CA that is out for 40 hours, from the moment at which certificates of 160 hours are due for renewal:
    by the design's waits the attempts are 1, 3, 7, 15, 31 and 63 hours later, ten hours after the end."""
    end = START
    external = await add_external_issuer(
        world, lambda now: Why(Cause.UNAVAILABLE) if now > START and now < end else None, life=life * HOUR
    )
    # Not so many that by chance ten of them are due in one second: all of these would ask before the first
    # has failed, which is as often as the issuer is asked in an hour.
    names = await add(world, 12, duration=f"{max(life, 1)}h")
    await world.settle()
    ends = {name: (await world.certificate(name)).status.not_after for name in names}
    renewals = [(await world.certificate(name)).status.renewal_time for name in names]
    begin = min(moment for moment in renewals if moment is not None)
    end = begin + outage * HOUR
    await world.advance_to(
        min(moment for moment in ends.values() if moment is not None) - timedelta(seconds=1)
    )
    for name in names:
        certificate = await world.certificate(name)
        assert certificate.status.revision == 2, f"{name} has not been renewed in time"
        assert certificate.status.failed_issuance_attempts is None
    attempts = Counter(key for moment, key in external.asked if begin <= moment < end)
    assert max(attempts.values()) < 20


async def test_an_issuer_that_asks_for_time_gets_it(world: World) -> None:
    until = START + 5 * HOUR
    why = Why(Cause.RATE_LIMITED, "", until)
    external = await add_external_issuer(world, lambda now: why if now < until else None)
    await add(world, 1)
    await world.settle()
    assert await status_of(world, "c00000") == (
        "RateLimited",
        "The certificate request has failed to complete and will be retried: the issuer said no; not before "
        "2026-01-01T05:00:00Z. Next attempt at 2026-01-01T05:00:00Z; the issuer grants no more at present "
        "and would refuse earlier attempts too; `certwright renew c00000 -n default` retries immediately",
    )
    await world.start_controllers()
    await world.advance(10 * HOUR)
    assert [moment for moment, _ in external.asked] == [START, until]
    assert await world.is_ready("c00000")


async def test_a_request_that_cannot_succeed_waits_for_a_change_of_the_field_that_is_named(
    world: World,
) -> None:
    why: Why | None = Why(Cause.INVALID_REQUEST, "change spec.dnsNames: this CA refuses one of them")
    external = await add_external_issuer(world, lambda _: why)
    await add(world, 1)
    await world.advance(31 * HOUR)
    assert len(external.asked) == 1
    reason, message = await status_of(world, "c00000")
    assert reason == "InvalidRequest"
    assert (
        "Next attempt at 2026-01-02T08:00:00Z; change spec.dnsNames: this CA refuses one of them" in message
    )
    await world.advance(HOUR)
    assert len(external.asked) == 2
    why = None
    await Scene(world).change_spec("c00000", dnsNames=["good.example.com"])
    assert len(external.asked) == 3
    assert await world.is_ready("c00000")


FAILING = 10_000 if os.environ.get("CERTWRIGHT_SOAK") else 1_000


@pytest.mark.timeout(1200)
@pytest.mark.long  # thousands of certificates
async def test_thousands_of_failing_certificates_attempt_nothing_early(world: World) -> None:
    """They failed under a version without counters, under cert-manager, or under ours. The process is killed
    again and again: in the middle of its work, between two attempts, and while some fall due."""
    dice = random.Random(7)
    await world.stop_controllers()
    external = await add_external_issuer(world, lambda _: Why())
    due = await let_them_have_failed(world, await add(world, FAILING), dice)
    await start_and_kill_at_random_moments(world, dice)
    first: dict[ObjectKey, datetime] = {}
    for moment, key in external.asked:
        first.setdefault(key, moment)
    early = [key for key, moment in first.items() if moment < due[key]]
    assert early == []
    fell_due = {key for key, moment in due.items() if moment <= world.clock.now()}
    assert 3 < len(fell_due) < FAILING / 20
    # And nobody is forgotten.
    assert set(first) == fell_due


async def let_them_have_failed(
    world: World, names: list[str], dice: random.Random
) -> dict[ObjectKey, datetime]:
    """Nearly none is due while the test lasts. Returns when each is."""
    due = {}
    for name in names:
        attempts = dice.choice((None, 1, 2, 4, 7))
        wait = doubled(HOUR, attempts or 1, cap=32 * HOUR)
        last = (START - wait * (dice.random() * 0.99)).replace(microsecond=0)
        due[ObjectKey("default", f"{name}-1")] = last + wait
        issuing = {"type": "Issuing", "status": "False", "reason": "Failed", "message": "it failed: no"}
        status = {"lastFailureTime": last, "failedIssuanceAttempts": attempts, "conditions": [issuing]}
        await world.client.patch(CERTIFICATES, name, "default", {"status": status}, subresource="status")
    return due


async def start_and_kill_at_random_moments(world: World, dice: random.Random) -> None:
    handler = world.recording.handler
    world.recording.handler = Guillotine(handler, dice.randrange(1, FAILING)).handle
    await world.start_controllers()
    world.recording.handler = handler
    for _ in range(2):
        await world.start_controllers()
        await world.advance(timedelta(seconds=dice.randint(20, 40)))
    await world.stop_controllers()
    world.clock.set_now(world.clock.now() + timedelta(seconds=30))
    await world.start_controllers()
