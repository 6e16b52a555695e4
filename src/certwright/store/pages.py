"""Pages of a list: current rows, cut to size, with what has changed since the list's revision undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from certwright.store.contract import Row
from certwright.store.log import Place


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page is to hold; the arguments of `Store.list`."""

    bucket: str
    namespace: str | None = None
    limit: int | None = None
    after: Place | None = None
    meta_only: bool = False
    max_bytes: int | None = None


def cut(current: Iterator[Row], wanted: Wanted, undo: Mapping[Place, Row | None]) -> tuple[list[Row], bool]:
    """The page's rows, and whether more follow.

    `current` gives the rows there are now in order of key, beginning after `wanted.after`; it is read no
    further than needed. `undo` gives, for keys that have changed, what lay there at the list's revision.
    """
    if not undo:
        return _take(current, wanted)
    kept, more = _take((row for row in current if row.key[1:] not in undo), wanted)
    past: Iterable[Row] = _past_rows(undo, wanted)
    if more:
        # Current rows beyond the last one taken were not looked at, so nothing beyond it may be shown.
        last = kept[-1].key
        past = (row for row in past if row.key < last)
    rows = sorted([*kept, *past])
    if wanted.limit is not None and len(rows) > wanted.limit:
        return rows[: wanted.limit], True
    return rows, more


def count_undone(undo: Mapping[Place, Row | None], wanted: Wanted, there: Callable[[Place], bool]) -> int:
    """How many more rows than now there were at the list's revision, where `wanted` looks. `there`: whether
    something lies at a place now."""
    found = 0
    for place, row in undo.items():
        if wanted.namespace in (None, place[0]) and (wanted.after is None or place > wanted.after):
            found += (row is not None) - there(place)
    return found


def _take(current: Iterator[Row], wanted: Wanted) -> tuple[list[Row], bool]:
    if wanted.max_bytes is None:
        if wanted.limit is None:
            return list(current), False
        rows = list(islice(current, wanted.limit))
    else:
        rows = _take_bytes(islice(current, wanted.limit), wanted.max_bytes)
    # A page that would be empty is never cut: it could not be continued.
    return rows, bool(rows) and next(current, None) is not None


def _take_bytes(current: Iterator[Row], max_bytes: int) -> list[Row]:
    rows, size = [], 0
    for row in current:
        rows.append(row)
        size += len(row.meta) + len(row.body)
        if size >= max_bytes:
            break
    return rows


def _past_rows(undo: Mapping[Place, Row | None], wanted: Wanted) -> list[Row]:
    rows = []
    for place, row in undo.items():
        if row is None or (wanted.namespace is not None and place[0] != wanted.namespace):
            continue
        if wanted.after is not None and place <= wanted.after:
            continue
        rows.append(row._replace(body=b"") if wanted.meta_only else row)
    return rows
