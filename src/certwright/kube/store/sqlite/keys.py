"""Which keys are certainly not in the SQLite file, without a look into it.

Most objects are made under names that were never used, and each time the store has to know that. A look into
the file gives the interpreter's lock away, and beside busy threads to get it back takes longer than the look.

From the first new key on, what is in the file is read page by page, between other work, and every key that is
written is noted, so it does not matter at which moment a page is read. Until the last page is read nothing is
said to be missing. Keys of deleted rows stay noted; when there are too many of them, it all begins anew.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable

from certwright.kube.store.contract import Key
from certwright.kube.store.sqlite.bloom_filter import KeyFilter

_log = logging.getLogger(__name__)

SMALLEST, LARGEST = 1 << 15, 1 << 21
"""How many keys, and so how many bytes, there is room for. In the largest there may be more keys: it is then
wrong more often, which costs no more than the look that it was to spare."""
_PAGE = 256
_PAUSE_S = 10e-3
"""Between two pages, each of which takes about half a millisecond."""
_MOST_ROWS = "SELECT max(rowid) FROM rows"
"""No fewer than there are: SQLite gives the next number to each new row."""
_NEXT_KEYS = (
    "SELECT bucket, namespace, name FROM rows WHERE (bucket, namespace, name) > (?, ?, ?)"
    " ORDER BY bucket, namespace, name LIMIT ?"
)
_START = Key("", "", "")


class AbsentKeys:
    """Says of keys that they are not in the file; reads it on the event loop, by `reader`.

    `under_way`: the keys that have a write which is not committed yet.
    """

    def __init__(
        self, reader: sqlite3.Connection, under_way: Callable[[], Iterable[Key]], *, smallest: int = SMALLEST
    ) -> None:
        self._reader = reader
        self._under_way = under_way
        self._loop = asyncio.get_running_loop()
        self._smallest = smallest
        self._known: KeyFilter | None = None
        self._loading: KeyFilter | None = None
        self._left = 0  # how many new keys may be noted until it all begins anew
        self._next: asyncio.Handle | None = None

    def lacks(self, key: Key) -> bool:
        """Whether there is certainly nothing under the key; False: there may be something."""
        return self._known is not None and key not in self._known

    def note(self, key: Key) -> None:
        """Something is about to be written where nothing was."""
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
            # Whoever needs what cannot be read is told so. Here all that is lost is speed.
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
        """A filter with room for twice as many keys as there are rows; in it are those under way."""
        (rows,) = self._reader.execute(_MOST_ROWS).fetchone()
        found = KeyFilter(min(max(1 << (2 * rows).bit_length(), self._smallest), LARGEST))
        found.add_all(tuple(self._under_way()))
        return found
