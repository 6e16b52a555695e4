import asyncio
from datetime import UTC, datetime, timedelta

from certwright.kube.util.clock import SystemClock, TestClock
from support.waiting import turns

START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_sleeper_wakes_when_the_test_moves_the_clock_past_its_deadline() -> None:
    clock = TestClock(START)
    task = asyncio.create_task(clock.sleep(32 * 3600))
    await turns(5)
    clock.advance(timedelta(hours=31))
    await turns(5)
    assert not task.done()
    clock.advance(timedelta(hours=1))
    await turns(5)
    assert task.done()


async def test_sleepers_wake_in_the_order_of_their_deadlines() -> None:
    clock = TestClock(START)
    woken: list[int] = []

    async def sleeper(hours: int) -> None:
        await clock.sleep(hours * 3600)
        woken.append(hours)

    tasks = [asyncio.create_task(sleeper(hours)) for hours in (3, 1, 2)]
    await turns(5)
    clock.advance(timedelta(hours=5))
    await asyncio.gather(*tasks)
    assert woken == [1, 2, 3]


async def test_the_next_deadline_skips_sleepers_that_were_cancelled() -> None:
    clock = TestClock(START)
    soon = asyncio.create_task(clock.sleep(1))
    later = asyncio.create_task(clock.sleep(2))
    await turns(5)
    soon.cancel()
    await turns(5)
    assert clock.next_deadline() == START + timedelta(seconds=2)
    later.cancel()
    await turns(5)
    assert clock.next_deadline() is None


async def test_a_moment_in_the_past_still_lets_others_run() -> None:
    for clock in (TestClock(START), SystemClock()):
        ran: list[str] = []
        task = asyncio.create_task(_note(ran))
        await clock.sleep_until(clock.now() - timedelta(hours=1))
        assert ran == ["other"]
        await task


async def _note(ran: list[str]) -> None:
    ran.append("other")


def test_the_system_clock_is_aware_and_its_monotonic_time_never_goes_back() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    first = clock.monotonic()
    assert clock.monotonic() >= first


class SleptClock(SystemClock):
    """The operating system's clock of a machine that was asleep for ten days while somebody waited."""

    _PIECE_S = 0.01

    def __init__(self) -> None:
        self.slept = timedelta(0)

    def now(self) -> datetime:
        """The wall clock went on; the monotonic clock, by which the event loop sleeps, did not."""
        return super().now() + self.slept


async def test_whoever_waits_for_a_moment_notices_that_the_machine_was_asleep() -> None:
    clock = SleptClock()
    waiting = asyncio.create_task(clock.sleep_until(clock.now() + timedelta(days=9)))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    clock.slept = timedelta(days=10)
    await asyncio.wait_for(waiting, timeout=60)
