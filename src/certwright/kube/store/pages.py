"""Pagination of a list: current rows, cut to size, with the changes since the list's revision undone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import NamedTuple

from certwright.kube.store.contract import Choice, Row
from certwright.kube.store.log import Place, size_of_row

Undo = Mapping[Place, Row | None]
"""The rows at a list's revision, of the places that have changed since."""

# The most rows that are read for one page, however few it keeps, because other requests wait meanwhile.
_MOST_EXAMINED = 2_000


@dataclass(frozen=True, slots=True)
class Query:
    """The contents of a page; the arguments of `Store.list`."""

    bucket: str
    namespace: str | None = None
    limit: int | None = None
    after: Place | None = None
    meta_only: bool = False
    max_bytes: int | None = None
    keep: Choice | None = None
    revision: int | None = None
    counted: bool = False

    def covers(self, place: Place) -> bool:
        """Whether the row at that place may be on the page."""
        return self.namespace in (None, place[0]) and (self.after is None or place > self.after)


class Cut(NamedTuple):
    """A page's rows, whether more follow, and the last place that was read."""

    rows: list[Row]
    more: bool
    last: Place | None


def _as_it_is(row: Row) -> Row:
    return row


def cut(
    current: Iterator[Row],
    query: Query,
    undo: Undo,
    complete: Callable[[Row], Row | None] = _as_it_is,
) -> Cut:
    """The page.

    `current` yields the current rows in order of key, from after `query.after`; it is read no further than
    needed. With `query.keep` they may lack their bodies: `complete` then adds the body of the last row that
    was read; None: it cannot be read.
    """
    if undo:
        unchanged = (row for row in current if row.key[1:] not in undo)
        current = merge(unchanged, sorted(_past_rows(undo, query)))
    if query.keep is None:
        return _take(current, query)
    return _choose(current, query, query.keep, lambda row: row if row.key[1:] in undo else complete(row))


def count_past(undo: Undo, query: Query) -> int:
    """How many rows of the past remain to be read."""
    return sum(row is not None and query.covers(place) for place, row in undo.items())


def _take(current: Iterator[Row], query: Query) -> Cut:
    if query.max_bytes is None:
        rows = list(islice(current, query.limit))
    else:
        rows = _limit_bytes(islice(current, query.limit), query.max_bytes)
    # A page that would be empty is never cut: it could not be continued.
    more = bool(rows) and next(current, None) is not None
    return Cut(rows, more, rows[-1].key[1:] if rows else None)


def _limit_bytes(current: Iterator[Row], max_bytes: int) -> list[Row]:
    rows, size = [], 0
    for row in current:
        rows.append(row)
        size += size_of_row(row)
        if size >= max_bytes:
            break
    return rows


def _choose(current: Iterator[Row], query: Query, keep: Choice, complete: Callable[[Row], Row | None]) -> Cut:
    limit, rows = query.limit, list[Row]()
    room = math.inf if query.max_bytes is None else query.max_bytes
    last: Row | None = None
    for examined, row in enumerate(current):
        if last is not None and (len(rows) == limit or examined == _MOST_EXAMINED or room <= 0):
            return Cut(rows, True, last.key[1:])
        last = row
        if keep(row) and (completed := complete(row)) is not None:
            rows.append(completed)
            room -= size_of_row(rows[-1])
    return Cut(rows, False, last.key[1:] if last is not None else None)


def _past_rows(undo: Undo, query: Query) -> list[Row]:
    rows = [row for place, row in undo.items() if row is not None and query.covers(place)]
    return [row._replace(body=b"") for row in rows] if query.meta_only else rows
