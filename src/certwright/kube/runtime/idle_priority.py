"""Idle priority: calls that are made when the event loop has nothing better to do.

Under load the one event loop is the bottleneck. Idleness is measured on the loop itself: a turn without work
takes some microseconds.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from functools import partial

from certwright.kube.util.clock import Clock

AT_MOST_S = 5.0
"""Seconds that a call waits on a loop that is never idle."""

# A turn of an idle loop takes 5 to 50 µs, one write to the API server in the same process some 200 µs.
_IDLE_TURN_S = 0.000_1


class IdleTurns:
    """Makes one call in each idle turn of the event loop, and in every turn those whose deadline has passed.
    On an idle loop each is made immediately. MUST be used on the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The number keeps the order among equals, and prevents a comparison of calls.
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._is_watching = False

    def call(self, what: Callable[[], None], *, at_most_s: float = AT_MOST_S) -> None:
        """Make the call when the loop is idle, or after `at_most_s` seconds."""
        due = self._clock.monotonic() + at_most_s
        heapq.heappush(self._waiting, (due, next(self._numbers), what))
        if not self._is_watching:
            # The rest of this turn cannot be measured.
            self._observe_turn(-math.inf)

    async def wait(self, *, at_most_s: float = AT_MOST_S) -> None:
        """Return when the loop is idle, or after `at_most_s` seconds."""
        moment = asyncio.get_running_loop().create_future()
        self.call(partial(_end, moment), at_most_s=at_most_s)
        await moment

    def hurry(self) -> None:
        """Make all waiting calls as soon as possible."""
        while self._waiting:
            self._wake_next()

    def close(self) -> None:
        """Drop the waiting calls."""
        self._waiting.clear()

    def _observe_turn(self, began: float) -> None:
        self._is_watching = True
        asyncio.get_running_loop().call_soon(self._end_turn, began)

    def _end_turn(self, began: float) -> None:
        now = self._clock.monotonic()
        if self._waiting and now - began < _IDLE_TURN_S:
            self._wake_next()
        while self._waiting and self._waiting[0][0] <= now:
            self._wake_next()
        if self._waiting:
            self._observe_turn(now)
        else:
            self._is_watching = False

    def _wake_next(self) -> None:
        # Not called directly: its exception must not reach the other calls.
        asyncio.get_running_loop().call_soon(heapq.heappop(self._waiting)[2])


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)
