"""Work queue: each key is in it at most once, and never given to two workers.

The rules are those of client-go's work queue (`k8s.io/client-go/util/workqueue`).
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from datetime import timedelta
from typing import Generic, TypeVar

from certwright.kube.runtime.wakeups import Delays
from certwright.kube.util.clock import Clock
from certwright.kube.util.durations import doubled
from certwright.kube.util.fair_queue import FairQueue

K = TypeVar("K", bound=Hashable)

_RETRY_INTERVAL = timedelta(seconds=1)

STAGE = 64.0
"""Ranks are the same in all queues: work in progress is below one stage, work that begins below two."""

FIRST_RETRY = timedelta(seconds=1)
LONGEST_RETRY = timedelta(seconds=30)


class WorkQueue(Generic[K]):
    """Work queue of keys that are ready, being processed, or delayed.

    A key added during its processing is queued again afterwards. Keys are returned in the order in which they
    became ready. With `rank`, keys with the lowest rank at their addition come first; with `flow`, flows of
    one rank take turns, and so do their parts (e.g. a namespace, and an issuer in it). At most
    `most_per_flow` keys of a flow (its first part) are processed at the same time; the rest waits without
    delaying other flows. Keys that `admit` refuses are dropped; while it returns None (unknown) it is called
    again after a second. `first_retry` doubles with every failure up to `longest_retry`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        first_retry: timedelta = FIRST_RETRY,
        longest_retry: timedelta = LONGEST_RETRY,
        rank: Callable[[K], float] | None = None,
        flow: Callable[[K], tuple[Hashable, ...]] | None = None,
        admit: Callable[[K], bool | None] | None = None,
        most_per_flow: int | None = None,
    ) -> None:
        self.clock = clock
        self.most_per_flow = most_per_flow
        # A key that is being processed counts as running in it.
        self._ready: FairQueue[K] = FairQueue(per_flow=most_per_flow or math.inf)
        self._takers: deque[asyncio.Future[None]] = deque()
        self._rank = rank
        self._flow = flow
        self._admit = admit
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._first_retry = first_retry
        self._longest_retry = longest_retry
        self._delays: Delays[K] = Delays(clock, self.add)

    def __len__(self) -> int:
        """The number of ready keys."""
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Whether no key is ready or being processed. Delayed keys do not count."""
        return not self._ready and not self._ready.running

    @property
    def waiting(self) -> int:
        """The number of delayed keys."""
        return len(self._delays)

    def add(self, key: K) -> None:
        """Enqueue the key for the next free worker."""
        if self._admit is not None and not (admitted := self._admit(key)):
            if admitted is None:
                self._delays.start(key, _RETRY_INTERVAL)
        elif self._ready.is_running(key):
            self._again.add(key)
        else:
            self._ready.add(
                key, *(self._flow(key) if self._flow is not None else ()), priority=self.rank(key)
            )
            self._wake_next()

    def rank(self, key: K) -> float:
        """The present rank of the key; 0 without ranks."""
        return self._rank(key) if self._rank is not None else 0.0

    def add_after(self, key: K, delay: timedelta) -> None:
        """Add the key after `delay`; of several delays the first to end counts."""
        if delay <= timedelta(0):
            self.add(key)
        else:
            self._delays.start(key, delay)

    async def take(self) -> K:
        """Wait for the next key. The worker MUST call `done` with it."""
        while (key := self._ready.pop()) is None:
            await self._news()
        return key

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
        self._ready.done(key)
        if self._ready:  # keys that waited because so many of their flow were being processed
            self._wake_next()
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
        """The backoff after that many failures in a row: the doubled delay, minus up to a tenth that depends
        on the key, so that keys that failed together are not retried together."""
        spread = zlib.crc32(repr(key).encode()) / 2**32
        return doubled(self._first_retry, failures, cap=self._longest_retry) * (1 - spread / 10)

    async def close(self) -> None:
        """Drop the delayed keys."""
        await self._delays.close()
