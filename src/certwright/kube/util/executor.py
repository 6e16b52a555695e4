"""Executors: run CPU-bound work without blocking the event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class Workshop(Protocol):
    """Runs a function that does no I/O and shares no state; returns its result or raises its exception."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`."""


_Outcome = tuple[Any, BaseException | None]
_NOTHING: _Outcome = None, None


class _Job(NamedTuple):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]

    def call(self, what: Callable[..., object], *args: object) -> None:
        """Schedule a callback on the caller's loop; a loop that has been closed since has no waiting
        caller."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(what, *args)


class Threads:
    """Thread pool, one thread per processor; for work that releases the GIL for more than a millisecond.

    Each thread is started on demand. Cheaper than a `ThreadPoolExecutor`, whose own future, with a condition,
    and the chain from there to the loop's future cost the loop twice as much.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._most = workers or os.cpu_count() or 1
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._lock = Lock()
        self._unfinished = 0
        self._is_closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, computed in a thread; a cancelled caller leaves the thread to finish.
        Raises `RuntimeError` after `close`."""
        # The result is not bound to a name here because an error keeps alive the frames it passed through.
        return await self._begin(work)

    def close(self) -> None:
        """Drop the work that has not started; do not wait for running work."""
        with self._lock:
            self._is_closed = True
            with suppress(Empty):
                while (job := self._jobs.get_nowait()) is not None:
                    job.call(job.answer.cancel)
            for _ in self._threads:
                self._jobs.put(None)

    def join(self) -> None:
        """Wait for running work; after `close`."""
        for thread in self._threads:
            thread.join()

    def _begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the executor is closed and accepts no more work")
            self._unfinished += 1
            self._jobs.put(_Job(work, loop, answer))
            if len(self._threads) < min(self._unfinished, self._most):
                self._start_one()
        return answer

    def _start_one(self) -> None:
        thread = Thread(target=self._work, name=f"workshop_{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)
        _started.add(self)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome = _NOTHING if job.answer.cancelled() else _outcome_of(job.work)
            with self._lock:
                self._unfinished -= 1
            job.call(_settle, job.answer, *outcome)
            # Drop all references to the finished job before waiting for the next one.
            del job, outcome


class Inline:
    """Synchronous executor: for tests that must not depend on threads, and for work of a few microseconds."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, computed now."""
        return work()


def _outcome_of(work: Callable[[], Any]) -> _Outcome:
    # A separate function because an error keeps alive the frames it passed through.
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _settle(answer: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


_started: WeakSet[Threads] = WeakSet()


@atexit.register
def _end_all() -> None:
    """Wait for running work: native code that returns to a finalized interpreter crashes."""
    for threads in list(_started):
        threads.close()
        threads.join()
