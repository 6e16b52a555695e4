"""Executors: run CPU-bound work without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs a function that does no I/O and shares no state; returns its result or raises its exception."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`."""


class Threads:
    """Thread pool, one thread per processor; for work that releases the GIL for more than a millisecond.

    Each thread is started on demand. At exit the interpreter waits for running work.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="executor")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, computed in a thread; a cancelled caller leaves the thread to finish.
        Raises `RuntimeError` after `close`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Drop the work that has not started; do not wait for running work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for running work; after `close`."""
        self._pool.shutdown()


class Inline:
    """Synchronous executor: for tests that must not depend on threads, and for work of a few microseconds."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, computed now."""
        return work()
