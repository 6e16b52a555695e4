"""A CA that was away is used again within seconds of its return, and is spared while it is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from certwright.acme.protocol.messages import Action
from controllers.acme.fake_world import FakeWorld, fake_world


@pytest.fixture
async def away() -> AsyncIterator[FakeWorld]:
    """A world with a ready issuer whose CA does not answer any more."""
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.is_away = True
        yield fake


async def _ready(fake: FakeWorld, count: int) -> int:
    return sum([await fake.world.is_ready(f"web{number}") for number in range(count)])


@pytest.mark.parametrize("answers", [0, 503])
@pytest.mark.parametrize("count", [1, 2, 5, 25])
async def test_all_are_ready_within_thirty_seconds_of_an_outage(
    away: FakeWorld, count: int, answers: int
) -> None:
    away.ca.status_while_away = answers
    for number in range(count):
        await away.issue(f"web{number}", f"web{number}.example.org")
    await away.world.advance(timedelta(seconds=10))
    assert not await _ready(away, count)
    away.ca.is_away = False
    await away.world.advance(timedelta(seconds=30))
    assert await _ready(away, count) == count


@pytest.mark.parametrize("minutes", [1, 5, 30])
async def test_after_a_longer_outage_the_wait_is_a_fraction_of_it(away: FakeWorld, minutes: int) -> None:
    for number in range(25):
        await away.issue(f"web{number}", f"web{number}.example.org")
    await away.world.advance(timedelta(minutes=minutes))
    away.ca.is_away = False
    await away.world.advance(timedelta(minutes=minutes) / 2 + timedelta(seconds=30))
    assert await _ready(away, 25) == 25


async def test_a_probe_is_no_attempt_and_probes_grow_rare(away: FakeWorld) -> None:
    for number in range(25):
        await away.issue(f"web{number}", f"web{number}.example.org")
    before = away.ca.counted()
    await away.world.advance(timedelta(hours=1))
    asked = away.ca.counted() - before
    assert 20 <= asked[Action.DIRECTORY] <= 60
    assert sum(asked.values()) - asked[Action.DIRECTORY] <= 12


async def test_orders_and_challenges_in_flight_go_on_after_an_outage() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.slow.update(f"web{number}.example.org" for number in range(25))
        for number in range(25):
            await fake.issue(f"web{number}", f"web{number}.example.org")
        await fake.world.advance(timedelta(seconds=2))
        fake.ca.is_away = True
        await fake.world.advance(timedelta(minutes=3))
        fake.ca.is_away = False
        for found in fake.ca.authorizations.values():
            fake.ca.decide(found)
        await fake.world.advance(timedelta(minutes=2))
        assert await _ready(fake, 25) == 25
