"""Self-checks: many concurrently, and dead names never before live ones.

A self-check of a name that does not answer takes its whole timeout. So self-checks are no part of a
reconcile, but have workers of their own. First self-checks go first, and at most three quarters of the
workers repeat one; but where repetitions wait, a quarter is reserved for them. Flows take turns; within a
flow, the fewest attempts go first, and of those the newest and the oldest take turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_log = logging.getLogger(__name__)


class _Check(msgspec.Struct, Generic[K, T], frozen=True):
    key: K
    check: Callable[[], Awaitable[T]]
    attempt: int
    flow: Hashable


class _Lane(Generic[K, T]):
    """A queue of self-checks."""

    def __init__(self) -> None:
        # By flow, the next to be asked in front, and by attempt.
        self._flows: OrderedDict[Hashable, dict[int, deque[_Check[K, T]]]] = OrderedDict()
        self._newest = True

    def __bool__(self) -> bool:
        return bool(self._flows)

    def add(self, check: _Check[K, T]) -> None:
        """One more."""
        self._flows.setdefault(check.flow, {}).setdefault(check.attempt, deque()).append(check)

    def pop(self) -> _Check[K, T]:
        """The next; its flow goes to the end."""
        flow, queues = self._flows.popitem(last=False)
        attempt = min(queues)
        queue = queues[attempt]
        self._newest = not self._newest
        check = queue.pop() if self._newest else queue.popleft()
        if not queue:
            del queues[attempt]
        if queues:
            self._flows[flow] = queues
        return check

    def clear(self) -> None:
        """None waits any more."""
        self._flows.clear()


class Checks(Generic[K, T]):
    """At most `most` concurrent self-checks. `done` is called with the key when one has ended; its result
    waits in `take`."""

    def __init__(self, most: int, done: Callable[[K], None]) -> None:
        self._most = most
        self._share = max(1, most * 3 // 4)
        self._again = 0
        self._done = done
        self._first_checks: _Lane[K, T] = _Lane()
        self._later_checks: _Lane[K, T] = _Lane()
        self._pending: set[K] = set()
        self._results: dict[K, T] = {}
        self._running: dict[K, asyncio.Task[None]] = {}

    @property
    def idle(self) -> bool:
        """Whether no self-check runs or waits."""
        return not self._running and not self._pending

    def is_active(self, key: K) -> bool:
        """Whether a self-check for the key runs or waits."""
        return key in self._pending or key in self._running

    def start(
        self, key: K, check: Callable[[], Awaitable[T]], *, attempt: int, flow: Hashable = None
    ) -> None:
        """Enqueue a self-check, unless one for this key runs or waits. `attempt` counts from 0."""
        if self.is_active(key):
            return
        self._results.pop(key, None)
        self._pending.add(key)
        lane = self._later_checks if attempt else self._first_checks
        lane.add(_Check(key, check, attempt, flow))
        self._fill()

    def peek(self, key: K) -> T | None:
        """The result of a self-check that has ended, until it is taken."""
        return self._results.get(key)

    def pop(self, key: K) -> T | None:
        """The result of a self-check that has ended, once."""
        return self._results.pop(key, None)

    def forget(self, key: K) -> None:
        """Cancel the self-check, because its result is no longer needed."""
        self._pending.discard(key)
        self._results.pop(key, None)
        if (task := self._running.pop(key, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all self-checks."""
        tasks = list(self._running.values())
        self._running.clear()
        self._pending.clear()
        self._first_checks.clear()
        self._later_checks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fill(self) -> None:
        while len(self._running) < self._most and (check := self._next()) is not None:
            self._pending.discard(check.key)
            self._again += check.attempt > 0
            task = asyncio.get_running_loop().create_task(self._run(check), name=f"check for {check.key}")
            self._running[check.key] = task
            # Not in `_run`: one that is forgotten before it has begun never gets there.
            task.add_done_callback(partial(self._ended, check))

    def _next(self) -> _Check[K, T] | None:
        while (lane := self._lane()) is not None:
            check = lane.pop()
            # One that was forgotten while it waited is still in the queue.
            if check.key in self._pending:
                return check
        return None

    def _lane(self) -> _Lane[K, T] | None:
        again = self._later_checks if self._later_checks and self._again < self._share else None
        first = len(self._running) - self._again
        if self._first_checks and (again is None or first < self._share):
            return self._first_checks
        return again

    async def _run(self, check: _Check[K, T]) -> None:
        try:
            self._results[check.key] = await check.check()
        except asyncio.CancelledError:
            raise
        except Exception:
            # A check must not raise; one that does must not end looking for good.
            _log.exception("self-check of %s failed", check.key)

    def _ended(self, check: _Check[K, T], task: asyncio.Task[None]) -> None:
        self._again -= check.attempt > 0
        if self._running.get(check.key) is task:
            del self._running[check.key]
            self._done(check.key)
        self._fill()
