"""An event loop in a thread of its own, for what must answer soon however busy the program's own loop is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SideLoop:
    """Runs coroutines beside the loop of whoever calls. `name` is the thread's, for tools that show threads.

    What runs here shares memory with the rest of the program: single reads and writes of a dict are safe,
    and locks, events and tasks of another loop are not.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises; the thread is started by the first call."""
        if self._loop is None:
            # Of the kind that the program runs on, which may be a faster one than Python's own.
            self._loop = type(asyncio.get_running_loop())()
            threading.Thread(target=self._turn, args=(self._loop,), name=self._name, daemon=True).start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def begin(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run`, for what is to be served from then on: the thread ends where `work` fails (`OSError`)."""
        try:
            return await self.run(work)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let the thread end. What still runs is cancelled, and not waited for here. Idempotent."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    @staticmethod
    def _turn(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
        finally:
            loop.close()
