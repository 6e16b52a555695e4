"""Executors: run CPU-bound work without blocking the event loop."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from certwright.kube.util.fair_queue import FairQueue

T = TypeVar("T")


class Executor(Protocol):
    """Runs a function without I/O and shared state; returns its result or raises its exception.

    Flows (e.g. namespaces) take turns, so that a flow with much work does not delay others.
    """

    async def run(self, work: Callable[[], T], flow: Hashable) -> T:
        """The result of `work()`. `flow` has no default: work of a namespace in a common flow would delay
        that of others."""


class _Job:
    __slots__ = ("result", "work")

    def __init__(self, work: Callable[[], Any], result: Future[Any]) -> None:
        self.work = work
        self.result = result


class Threads:
    """Thread pool for work that releases the GIL for more than a millisecond.

    One flow occupies at most `workers` threads (default: one per processor). The pool has one thread more, so
    that a short job does not wait for long jobs of another flow. Threads are started on demand. At exit the
    interpreter waits for running work.
    """

    def __init__(self, workers: int | None = None, *, name: str = "executor") -> None:
        self._most_per_flow = workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._most_per_flow + 1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._jobs: FairQueue[_Job] = FairQueue(per_flow=self._most_per_flow)

    async def run(self, work: Callable[[], T], flow: Hashable) -> T:
        """The result of `work()`, computed in a thread; a cancelled caller leaves the thread to finish.
        Raises `RuntimeError` after `close`."""
        result: Future[T] = Future()
        with self._lock:
            self._pool.submit(self._work_off)
            self._jobs.add(_Job(work, result), flow)
        try:
            return await asyncio.wrap_future(result)
        finally:
            # An error that passes here refers to this frame, and must not so refer to itself.
            del result

    def _work_off(self) -> None:
        """Run jobs, in a thread, until none is left that may run now."""
        job: _Job | None = None
        while True:
            with self._lock:
                if job is not None:
                    self._jobs.done(job)
                job = self._jobs.pop()
            if job is None:
                return
            _complete(job)

    def close(self) -> None:
        """Drop the work that has not started; do not wait for running work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._jobs.per_flow = math.inf
            dropped = list(iter(self._jobs.pop, None))
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
