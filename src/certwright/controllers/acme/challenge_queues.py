"""The two queues of Challenges: for a slot at the CA, and for a self-check."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

import msgspec

from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.fair_queue import FairQueue

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_log = logging.getLogger(__name__)


class SlotRequest(msgspec.Struct, frozen=True):
    """A challenge of an `order` that requests a slot. `subject` is what must not be validated twice at the
    same time."""

    key: ObjectKey
    order: str
    subject: tuple[str, str]


class ValidationSlots:
    """Slots for challenges under validation: limits how many are with the CA, and never admits two of one
    name and type together.

    A challenge occupies a slot only while the CA validates it, not while its self-check fails. Waiting
    challenges take turns by namespace, then by order, so that a large order delays no other order. A
    namespace never occupies all slots, because a tenant's slow names must not keep other tenants waiting.

    `most` slots in all, `most_per_namespace` of one namespace (0: nine tenths of `most`). `granted` is called
    with the key of a challenge that gets a slot after a wait.
    """

    def __init__(
        self, most: int, granted: Callable[[ObjectKey], None], *, most_per_namespace: int = 0
    ) -> None:
        self._granted = granted
        self._queue: FairQueue[ObjectKey] = FairQueue(
            most, per_flow=most_per_namespace or max(1, most - most // 10)
        )
        self._requests: dict[ObjectKey, SlotRequest] = {}
        self._holders: dict[tuple[str, str], ObjectKey] = {}  # by subject
        self._blocked: dict[tuple[str, str], list[ObjectKey]] = {}  # not in the queue while another has it

    def __len__(self) -> int:
        """How many slots are in use."""
        return len(self._holders)

    def acquire(self, request: SlotRequest) -> bool:
        """Whether it has a slot now. A challenge without one waits until `granted` is called, or gives up."""
        if request.key not in self._requests:
            self._requests[request.key] = request
            self._enqueue(request)
        self._hand_out(reported=request.key)
        return self._queue.is_running(request.key)

    def release(self, key: ObjectKey) -> None:
        """Release the slot of a challenge, or its place in the queue. Idempotent."""
        request = self._requests.pop(key, None)
        if request is None:
            return
        self._queue.done(key)
        if self._holders.get(request.subject) == key:
            del self._holders[request.subject]
            for blocked in self._blocked.pop(request.subject, ()):
                self._enqueue(self._requests[blocked])
        elif key in (others := self._blocked.get(request.subject, [])):
            others.remove(key)
        self._hand_out(reported=None)

    def _enqueue(self, request: SlotRequest) -> None:
        if request.subject in self._holders:
            self._blocked.setdefault(request.subject, []).append(request.key)
        else:
            self._queue.add(request.key, request.key.namespace, request.order)

    def _hand_out(self, *, reported: ObjectKey | None) -> None:
        """`reported`: the current caller gets its slot as the result."""
        while (key := self._queue.pop()) is not None:
            request = self._requests[key]
            if request.subject in self._holders:
                self._queue.done(key)
                self._enqueue(request)
                continue
            self._holders[request.subject] = key
            if key != reported:
                self._granted(key)


class _Check(msgspec.Struct, Generic[K, T], eq=False):
    """A waiting or running self-check, and its queue."""

    key: K
    run: Callable[[], Awaitable[T]]
    queue: FairQueue[_Check[K, T]]


class SelfChecks(Generic[K, T]):
    """A queue of self-checks, of which at most `most` run at the same time. `done` is called with the key of
    an ended self-check; `pop` returns its result.

    The self-check of a dead name takes its whole timeout. Self-checks are therefore no part of a reconcile,
    and dead names never delay live ones: first self-checks go first, and at most three quarters of `most` are
    repetitions, for which a quarter is reserved while they wait. Flows take turns, and within a flow the
    numbers of attempts.
    """

    def __init__(self, most: int, done: Callable[[K], None]) -> None:
        self._most = most
        self._done = done
        self._first: FairQueue[_Check[K, T]] = FairQueue()
        self._later: FairQueue[_Check[K, T]] = FairQueue()
        self._waiting: dict[K, _Check[K, T]] = {}
        self._results: dict[K, T] = {}
        self._running: dict[K, asyncio.Task[None]] = {}

    @property
    def idle(self) -> bool:
        """Whether no self-check runs or waits."""
        return not self._running and not self._waiting

    def is_active(self, key: K) -> bool:
        """Whether a self-check for the key runs or waits."""
        return key in self._waiting or key in self._running

    def start(self, key: K, run: Callable[[], Awaitable[T]], *, attempt: int, flow: Hashable = "") -> None:
        """Enqueue a self-check, unless one for this key runs or waits. `attempt` counts from 0."""
        if self.is_active(key):
            return
        self._results.pop(key, None)
        queue = self._later if attempt else self._first
        check = self._waiting[key] = _Check(key, run, queue)
        queue.add(check, flow, attempt)
        self._fill()

    def peek(self, key: K) -> T | None:
        """The result of an ended self-check, until `pop` removes it."""
        return self._results.get(key)

    def pop(self, key: K) -> T | None:
        """The result of a self-check that has ended, once."""
        return self._results.pop(key, None)

    def forget(self, key: K) -> None:
        """Cancel the self-check, because its result is no longer needed."""
        self._results.pop(key, None)
        if (check := self._waiting.pop(key, None)) is not None:
            check.queue.done(check)
        if (task := self._running.pop(key, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all self-checks."""
        tasks = list(self._running.values())
        for key in (*self._waiting, *self._running):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fill(self) -> None:
        share = max(1, self._most * 3 // 4)
        while self._first.running + self._later.running < self._most:
            may_repeat = bool(self._later) and self._later.running < share
            self._first.capacity = share if may_repeat else self._most
            check = self._first.pop() or (self._later.pop() if may_repeat else None)
            if check is None:
                return
            del self._waiting[check.key]
            task = asyncio.get_running_loop().create_task(self._run(check), name=f"check for {check.key}")
            self._running[check.key] = task
            # Not in `_run`, which a self-check forgotten before its start never reaches.
            task.add_done_callback(partial(self._ended, check))

    async def _run(self, check: _Check[K, T]) -> None:
        try:
            self._results[check.key] = await check.run()
        except asyncio.CancelledError:
            raise
        except Exception:
            # A check must not raise; one that does must not end looking for good.
            _log.exception("self-check of %s failed", check.key)

    def _ended(self, check: _Check[K, T], task: asyncio.Task[None]) -> None:
        check.queue.done(check)
        if self._running.get(check.key) is task:
            del self._running[check.key]
            self._done(check.key)
        self._fill()
