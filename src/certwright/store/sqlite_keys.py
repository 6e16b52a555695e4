"""Which keys are certainly not in the SQLite file, without a look into it.

Most objects are made under names that were never used, and each time the store has to know that. A look into
the file gives the interpreter's lock away, and beside busy threads to get it back takes longer than the look.

What is in the file is read page by page, between other work, and every key that is written is noted, so it
does not matter at which moment a page is read. Until the last page is read nothing is said to be missing.
Keys of deleted rows stay noted; when there are too many of them, it all begins anew.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable

from certwright.store.contract import Key
from certwright.store.key_filter import KeyFilter

_log = logging.getLogger(__name__)

SMALLEST, LARGEST = 1 << 15, 1 << 21
"""How many keys, and so how many bytes, there is room for. In the largest there may be more keys: it is then
wrong more often, which costs no more than the look that it was to spare."""
_GROWTH = 8
_PAGE = 256
_PAUSE_S = 10e-3
"""Between two pages, each of which takes about half a millisecond."""
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
        self._known: KeyFilter | None = None
        self._room = 0  # how many keys may be noted until it all begins anew
        self._loading: KeyFilter | None = None
        self._next: asyncio.Handle | None = None
        self._begin(smallest)

    def lacks(self, key: Key) -> bool:
        """Whether there is certainly nothing under the key; False: there may be something."""
        return self._known is not None and key not in self._known

    def note(self, key: Key) -> None:
        """Something is about to be written where nothing was."""
        if self._known is not None and self._loading is None and self._known.added >= self._room:
            self._begin(self._known.capacity)
        for keys in (self._known, self._loading):
            if keys is not None:
                keys.add(key)

    def close(self) -> None:
        """Read no more pages."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _begin(self, capacity: int) -> None:
        loading = self._loading = KeyFilter(min(capacity, LARGEST))
        loading.add_all(tuple(self._under_way()))
        self._load(loading, _START)

    def _load(self, loading: KeyFilter, after: Key) -> None:
        try:
            page = self._reader.execute(_NEXT_KEYS, (*after, _PAGE)).fetchall()
        except sqlite3.Error as error:
            # Whoever needs what cannot be read is told so. Here all that is lost is speed.
            _log.debug("the keys could not be read: %s", error)
            self._known = self._loading = self._next = None
            return
        loading.add_all(page)
        if 2 * loading.added > loading.capacity < LARGEST:
            self._soon(self._begin, loading.capacity * _GROWTH)
        elif len(page) == _PAGE:
            self._soon(self._load, loading, Key(*page[-1]))
        else:
            self._known, self._loading, self._next = loading, None, None
            self._room = max(loading.capacity, loading.added + loading.capacity // 2)

    def _soon(self, work: Callable[..., None], *arguments: object) -> None:
        self._next = self._loop.call_later(_PAUSE_S, work, *arguments)
