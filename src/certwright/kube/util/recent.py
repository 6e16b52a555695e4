"""TTL cache with one shared request for concurrent callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_MANY = 1024


class Recent(Generic[K, T]):
    """Caches an answer for `seconds`. An exception is not cached: all current waiters get it, and later
    callers ask again. `now` is a monotonic clock in seconds."""

    def __init__(self, seconds: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._answers: dict[K, tuple[float, T]] = {}
        self._in_flight: dict[K, asyncio.Future[T]] = {}

    def __len__(self) -> int:
        """The number of cached answers."""
        return len(self._answers)

    async def get(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        """The cached answer, or what `ask()` returns or raises."""
        cached = self._answers.get(key)
        if cached is not None and self._now() < cached[0]:
            return cached[1]
        asked = self._in_flight.get(key)
        if asked is None:
            asked = self._in_flight[key] = asyncio.ensure_future(self._fetch(key, ask))
        # A cancelled caller must not cancel the request for the others.
        return await asyncio.shield(asked)

    def forget(self, key: K) -> None:
        """Remove a cached answer if present."""
        self._answers.pop(key, None)

    async def _fetch(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await ask()
        finally:
            del self._in_flight[key]
        now = self._now()
        if len(self._answers) >= _MANY:
            self._answers = {other: current for other, current in self._answers.items() if now < current[0]}
        self._answers[key] = (now + self._seconds, answer)
        return answer
