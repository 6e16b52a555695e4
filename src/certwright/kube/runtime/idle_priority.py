"""What can wait gives way to what cannot: calls that are made when the event loop has nothing better to do.

Where many things are to be done at once, the one event loop is what they all wait for. That it has a moment
is read off the loop itself: a turn in which nobody had anything to do takes some microseconds.
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
"""Seconds that something waits on a loop that never has a moment."""

# A turn of an idle loop takes 5 to 50 µs, one write to the API server in the same process some 200 µs.
_IDLE_TURN_S = 0.000_1


class IdleTurns:
    """Makes one call in each idle turn of the event loop, and in every turn those whose time is up. On a loop
    that is not busy each is made at once. MUST be used on the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The number keeps the order among equals, and calls from being compared.
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._is_watching = False

    def call(self, what: Callable[[], None], *, at_most_s: float = AT_MOST_S) -> None:
        """Make the call when there is a moment, or after `at_most_s` seconds."""
        due = self._clock.monotonic() + at_most_s
        heapq.heappush(self._waiting, (due, next(self._numbers), what))
        if not self._is_watching:
            # What is left of this turn tells nothing.
            self._look_at_turn(-math.inf)

    async def wait(self, *, at_most_s: float = AT_MOST_S) -> None:
        """Return when there is a moment, or after `at_most_s` seconds."""
        moment = asyncio.get_running_loop().create_future()
        self.call(partial(_end, moment), at_most_s=at_most_s)
        await moment

    def hurry(self) -> None:
        """Make all calls that wait as soon as may be."""
        while self._waiting:
            self._let_go()

    def close(self) -> None:
        """Forget what waits."""
        self._waiting.clear()

    def _look_at_turn(self, began: float) -> None:
        self._is_watching = True
        asyncio.get_running_loop().call_soon(self._end_turn, began)

    def _end_turn(self, began: float) -> None:
        now = self._clock.monotonic()
        if self._waiting and now - began < _IDLE_TURN_S:
            self._let_go()
        while self._waiting and self._waiting[0][0] <= now:
            self._let_go()
        if self._waiting:
            self._look_at_turn(now)
        else:
            self._is_watching = False

    def _let_go(self) -> None:
        # Not called here: what it raises is nobody's else.
        asyncio.get_running_loop().call_soon(heapq.heappop(self._waiting)[2])


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)
