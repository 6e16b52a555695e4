"""Controllers: the workers that reconcile keys, and their error handling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

import msgspec

from certwright.kube.api.errors import AlreadyExists, ApiError, Conflict, Unreachable
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.throttle import REQUEST_RANK
from certwright.kube.runtime.idle_priority import IdleTurns
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.runtime.wakeups import Wakeups

_log = logging.getLogger(__name__)

# Workers are tasks on one loop and mostly wait for responses; they cost two kilobytes each.
_WORKERS = 16

# A longer Retry-After than this is probably a mistake of the server.
_LONGEST_REST = timedelta(hours=1)


class Result(msgspec.Struct, frozen=True):
    """The result of a reconcile: done until something changes, or until `wake_at`; or low-priority work is
    left for another pass when the process is idle."""

    wake_at: datetime | None = None
    when_idle: bool = False


Reconcile = Callable[[ObjectKey], Awaitable[Result]]
"""Moves the objects of the key one step towards the desired state. MUST be idempotent; may be cancelled; is
never run twice at the same time for the same key."""


class Controller:
    """Reconciles the keys of a work queue with at most `workers` workers, started as needed.

    A reconcile that raises is retried after 1 s, 2 s … 30 s, and not before the server's `Retry-After`.
    Conflicts are routine and not logged; other failures of a key are logged at their 1st, 2nd, 4th, 8th …
    time in a row. An unreachable server is logged once for all keys, until a reconcile succeeds again. `idle`
    reports when the process is idle; controllers that share it do idle work one key at a time.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        queue: WorkQueue[ObjectKey],
        *,
        workers: int = _WORKERS,
        idle: IdleTurns | None = None,
    ) -> None:
        self.name = name
        self.queue = queue
        self.wakeups: Wakeups[ObjectKey] = Wakeups(queue.clock, queue.add)
        self.runs = 0
        self.failures = 0
        self._reconcile = reconcile
        self._workers = workers
        self._idle = idle or IdleTurns(queue.clock)
        self._started = self._free = 0
        self._cut_off = False

    @property
    def idle(self) -> bool:
        """Whether no key is ready or being reconciled; future wake-ups and retries do not count."""
        return self.queue.idle

    async def run(self) -> None:
        """Work until cancelled. Reconciles in progress are cancelled too."""
        try:
            async with asyncio.TaskGroup() as group:
                self._start_worker(group)
        finally:
            await self.wakeups.close()
            await self.queue.close()

    def _start_worker(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._work(group), name=f"{self.name} {self._started}")
        self._started += 1
        self._free += 1

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            key = await self.queue.take()
            self._free -= 1
            # One is always waiting for the next key, up to the limit.
            if not self._free and self._started < self._workers:
                self._start_worker(group)
            REQUEST_RANK.set(self.queue.rank(key))
            try:
                await self._attempt(key)
            finally:
                self.queue.done(key)
            self._free += 1
            # A reconcile that had nothing to write has never waited. Fifty thousand of those in a row, e.g.
            # after a start, would starve all other tasks on this loop.
            if self.queue:
                await asyncio.sleep(0)

    async def _attempt(self, key: ObjectKey) -> None:
        self.runs += 1
        try:
            result = await self._reconcile(key)
        except Exception as error:
            self.failures += 1
            asked_s = error.retry_after_s if isinstance(error, ApiError) else 0
            rest = min(timedelta(seconds=min(asked_s, 1e6)), _LONGEST_REST)
            self._report(key, error, self.queue.failed(key, at_least=rest))
            return
        self._cut_off = False
        self.queue.succeeded(key)
        if result.when_idle:
            self._idle.call(partial(self.queue.add, key))
        if result.wake_at is None:
            self.wakeups.clear(key)
        else:
            self.wakeups.set(key, result.wake_at)

    def _report(self, key: ObjectKey, error: Exception, count: int) -> None:
        if isinstance(error, Conflict | AlreadyExists):
            # The cache was stale; the missing watch event requeues the key, mostly before the retry.
            _log.debug("%s: %s: %s", self.name, key, error)
        elif isinstance(error, Unreachable):
            _log.log(logging.DEBUG if self._cut_off else logging.WARNING, "%s: %s: %s", self.name, key, error)
            self._cut_off = True
        elif count & (count - 1) == 0:
            expected = isinstance(error, ApiError)
            times = f" (failed {count} times in a row)" if count > 1 else ""
            message = str(error) if expected else f"{type(error).__name__}: {error}"
            _log.warning("%s: %s: %s%s", self.name, key, message, times, exc_info=None if expected else error)
