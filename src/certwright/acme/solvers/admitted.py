"""Limits on the connections of listeners that the whole internet reaches.

Each connection takes a file descriptor, and without limits a client without credentials could take the
descriptors of the API server and the store in the process. A connection is *pending* until its request has
been read and answered. A new pending connection displaces the oldest of the address with the most, so
connections that send nothing never keep a CA out.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from typing import Final

import msgspec

_log = logging.getLogger(__name__)

_MOST_PENDING: Final = 512
"""CAs validate a few names at the same time from at most ten places each, and a response takes moments."""
_PENDING_SHARE: Final = 8
_PASSED_ON_SHARE: Final = 6
"""One connection in so many open files; one that is passed on takes two of them."""
_LOG_EVERY: Final = 1000


class Limits(msgspec.Struct, frozen=True):
    """How many connections may be pending, and how many passed on to another server."""

    pending: int
    passed_on: int


def limits_within_files() -> Limits:
    """The limits for the files that the process may open now."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = 1 << 20
    return Limits(max(1, min(_MOST_PENDING, files // _PENDING_SHARE)), max(1, files // _PASSED_ON_SHARE))


class Admitted:
    """One accepted connection."""

    __slots__ = ("_table", "address", "close")

    def __init__(self, table: Admissions, address: str, close: Callable[[], None]) -> None:
        self._table = table
        self.address = address
        self.close = close

    def pass_on(self) -> bool:
        """Count the connection as passed on to another server; False: too many are, and it must be closed."""
        return self._table.pass_on(self)

    def release(self) -> None:
        """Stop counting it; idempotent."""
        self._table.release(self)


class Admissions:
    """The connections of one listener."""

    def __init__(self, limits: Callable[[], Limits] = limits_within_files) -> None:
        self._limits = limits
        self._pending: dict[str, dict[Admitted, None]] = {}  # by address, the oldest first
        self._pending_count = 0
        self._passed_on: set[Admitted] = set()
        self.displaced = 0
        """Pending connections that were closed for newer ones."""

    def admit(self, address: str, close: Callable[[], None]) -> Admitted:
        """Count a newly accepted connection, which `close` ends."""
        if self._pending_count >= self._limits().pending:
            self._displace()
        made = Admitted(self, address, close)
        self._pending.setdefault(address, {})[made] = None
        self._pending_count += 1
        return made

    def _displace(self) -> None:
        address = max(self._pending, key=lambda peer: len(self._pending[peer]))
        oldest = next(iter(self._pending[address]))
        if self.displaced % _LOG_EVERY == 0:
            _log.warning(
                "closed a connection from %s without a request: %d such connections are open",
                address,
                self._pending_count,
            )
        self.displaced += 1
        oldest.release()
        oldest.close()

    def pass_on(self, connection: Admitted) -> bool:
        self.release(connection)
        if len(self._passed_on) >= self._limits().passed_on:
            return False
        self._passed_on.add(connection)
        return True

    def release(self, connection: Admitted) -> None:
        self._passed_on.discard(connection)
        there = self._pending.get(connection.address, {})
        if connection in there:
            del there[connection]
            self._pending_count -= 1
            if not there:
                del self._pending[connection.address]
