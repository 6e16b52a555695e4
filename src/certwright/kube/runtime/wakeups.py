"""Alarms: call a function for a key at a given time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from certwright.kube.util.clock import Clock


class _Moment(Protocol):
    def __lt__(self, other: Any, /) -> bool:
        """Whether this is earlier."""


K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=_Moment)


class _Alarms(Generic[K, M]):
    """One alarm per key, one task for all of them; M is a point on whatever scale `now` reads."""

    def __init__(
        self, now: Callable[[], M], sleep_until: Callable[[M], Awaitable[None]], ring: Callable[[K], None]
    ) -> None:
        self._now = now
        self._sleep_until = sleep_until
        self._ring = ring
        # The number prevents a comparison of keys. Both containers share the same tuples: there is one for
        # every object.
        self._set: dict[K, tuple[M, int, K]] = {}
        self._heap: list[tuple[M, int, K]] = []
        self._order = itertools.count()
        self._task: asyncio.Task[None] | None = None
        self._awaited: M | None = None
        self._ringing = False

    def __len__(self) -> int:
        return len(self._set)

    def moment(self, key: K) -> M | None:
        """The time of the key's call, or None."""
        entry = self._set.get(key)
        return entry[0] if entry else None

    def set(self, key: K, moment: M) -> None:
        """Call at `moment`, replacing the key's former one."""
        entry = self._set.get(key)
        if entry is not None and entry[0] == moment:
            return
        entry = self._set[key] = (moment, next(self._order), key)
        heapq.heappush(self._heap, entry)
        self._sweep()
        # During a call the task reads the heap again before it sleeps.
        if not self._ringing and (self._awaited is None or moment < self._awaited):
            if self._task is not None:
                self._task.cancel()
            self._awaited = self._heap[0][0]
            self._task = asyncio.get_running_loop().create_task(self._run(), name="wake-ups")

    def clear(self, key: K) -> None:
        """Cancel the key's call."""
        # Its heap entry is recognised as stale when it comes up.
        self._set.pop(key, None)
        self._sweep()

    def _sweep(self) -> None:
        # Stale entries must not pile up until their time comes, which may be in years.
        if len(self._heap) <= 2 * len(self._set) + 64:
            return
        self._heap = list(self._set.values())
        heapq.heapify(self._heap)

    async def _run(self) -> None:
        while self._heap:
            self._awaited = self._heap[0][0]
            await self._sleep_until(self._awaited)
            self._ringing = True
            self._ring_due()
            self._ringing = False
        self._awaited = self._task = None

    def _ring_due(self) -> None:
        now = self._now()
        while self._heap and not now < self._heap[0][0]:
            entry = heapq.heappop(self._heap)
            key = entry[2]
            if self._set.get(key) is entry:
                del self._set[key]
                self._ring(key)

    async def close(self) -> None:
        """Drop all alarms."""
        task, self._task, self._awaited = self._task, None, None
        self._set.clear()
        self._heap.clear()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Wakeups(_Alarms[K, datetime]):
    """Calls `add(key)` when the system clock reaches the moment set for the key; the latest `set` counts.

    A moment in the past calls it as soon as the loop is free. Also correct when the clock is set forward.
    """

    def __init__(self, clock: Clock, add: Callable[[K], None]) -> None:
        super().__init__(clock.now, clock.sleep_until, add)


class Delays(_Alarms[K, float]):
    """Calls `add(key)` after a delay on the monotonic clock, which setting the system clock does not change;
    of several delays for a key the first to end counts."""

    def __init__(self, clock: Clock, add: Callable[[K], None]) -> None:
        super().__init__(clock.monotonic, lambda moment: clock.sleep(moment - clock.monotonic()), add)

    def start(self, key: K, delay: timedelta) -> None:
        """Call after `delay`, if not earlier."""
        # Whole microseconds: otherwise a clock with that resolution would stop just before the moment.
        moment = round(self._now() + delay.total_seconds(), 6)
        earlier = self.moment(key)
        if earlier is None or moment < earlier:
            self.set(key, moment)
