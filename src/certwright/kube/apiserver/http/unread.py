"""Memory limit for answers that clients do not read, over all connections."""

from __future__ import annotations

from collections.abc import Callable, Hashable

MAX_UNREAD = 64 * 1024 * 1024
"""Bytes that all connections together may buffer for clients that have stopped reading."""


class Unread:
    """The connections whose clients have stopped reading, and the bytes that each one buffers.

    Above `limit` bytes the connection that has been waiting longest is closed, then the next one. A slow
    client that reads moves to the end of the order with each part, so clients that read nothing are closed
    first. A single connection is never closed: one answer may exceed the limit.
    """

    def __init__(self, limit: int = MAX_UNREAD) -> None:
        self.limit = limit
        self.size = 0
        """Buffered bytes."""
        self.dropped = 0
        """Connections closed because of the limit."""
        self._waiting: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    @property
    def waiting(self) -> list[Hashable]:
        """The connections whose clients have stopped reading, longest wait first."""
        return list(self._waiting)

    def add(self, connection: Hashable, size: int, close: Callable[[], None]) -> None:
        """Record that the client of `connection` has stopped reading; `size` bytes are buffered for it."""
        self.remove(connection)
        self._waiting[connection] = size, close
        self.size += size
        while self.size > self.limit and len(self._waiting) > 1:
            oldest = next(iter(self._waiting))
            _, close_oldest = self._waiting[oldest]
            self.remove(oldest)
            self.dropped += 1
            close_oldest()

    def remove(self, connection: Hashable) -> None:
        """Record that the client of `connection` reads again, or has disconnected; idempotent."""
        size, _ = self._waiting.pop(connection, (0, None))
        self.size -= size
