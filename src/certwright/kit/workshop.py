"""Where work that keeps a processor busy is done, so that the event loop does not wait for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workshop(Protocol):
    """Runs a function that does no I/O and shares no state, and returns what it returns or raises."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`."""


class Threads:
    """Threads, as many as processors; worth it for work that releases the GIL for more than a millisecond."""

    def __init__(self, workers: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="workshop")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, computed in a thread; a cancelled caller leaves the thread to finish."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Drop what has not begun; do not wait for what has."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Inline:
    """On the spot: for tests that must not depend on threads, and for work of a few microseconds."""

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, computed now."""
        return work()
