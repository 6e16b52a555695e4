"""An event loop in a separate thread, for servers that must respond promptly while the main loop is busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SideLoop:
    """Runs coroutines beside the caller's loop. `name` is the thread's, for tools that show threads.

    The coroutines share memory with the rest of the program: single reads and writes of a dict are safe,
    but locks, events and tasks of another loop are not.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return or raise the result of `work`; the first call starts the thread."""
        if self._loop is None:
            # Of the same type as the main loop, which may be faster than Python's default.
            self._loop = type(asyncio.get_running_loop())()
            threading.Thread(target=self._turn, args=(self._loop,), name=self._name, daemon=True).start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def begin(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run`, for starting a server: the thread ends if `work` fails (`OSError`)."""
        try:
            return await self.run(work)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop the thread. Running coroutines are cancelled, and not awaited here. Idempotent."""
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
