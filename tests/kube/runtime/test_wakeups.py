from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.runtime.wakeups import Delays, Wakeups
from certwright.kube.util.clock import TestClock
from support.waiting import turns


class Alarm:
    """Wake-ups, and who was woken."""

    def __init__(self) -> None:
        self.clock = TestClock()
        self.start = self.clock.now()
        self.woken: list[str] = []
        self.wakeups: Wakeups[str] = Wakeups(self.clock, self.woken.append)

    def set(self, key: str, minutes: float) -> None:
        self.wakeups.set(key, self.start + timedelta(minutes=minutes))

    async def at(self, minutes: float) -> list[str]:
        """Who is woken when the clock shows this."""
        await turns()
        self.clock.set_now(self.start + timedelta(minutes=minutes))
        await turns()
        woken = list(self.woken)
        self.woken.clear()
        return woken


@pytest.fixture
async def alarm() -> AsyncIterator[Alarm]:
    alarm = Alarm()
    yield alarm
    await alarm.wakeups.close()


async def test_each_is_woken_at_its_time(alarm: Alarm) -> None:
    alarm.set("late", 30)
    alarm.set("early", 10)
    alarm.set("middle", 20)
    assert await alarm.at(9) == []
    assert await alarm.at(10) == ["early"]
    assert await alarm.at(60) == ["middle", "late"]
    assert len(alarm.wakeups) == 0


async def test_the_latest_setting_counts_earlier_or_later(alarm: Alarm) -> None:
    alarm.set("a", 10)
    alarm.set("a", 30)
    alarm.set("b", 30)
    alarm.set("b", 5)
    assert await alarm.at(10) == ["b"]
    assert await alarm.at(30) == ["a"]


async def test_what_was_cleared_does_not_ring(alarm: Alarm) -> None:
    alarm.set("a", 10)
    alarm.wakeups.clear("a")
    alarm.wakeups.clear("never set")
    assert await alarm.at(60) == []


async def test_the_past_rings_at_once(alarm: Alarm) -> None:
    alarm.set("a", -5)
    await turns()
    assert alarm.woken == ["a"]


async def test_it_can_be_set_again_after_it_rang(alarm: Alarm) -> None:
    alarm.set("a", 1)
    assert await alarm.at(1) == ["a"]
    alarm.set("a", 2)
    assert await alarm.at(2) == ["a"]


async def test_one_that_rings_may_set_the_next() -> None:
    clock = TestClock()
    woken: list[str] = []

    def ring(key: str) -> None:
        woken.append(key)
        if len(woken) < 4:
            wakeups.set("past", clock.now() - timedelta(days=len(woken)))

    wakeups: Wakeups[str] = Wakeups(clock, ring)
    wakeups.set("first", clock.now())
    await turns()
    assert woken == ["first", "past", "past", "past"]
    await wakeups.close()


async def test_settings_that_were_replaced_do_not_pile_up(alarm: Alarm) -> None:
    for number in range(10_000):
        alarm.set("a", number + 1)
        alarm.wakeups.clear("a")
    assert len(alarm.wakeups._heap) < 200
    for number in range(10_000):
        alarm.set("a", number + 1)
    assert len(alarm.wakeups._heap) < 200


async def test_of_several_delays_the_first_to_end_counts() -> None:
    clock = TestClock()
    woken: list[str] = []
    delays: Delays[str] = Delays(clock, woken.append)
    delays.start("a", timedelta(seconds=10))
    delays.start("a", timedelta(seconds=5))
    delays.start("a", timedelta(seconds=20))
    await turns()
    clock.advance(timedelta(seconds=5))
    await turns()
    clock.advance(timedelta(seconds=60))
    await turns()
    assert woken == ["a"]
    await delays.close()


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=5))
def test_a_delay_of_any_number_of_microseconds_ends(micros: list[int]) -> None:
    async def run() -> None:
        clock = TestClock()
        woken: list[int] = []
        delays: Delays[int] = Delays(clock, woken.append)
        for number, micro in enumerate(micros):
            delays.start(number, timedelta(microseconds=micro))
            await turns()
            moment = clock.next_deadline()
            assert moment is not None
            clock.set_now(moment)
            await turns()
            assert woken[-1] == number
        await delays.close()

    asyncio.run(run())
