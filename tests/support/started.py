"""What an API server writes at its start into an empty store, recorded once per process.

Every test of a server begins with a start; the writes take three quarters of it. A server that starts on a
store with them, as after a restart, has only to read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.store.memory import MemoryStore

_recorded: dict[str, list[Row]] = {}


class _Recording(MemoryStore):
    """A store that remembers the rows written to it. Nothing is deleted at a start."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        row = await super().put(key, encode, expect=expect)
        self.rows.append(row)
        return row


def _columns(row: Row, _: int) -> tuple[bytes, bytes]:
    return row.meta, row.body


async def started_store(what: str, start: Callable[[MemoryStore], Awaitable[None]]) -> MemoryStore:
    """A store in which a server has started before. `start` starts and ends one, for the first of `what`."""
    if what not in _recorded:
        first = _Recording()
        await start(first)
        _recorded[what] = first.rows
    store = MemoryStore()
    for row in _recorded[what]:
        await store.put(row.key, partial(_columns, row))
    assert store.revision == _recorded[what][-1].revision
    return store
