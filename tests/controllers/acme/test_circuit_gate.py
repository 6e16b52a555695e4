"""The circuit breaker of an ACME CA: while it fails, few requests reach it, whatever waits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.acme.protocol.messages import Action
from certwright.resources.table import CERTIFICATES
from controllers.acme.fake_world import FakeWorld

pytestmark = pytest.mark.every(3)

_OUT = "serverInternal"
_COUNT = 40


async def _many(fake: FakeWorld, count: int = _COUNT) -> None:
    for number in range(count):
        await fake.issue(f"web{number}", f"web{number}.example.com")


def _placed(fake: FakeWorld) -> int:
    return fake.ca.counted()[Action.NEW_ORDER]


async def _ready(fake: FakeWorld) -> int:
    certificates = [await fake.certificate(f"web{number}") for number in range(_COUNT)]
    return sum(1 for certificate in certificates if certificate.status.revision)


async def test_a_ca_that_is_out_gets_twelve_orders_an_hour(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10**6)
    await _many(fake)
    await fake.world.settle()
    for hour in range(1, 6):
        await fake.world.advance(timedelta(hours=1))
        assert _placed(fake) <= 12 * hour
    said = (await fake.certificate("web39")).status.conditions
    assert any('because ClusterIssuer "acme" is failing' in event.message for event in said)
    text = fake.world.controllers.metrics.take()().decode() if fake.world.controllers else ""
    assert (
        'certwright_issuer_circuit_open{issuer_name="acme",issuer_kind="ClusterIssuer",namespace=""} 1'
        in text
    )


async def test_when_it_is_back_all_get_their_certificates(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10)
    await _many(fake)
    await fake.world.advance(timedelta(hours=5))
    assert await _ready(fake) == _COUNT


async def _most_in_an_hour(fake: FakeWorld, minutes: int, *, killed_every: int) -> int:
    """How many orders the CA is sent in an hour, at most; the process is killed again and again."""
    seen = [(fake.world.clock.now() - timedelta(minutes=2), 0)]
    for minute in range(1, minutes + 1):
        if minute % killed_every == 0:
            await fake.start()
        await fake.world.advance(timedelta(minutes=1))
        seen.append((fake.world.clock.now(), _placed(fake)))
    return max(later - first for at, first in seen for then, later in seen if then - at <= timedelta(hours=1))


@pytest.mark.every(5)
@pytest.mark.parametrize("count", [1, 2, 3, _COUNT])
@pytest.mark.parametrize("minutes", [1, 7, 45])
async def test_kills_do_not_have_it_asked_more_often(fake: FakeWorld, count: int, minutes: int) -> None:
    fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10**6)
    await _many(fake, count)
    assert await _most_in_an_hour(fake, 150, killed_every=minutes) <= 12
    assert len((await fake.world.client.list(CERTIFICATES)).items) == count


async def test_a_kill_before_the_ca_has_answered_is_no_new_start(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10**6)
    fake.silent.add(Action.NEW_ORDER)
    await _many(fake)
    for _ in range(5):
        await fake.start()
        await fake.world.settle()
    assert _placed(fake) <= 12


async def test_when_nothing_fails_no_attempt_is_written_down(fake: FakeWorld) -> None:
    await _many(fake)
    await fake.world.advance(timedelta(minutes=2))
    assert await _ready(fake) == _COUNT
    orders = [write.path for write in fake.world.recording.object_writes() if "/orders/" in write.path]
    assert len(orders) == 2 * _COUNT  # placed, and finished


async def test_renew_wakes_an_order_that_waits_for_the_circuit_once(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10**6)
    await _many(fake)
    await fake.world.advance(timedelta(minutes=1))
    for _ in range(2):
        asked = _placed(fake)
        await fake.renew("web39")
        assert _placed(fake) == asked + 1
        assert "Waiting for CertificateRequest" in await fake.message_of(name="web39")
    await fake.world.advance(timedelta(seconds=30))
    assert _placed(fake) == asked + 1


async def test_renew_ends_the_patience_with_a_ca(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=9)
    await fake.issue("web", "web.example.com", after=timedelta(minutes=5))
    asked = _placed(fake)
    await fake.renew("web")
    assert _placed(fake) == asked + 1


async def test_renew_does_not_ask_before_the_time_that_the_ca_has_named(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, retry_after="7200")
    await fake.issue("web", "web.example.com")
    await fake.renew("web")
    assert _placed(fake) == 1
    assert "[serverInternal]; not before 2026-01-01T02:00:0" in await fake.message_of()
    await fake.world.advance(timedelta(hours=2, minutes=1))
    assert await fake.world.is_ready("web")


async def test_those_whose_orders_it_has_taken_keep_off_it_too(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.CHALLENGE, _OUT, status=503, times=10**6)
    fake.ca.refuse(Action.FINALIZE, _OUT, status=503, times=10**6)
    await _many(fake)
    await fake.world.advance(timedelta(minutes=30))
    asked = len(fake.ca.requests)
    await fake.world.advance(timedelta(hours=5))
    # Each of those that try it places an order, and looks at its challenge.
    assert len(fake.ca.requests) - asked <= 5 * 12 * 6
