"""Pages of a list: current rows, cut to size, with what has changed since the list's revision undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from certwright.store.contract import Choice, Row
from certwright.store.log import Place

# So many rows are looked at for a page of few: others wait meanwhile.
_MOST_LOOKED_AT = 2_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page is to hold; the arguments of `Store.list`."""

    bucket: str
    namespace: str | None = None
    limit: int | None = None
    after: Place | None = None
    meta_only: bool = False
    max_bytes: int | None = None
    keep: Choice | None = None


class Cut(NamedTuple):
    """A page's rows, whether there is more to look at, and the last place that was looked at."""

    rows: list[Row]
    more: bool
    last: Place | None


def _as_it_is(row: Row) -> Row:
    return row


def cut(
    current: Iterator[Row],
    wanted: Wanted,
    undo: Mapping[Place, Row | None],
    whole: Callable[[Row], Row] = _as_it_is,
) -> Cut:
    """The page.

    `current` gives the rows there are now in order of key, beginning after `wanted.after`; it is read no
    further than needed. With `wanted.keep` they may lack their bodies: `whole` then completes the one that
    was read last. `undo` gives, for keys that have changed, what lay there at the list's revision.
    """
    take = _take if wanted.keep is None else _choose
    if not undo:
        return take(current, wanted, whole)
    kept, more, last = take((row for row in current if row.key[1:] not in undo), wanted, whole)
    past: Iterable[Row] = _past_rows(undo, wanted)
    if more:
        # Current rows beyond the last one were not looked at, so nothing beyond it may be shown.
        past = (row for row in past if last is not None and row.key[1:] < last)
    rows = sorted([*kept, *past])
    if wanted.limit is not None and len(rows) > wanted.limit:
        rows, more, last = rows[: wanted.limit], True, rows[wanted.limit - 1].key[1:]
    return Cut(rows, more, last)


def _take(current: Iterator[Row], wanted: Wanted, _whole: Callable[[Row], Row]) -> Cut:
    if wanted.max_bytes is None:
        rows = list(islice(current, wanted.limit))
    else:
        rows = _take_bytes(islice(current, wanted.limit), wanted.max_bytes)
    # A page that would be empty is never cut: it could not be continued.
    more = bool(rows) and next(current, None) is not None
    return Cut(rows, more, rows[-1].key[1:] if rows else None)


def _take_bytes(current: Iterator[Row], max_bytes: int) -> list[Row]:
    rows, size = [], 0
    for row in current:
        rows.append(row)
        size += len(row.meta) + len(row.body)
        if size >= max_bytes:
            break
    return rows


def _choose(current: Iterator[Row], wanted: Wanted, whole: Callable[[Row], Row]) -> Cut:
    keep, limit, rows = wanted.keep, wanted.limit, list[Row]()
    assert keep is not None, "asked by `cut`"
    last: Row | None = None
    for looked_at, row in enumerate(current):
        if last is not None and (len(rows) == limit or looked_at == _MOST_LOOKED_AT):
            return Cut(rows, True, last.key[1:])
        last = row
        if keep(row):
            rows.append(whole(row))
    return Cut(rows, False, None)


def _past_rows(undo: Mapping[Place, Row | None], wanted: Wanted) -> list[Row]:
    rows = []
    for place, row in undo.items():
        if row is None or (wanted.namespace is not None and place[0] != wanted.namespace):
            continue
        if wanted.after is not None and place <= wanted.after:
            continue
        if wanted.keep is None or wanted.keep(row):
            rows.append(row._replace(body=b"") if wanted.meta_only else row)
    return rows
