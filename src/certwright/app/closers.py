"""Shutdown actions of a process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


class Closers:
    """Shutdown actions, run in reverse order; a failure does not prevent the others."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Awaitable[None]]] = []

    def add(self, undo: Callable[[], Awaitable[None]]) -> None:
        """Register a shutdown action."""
        self._undo.append(undo)

    async def close(self) -> None:
        """Run all shutdown actions."""
        while self._undo:
            undo = self._undo.pop()
            try:
                await undo()
            except Exception:
                _log.exception("a part did not stop cleanly")
