"""Work queue: each key is in it at most once, and never given to two workers.

Its rules are those of client-go's work queue (`k8s.io/client-go/util/workqueue`).
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from datetime import timedelta
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from certwright.kube.runtime.fair_queue import Turns
from certwright.kube.runtime.wakeups import Delays
from certwright.kube.util.clock import Clock
from certwright.kube.util.durations import doubled

K = TypeVar("K", bound=Hashable)

_RETRY_INTERVAL = timedelta(seconds=1)

STAGE = 64.0
"""Ranks are the same in all queues: work in progress is below one stage, work that begins below two."""

FIRST_RETRY = timedelta(seconds=1)
LONGEST_RETRY = timedelta(seconds=30)


class _Place(NamedTuple):
    rank: float
    turn: int
    number: int


class WorkQueue(Generic[K]):
    """Work queue of keys that are ready, being processed, or delayed.

    A key added while it is processed is queued again when that is done. Keys are returned in the order in
    which they became ready; with `rank`, keys with the lowest rank when added come first, and with `flow`,
    keys of one rank take turns by flow. Keys that `admit` refuses are dropped; while it returns None
    (unknown) it is called again after a second. Of the keys of one `owner` at most `most_per_owner` are
    processed at the same time; the others wait in the queue and keep no other owner's key waiting.
    `first_retry` doubles with every failure up to `longest_retry`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        first_retry: timedelta = FIRST_RETRY,
        longest_retry: timedelta = LONGEST_RETRY,
        rank: Callable[[K], float] | None = None,
        flow: Callable[[K], Hashable] | None = None,
        admit: Callable[[K], bool | None] | None = None,
        owner: Callable[[K], Hashable] | None = None,
        most_per_owner: int = 1,
    ) -> None:
        self.clock = clock
        # The number keeps the order among equals, and prevents a comparison of keys.
        self._ready: list[tuple[_Place, K]] = []
        self._numbers = itertools.count()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._rank = rank
        self._flow = flow
        self._turns: defaultdict[float, Turns] = defaultdict(Turns)
        self._admit = admit
        self._queued: dict[K, _Place] = {}
        self._working: set[K] = set()
        self._owner = owner
        self._most_per_owner = most_per_owner
        self._working_of: Counter[Hashable] = Counter()
        self._parked: dict[Hashable, list[tuple[_Place, K]]] = {}
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._first_retry = first_retry
        self._longest_retry = longest_retry
        self._delays: Delays[K] = Delays(clock, self.add)

    def __len__(self) -> int:
        """The number of ready keys."""
        return len(self._queued)

    @property
    def idle(self) -> bool:
        """Whether no key is ready or being processed. Delayed keys do not count."""
        return not self._queued and not self._working

    @property
    def waiting(self) -> int:
        """The number of delayed keys."""
        return len(self._delays)

    def add(self, key: K) -> None:
        """Enqueue the key for the next free worker."""
        if self._admit is not None and not (admitted := self._admit(key)):
            if admitted is None:
                self._delays.start(key, _RETRY_INTERVAL)
        elif key in self._working:
            self._again.add(key)
        else:
            self._enqueue(key)

    def _enqueue(self, key: K) -> None:
        there = self._queued.get(key)
        if there is not None and self._rank is None:
            return
        rank = self.rank(key)
        if there is None or rank < there.rank:
            turn = self._turns[rank].next(self._flow(key)) if self._flow is not None else 0
            place = self._queued[key] = _Place(rank, turn, next(self._numbers))
            heappush(self._ready, (place, key))
            self._wake_next()

    def rank(self, key: K) -> float:
        """The present rank of the key; 0 without ranks."""
        return self._rank(key) if self._rank is not None else 0.0

    def add_after(self, key: K, delay: timedelta) -> None:
        """Add the key after `delay`; of several delays the one that ends first counts."""
        if delay <= timedelta(0):
            self.add(key)
        else:
            self._delays.start(key, delay)

    async def take(self) -> K:
        """The next key, when there is one. The worker that takes it MUST call `done`."""
        while True:
            while self._ready:
                place, key = heappop(self._ready)
                # A key that has moved up is still in its former place as well.
                if self._queued.get(key) is place and not self._is_parked(key, place):
                    self._give(key, place)
                    return key
            await self._news()

    def _is_parked(self, key: K, place: _Place) -> bool:
        """Whether the key has to wait because so many of its owner are being processed."""
        if self._owner is None:
            return False
        owner = self._owner(key)
        if self._working_of[owner] < self._most_per_owner:
            self._working_of[owner] += 1
            return False
        heappush(self._parked.setdefault(owner, []), (place, key))
        return True

    def _unpark(self, owner: Hashable) -> None:
        """One key fewer of this owner is processed: its next one is ready."""
        self._working_of[owner] -= 1
        if not self._working_of[owner]:
            del self._working_of[owner]
        parked = self._parked.get(owner)
        while parked:
            place, key = heappop(parked)
            if self._queued.get(key) is place:
                heappush(self._ready, (place, key))
                self._wake_next()
                return
        self._parked.pop(owner, None)

    def _give(self, key: K, place: _Place) -> None:
        del self._queued[key]
        if self._flow is not None:
            self._turns[place.rank].taken(place.turn)
        self._working.add(key)

    async def _news(self) -> None:
        """Return when a key has become ready, unless earlier waiters can take it."""
        woken = asyncio.get_running_loop().create_future()
        self._takers.append(woken)
        try:
            await woken
        except asyncio.CancelledError:
            if woken.cancelled():
                # A key that became ready since the cancellation has removed it already.
                with suppress(ValueError):
                    self._takers.remove(woken)
            else:
                # Woken for a key that another waiter must take now.
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._takers:
            if not (taker := self._takers.popleft()).done():
                taker.set_result(None)
                return

    def done(self, key: K) -> None:
        """The work on this key has ended, successfully or not."""
        self._working.discard(key)
        if self._owner is not None:
            self._unpark(self._owner(key))
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def failed(self, key: K, *, at_least: timedelta = timedelta(0)) -> int:
        """Requeue the key with backoff; returns how often it has failed in a row."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, max(at_least, self.retry_delay(key, count)))
        return count

    def succeeded(self, key: K) -> None:
        """Reset the failure count of the key."""
        self._failures.pop(key, None)

    def retry_delay(self, key: K, failures: int) -> timedelta:
        """The backoff after that many failures in a row. Up to a tenth less than the doubled time, by an
        amount that depends on the key, so that keys that failed together are not retried together."""
        spread = zlib.crc32(repr(key).encode()) / 2**32
        return doubled(self._first_retry, failures, cap=self._longest_retry) * (1 - spread / 10)

    async def close(self) -> None:
        """Drop the delayed keys."""
        await self._delays.close()
