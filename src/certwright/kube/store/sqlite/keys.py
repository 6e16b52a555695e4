"""Absent keys: a Bloom filter of the keys in the SQLite file, which saves reads of missing ones.

Most objects are created under names that were never used, and each time the store has to know that. A read of
the file releases the GIL, and beside busy threads to acquire it again takes longer than the read.

From the first new key on, the keys in the file are read page by page, between other work, and every key that
is written is recorded, so it does not matter at which moment a page is read. Until the last page is read no
key is reported as absent. Keys of deleted rows stay recorded; when there are too many of them, the filter is
rebuilt.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable

from certwright.kube.store.contract import Key

_log = logging.getLogger(__name__)

SMALLEST, LARGEST = 1 << 15, 1 << 21
"""Capacities of the filter in keys, and so in bytes. The largest may get more keys: its false positives then
increase, and each costs only the read that the filter would have saved."""
_PAGE = 256
_PAUSE_S = 10e-3
"""Pause between two pages, each of which takes about half a millisecond."""
_MOST_ROWS = "SELECT max(rowid) FROM rows"
"""An upper bound of the number of rows, because SQLite gives the next number to each new row."""
_NEXT_KEYS = (
    "SELECT bucket, namespace, name FROM rows WHERE (bucket, namespace, name) > (?, ?, ?)"
    " ORDER BY bucket, namespace, name LIMIT ?"
)
_START = Key("", "", "")


class AbsentKeys:
    """Reports keys that are not in the file; reads it on the event loop, by `reader`.

    `pending`: the keys that have a write which is not committed yet.
    """

    def __init__(
        self, reader: sqlite3.Connection, pending: Callable[[], Iterable[Key]], *, smallest: int = SMALLEST
    ) -> None:
        self._reader = reader
        self._pending = pending
        self._loop = asyncio.get_running_loop()
        self._smallest = smallest
        self._known: KeyFilter | None = None
        self._loading: KeyFilter | None = None
        self._left = 0  # how many new keys may be recorded until the filter is rebuilt
        self._next: asyncio.Handle | None = None

    def lacks(self, key: Key) -> bool:
        """Whether the key certainly has no row; False: it may have one."""
        return self._known is not None and key not in self._known

    def note(self, key: Key) -> None:
        """Record a key that is about to be created."""
        self._left -= 1
        if self._left < 0 and self._loading is None:
            self._load()
        for keys in (self._known, self._loading):
            if keys is not None:
                keys.add(key)

    def close(self) -> None:
        """Read no more pages."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _load(self, after: Key = _START) -> None:
        try:
            loading = self._empty() if self._loading is None else self._loading
            page = self._reader.execute(_NEXT_KEYS, (*after, _PAGE)).fetchall()
        except sqlite3.Error as error:
            # A read that needs the damaged rows raises the error. This one only loses speed.
            _log.debug("the keys could not be read: %s", error)
            self._known = self._loading = self._next = None
            self._left = self._smallest
            return
        loading.add_all(page)
        if len(page) == _PAGE:
            self._loading = loading
            self._next = self._loop.call_later(_PAUSE_S, self._load, Key(*page[-1]))
        else:
            self._known, self._loading, self._next = loading, None, None
            self._left = max(loading.capacity - loading.added, loading.capacity // 2)

    def _empty(self) -> KeyFilter:
        """A filter with capacity for twice the number of rows; it has the keys under way."""
        (rows,) = self._reader.execute(_MOST_ROWS).fetchone()
        key_filter = KeyFilter(min(max(1 << (2 * rows).bit_length(), self._smallest), LARGEST))
        key_filter.add_all(tuple(self._pending()))
        return key_filter


class KeyFilter:
    """Bloom filter: a compact set of keys with false positives, but no false negatives. Eight bits a key for
    up to `capacity` (a power of two). At capacity one of twenty other keys is a false positive, and more
    beyond it. `added` counts the keys added.

    Source: B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13(7), 1970.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.added = 0
        self._bits = bytearray(capacity)
        self._mask = 8 * capacity - 1

    def add(self, key: Key) -> None:
        """Add a key."""
        self.add_all((key,))

    def add_all(self, keys: Collection[tuple[str, str, str]]) -> None:
        """Add keys; plain tuples of a `Key`'s fields are accepted."""
        self.added += len(keys)
        bits, mask = self._bits, self._mask
        for hashed in map(hash, keys):
            first, other = hashed & mask, (hashed >> 32) & mask
            bits[first >> 3] |= 1 << (first & 7)
            bits[other >> 3] |= 1 << (other & 7)

    def __contains__(self, key: Key) -> bool:
        """False: the key was certainly not added."""
        hashed, mask, bits = hash(key), self._mask, self._bits
        first, other = hashed & mask, (hashed >> 32) & mask
        return bool(bits[first >> 3] >> (first & 7) & bits[other >> 3] >> (other & 7) & 1)
