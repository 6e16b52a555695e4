"""What has to be undone when a process stops."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


class Closers:
    """What has to be undone, last started first; one that fails does not keep the others from it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Awaitable[None]]] = []

    def add(self, undo: Callable[[], Awaitable[None]]) -> None:
        """Have something undone at the end."""
        self._undo.append(undo)

    async def close(self) -> None:
        """Undo everything."""
        while self._undo:
            undo = self._undo.pop()
            try:
                await undo()
            except Exception:
                _log.exception("a part did not stop cleanly")
