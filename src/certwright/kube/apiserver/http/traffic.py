"""State shared by the connections of one front end."""

from __future__ import annotations

import asyncio
from typing import Protocol

from certwright.kube.apiserver.http import wire
from certwright.kube.apiserver.http.unread import MAX_UNREAD, Unread
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Handler


class Open(Protocol):
    """An open connection."""

    def end(self) -> None:
        """Close once the present answer has been sent; streams are cut short."""

    def abort(self) -> None:
        """Close now."""


class Traffic:
    """State shared by the connections of one front end: the handler, and the bytes in transit."""

    def __init__(
        self, handler: Handler, clock: Clock, *, is_fair: bool, max_unread: int = MAX_UNREAD
    ) -> None:
        self.handler = handler
        self.extra = wire.ExtraFields(clock, is_fair=is_fair)
        self.connections: set[Open] = set()
        self.arriving = 0  # bytes of incomplete bodies
        self.unread = Unread(max_unread)
        self.is_closing = False
        self._connection_removed = asyncio.Event()

    def remove(self, connection: Open) -> None:
        """Forget a closed connection."""
        self.connections.discard(connection)
        self._connection_removed.set()

    async def wait_ended(self) -> None:
        """Wait until no connections are left."""
        while self.connections:
            self._connection_removed.clear()
            await self._connection_removed.wait()
