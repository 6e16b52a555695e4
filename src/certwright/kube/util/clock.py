"""Clocks as arguments: the system clock for programs, a clock that tests set by hand.

Nothing below `app` may read the operating system's time; it reads the `Clock` passed to it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The current time, and a way to wait for a later one.

    Implementations MUST return aware datetimes in UTC from `now`, and MUST never let `monotonic` go back.
    `sleep` and `sleep_until` are cancellable; with a time in the past they still yield once to the loop.
    """

    def now(self) -> datetime:
        """The wall-clock time, aware, in UTC, with sub-second precision."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; for measuring and for deadlines."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""

    async def sleep_until(self, moment: datetime) -> None:
        """Return when `now() >= moment`, also if the system clock was set forward during the wait."""


class SystemClock:
    """The operating system's clock."""

    # The system clock shifts against the event loop's after a suspend or when an operator sets it: a long
    # wait is split so that such a jump is noticed within this time.
    _PIECE_S = 30.0

    def now(self) -> datetime:
        """The system time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds of the operating system's monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of monotonic time."""
        await asyncio.sleep(max(0.0, seconds))

    async def sleep_until(self, moment: datetime) -> None:
        """Wait until a system time; notices within 30 s that the clock was set."""
        await asyncio.sleep(0)
        while (left := (moment - self.now()).total_seconds()) > 0:
            piece = min(left, self._PIECE_S)
            await asyncio.sleep(piece)


class TestClock:
    """A clock that stands still until a test moves it.

    `set_now` and `advance` wake sleepers whose deadline has passed, in the order of their deadlines, but do
    not run them: yield to the loop afterwards (`tests/support/world.py` does both).
    """

    __test__ = False  # pytest would collect it as a test class

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._start = start
        self._order = itertools.count()
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The time the test has set."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return (self._now - self._start).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock by `seconds`."""
        # Rounded up: a sleeper woken a fraction of a microsecond early would sleep again forever.
        await self.sleep_until(self._now + timedelta(microseconds=math.ceil(seconds * 1e6)))

    async def sleep_until(self, moment: datetime) -> None:
        """Wait until the test has moved the clock to `moment` or past it."""
        if moment <= self._now:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (moment, next(self._order), future))
        await future

    def next_deadline(self) -> datetime | None:
        """The earliest deadline among the sleepers, or None without sleepers."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def set_now(self, moment: datetime) -> None:
        """Jump to `moment` (also backwards) and wake every sleeper that is due."""
        self._now = moment
        while self._sleepers and self._sleepers[0][0] <= moment:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    def advance(self, delta: timedelta) -> None:
        """Jump forward by `delta`."""
        self.set_now(self._now + delta)
