"""Answers that are remembered for a while, and asked for once by all who want them at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_MANY = 1024


class Recent(Generic[K, T]):
    """Remembers an answer for `seconds`. One that is an exception is not remembered: all who wait for it get
    it, and who comes later asks again. `now` is a monotonic clock in seconds."""

    def __init__(self, seconds: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._held: dict[K, tuple[float, T]] = {}
        self._asked: dict[K, asyncio.Future[T]] = {}

    def __len__(self) -> int:
        """How many answers are held."""
        return len(self._held)

    async def get(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of before, or what `ask()` returns or raises."""
        held = self._held.get(key)
        if held is not None and self._now() < held[0]:
            return held[1]
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.ensure_future(self._ask(key, ask))
        # Who gives up must not take the answer from the others.
        return await asyncio.shield(asked)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await ask()
        finally:
            del self._asked[key]
        now = self._now()
        if len(self._held) >= _MANY:
            self._held = {one: held for one, held in self._held.items() if now < held[0]}
        self._held[key] = (now + self._seconds, answer)
        return answer
