"""Executors: run CPU-bound work without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs a function that does no I/O and shares no state; returns its result or raises its exception.

    Work of different flows (e.g. namespaces) takes turns, so that one with much work does not delay others.
    """

    async def run(self, work: Callable[[], T], flow: Hashable) -> T:
        """The result of `work()`. `flow` has no default: work of a namespace in a common flow would delay
        that of others."""


class _Job(NamedTuple):
    work: Callable[[], Any]
    result: Future[Any]


class Threads:
    """Thread pool for work that releases the GIL for more than a millisecond.

    One flow occupies at most `workers` threads (default: one per processor). There is one thread more than
    that, so that a short job does not wait for the long ones of another flow. Each thread is started on
    demand. At exit the interpreter waits for running work.
    """

    def __init__(self, workers: int | None = None, *, name: str = "executor") -> None:
        self._most_per_flow = workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._most_per_flow + 1, thread_name_prefix=name)
        self._lock = threading.Lock()
        # The flow whose turn it is comes first.
        self._waiting: OrderedDict[Hashable, deque[_Job]] = OrderedDict()
        self._running: Counter[Hashable] = Counter()

    async def run(self, work: Callable[[], T], flow: Hashable) -> T:
        """The result of `work()`, computed in a thread; a cancelled caller leaves the thread to finish.
        Raises `RuntimeError` after `close`."""
        # Not in a variable: an error that passes here refers to this frame, and would so refer to itself.
        return await asyncio.wrap_future(self._submit(work, flow))

    def _submit(self, work: Callable[[], T], flow: Hashable) -> Future[T]:
        result: Future[T] = Future()
        with self._lock:
            self._pool.submit(self._work_off)
            self._waiting.setdefault(flow, deque()).append(_Job(work, result))
        return result

    def _work_off(self) -> None:
        """Run jobs, in a thread, until none is left that may run now."""
        while (taken := self._claim_job()) is not None:
            flow, job = taken
            _complete(job)
            # Not held while this thread waits for its next job.
            del taken, job
            with self._lock:
                self._running[flow] -= 1
                if not self._running[flow]:
                    del self._running[flow]

    def _claim_job(self) -> tuple[Hashable, _Job] | None:
        with self._lock:
            for flow in self._waiting:
                if self._running[flow] < self._most_per_flow:
                    return flow, self._next_of(flow)
        return None

    def _next_of(self, flow: Hashable) -> _Job:
        jobs = self._waiting[flow]
        job = jobs.popleft()
        if jobs:
            self._waiting.move_to_end(flow)
        else:
            del self._waiting[flow]
        self._running[flow] += 1
        return job

    def close(self) -> None:
        """Drop the work that has not started; do not wait for running work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            dropped = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
        for job in dropped:
            job.result.cancel()

    def join(self) -> None:
        """Wait for running work; after `close`."""
        self._pool.shutdown()


def _complete(job: _Job) -> None:
    if not job.result.set_running_or_notify_cancel():
        return
    try:
        value = job.work()
    # Whatever it is, it belongs to the caller; the thread has further work to do.
    except BaseException as error:
        job.result.set_exception(error)
        # As in `run`.
        del job
    else:
        job.result.set_result(value)


class Inline:
    """Synchronous executor: for tests that must not depend on threads, and for work of a few microseconds."""

    async def run(self, work: Callable[[], T], flow: Hashable) -> T:  # noqa: ARG002 - nothing waits
        """The result of `work()`, computed now."""
        return work()
