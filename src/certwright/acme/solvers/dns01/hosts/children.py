"""Limits of the child processes that run providers of DNS hosts."""

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from certwright.acme.solvers.contract import SolverError

_TIMEOUT_S: Final = 60.0
# At 40 MB each.
_MOST: Final = 8


class Children:
    """At most `most` concurrent children of each provider, so that one which blocks delays no other; each is
    killed after `timeout_s`."""

    def __init__(self, most: int = _MOST, timeout_s: float = _TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._most = most
        self._free: dict[str, Semaphore] = {}

    @asynccontextmanager
    async def slot(self, provider: str) -> AsyncIterator[None]:
        """Wait for a slot of that provider. Raises `SolverError` if none is free within the timeout."""
        free = self._free.setdefault(provider, Semaphore(self._most))
        try:
            async with asyncio.timeout(self.timeout_s):
                await free.acquire()
        except TimeoutError:
            raise SolverError(
                f"{provider}: {self._most} earlier calls have not ended within {self.timeout_s:g} s"
            ) from None
        try:
            yield
        finally:
            free.release()
