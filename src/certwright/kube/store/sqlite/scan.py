"""List scans of the SQLite file, row by row.

If rows are chosen by their metadata, the bodies of the others are not opened, and large ones are not read:
each large body that is requested is then read separately.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import msgspec

from certwright.kube.store.contract import DamagedRow, Key, Row
from certwright.kube.store.damage import Opener
from certwright.kube.store.pages import Query, Undo, count_past

_BODY = "SELECT body FROM rows WHERE rowid = ?"
# Usually in the row's page. SQLite knows the length of a body without reading it.
_SMALL_BODY = "CASE WHEN length(body) <= 4096 THEN body END"

# More rows than this are not counted for a page's `remaining`: that takes some 10 ms.
_COUNTED = 100_000


class Scan:
    """The current rows of a bucket, in order, sealed ones opened. Close it, or it blocks checkpoints.

    Methods raise `sqlite3.Error`.
    """

    def __init__(self, reader: sqlite3.Connection, query: Query, opener: Opener) -> None:
        self._reader = reader
        self._query = query
        self._opener = opener
        self.damaged: list[Key] = []
        """The rows that were skipped because they cannot be read."""
        self._at: tuple[int, bytes | None] = (0, None)
        where, values = where_of(query)
        self._has_bodies = query.keep is None and not query.meta_only
        body = "body" if self._has_bodies else "NULL" if query.meta_only else _SMALL_BODY
        self._cursor = reader.execute(
            f"SELECT rowid, namespace, name, revision, meta, {body} FROM rows"  # noqa: S608 - constants
            f" WHERE {where} ORDER BY namespace, name",
            values,
        )

    def __iter__(self) -> Iterator[Row]:
        """The rows, without bodies if the query has `keep` or `meta_only`."""
        return self._full_rows() if self._has_bodies else self._bare_rows()

    def _full_rows(self) -> Iterator[Row]:
        bucket, opened = self._query.bucket, self._opener.row
        for _, namespace, name, revision, meta, body in self._cursor:
            try:
                row = opened(Row(Key(bucket, namespace, name), revision, meta, body))
            except DamagedRow as error:
                self.damaged.append(error.key)
                continue
            yield row

    def _bare_rows(self) -> Iterator[Row]:
        bucket, opened = self._query.bucket, self._opener.bare
        for rowid, namespace, name, revision, meta, body in self._cursor:
            self._at = (rowid, body)
            try:
                row = opened(Row(Key(bucket, namespace, name), revision, meta, b""))
            except DamagedRow as error:
                self.damaged.append(error.key)
                continue
            yield row

    def complete(self, row: Row) -> Row | None:
        """The last row read, with its body if it was requested; None if the body cannot be read."""
        if self._query.meta_only:
            return row
        rowid, body = self._at
        if body is None:
            # The cursor is still open, so this reads the same snapshot.
            (body,) = self._reader.execute(_BODY, (rowid,)).fetchone()
        try:
            return self._opener.body(row, body)
        except DamagedRow as error:
            self.damaged.append(error.key)
            return None

    def close(self) -> None:
        """Read no more."""
        self._cursor.close()


def where_of(query: Query) -> tuple[str, tuple[str, ...]]:
    """The condition for the rows that come after `query.after`, and its values."""
    bucket, namespace, after = query.bucket, query.namespace, query.after
    if namespace is None:
        if after is None:
            return "bucket = ?", (bucket,)
        return "bucket = ? AND (namespace, name) > (?, ?)", (bucket, *after)
    if after is None or after[0] < namespace:
        return "bucket = ? AND namespace = ?", (bucket, namespace)
    if after[0] > namespace:
        return "FALSE", ()
    return "bucket = ? AND namespace = ? AND name > ?", (bucket, *after)


def count_rows(reader: sqlite3.Connection, query: Query, undo: Undo) -> int | None:
    """How many rows `query` covers, with later changes undone; None if they are too many to be counted.
    `undo` must include the writes of a commit under way."""
    where, values = where_of(query)
    counted = f"SELECT count(*) FROM (SELECT 1 FROM rows WHERE {where} LIMIT ?)"  # noqa: S608 - constants
    if not undo:
        (total,) = reader.execute(counted, (*values, _COUNTED + 1)).fetchone()
        return None if total > _COUNTED else int(total)
    changed = (
        "SELECT count(*) FROM json_each(?) AS place CROSS JOIN rows ON rows.bucket = ?"
        " AND rows.namespace = json_extract(place.value, '$[0]')"
        " AND rows.name = json_extract(place.value, '$[1]')"
    )
    places = msgspec.json.encode([place for place in undo if query.covers(place)]).decode()
    # In one statement, so that both counts are of one snapshot.
    total, now = reader.execute(
        f"SELECT ({counted}), ({changed})", (*values, _COUNTED + 1, places, query.bucket)
    ).fetchone()
    return None if total > _COUNTED else int(total - now) + count_past(undo, query)
