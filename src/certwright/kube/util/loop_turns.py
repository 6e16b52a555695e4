"""Turns on the event loop: one of many CPU-bound tasks per iteration."""

from __future__ import annotations

import asyncio
from collections import deque


class LoopTurns:
    """Let one of many tasks work per turn of the event loop, in the order of their arrival.

    Each of these tasks may keep the loop for some milliseconds. Without turns sixty of them run in the same
    turn of the loop, and every other request waits for all sixty.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    async def take(self) -> None:
        """Return in a turn of the loop in which no other caller of `take` has returned."""
        loop = asyncio.get_running_loop()
        if not self._is_taken:
            self._is_taken = True
            loop.call_soon(self._next, loop)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # a caller that was cancelled does not use up a turn
                turn.set_result(None)
                loop.call_soon(self._next, loop)
                return
        self._is_taken = False
