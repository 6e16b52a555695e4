"""Per-key locks: writes to a key run one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from certwright.kube.store.contract import Key


class Turns:
    """The queues of writes under way, one for each key."""

    def __init__(self) -> None:
        self._last: dict[Key, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def take(self, key: Key) -> AsyncIterator[None]:
        """Hold the lock of `key` inside the block."""
        before = self._last.get(key)
        mine = self._last[key] = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.shield(before)
            yield
        finally:
            if before is not None and not before.done():
                # Cancelled while waiting: later waiters must still wait for the earlier ones.
                before.add_done_callback(lambda _: self._over(key, mine))
            else:
                self._over(key, mine)

    def _over(self, key: Key, mine: asyncio.Future[None]) -> None:
        mine.set_result(None)
        if self._last.get(key) is mine:
            del self._last[key]

    def is_taken(self, key: Key) -> bool:
        """Whether a write to `key` is under way or queued."""
        return key in self._last

    async def over(self, key: Key) -> None:
        """Return when all writes to `key` that are queued now are done."""
        if (last := self._last.get(key)) is not None:
            await asyncio.shield(last)

    async def all_over(self) -> None:
        """Return when the queues are empty."""
        while self._last:
            await asyncio.wait(self._last.values())
