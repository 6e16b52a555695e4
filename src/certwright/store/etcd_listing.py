"""Rows and pages of rows from etcd, by linearizable reads: they include whatever any server has committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from certwright.store.contract import Choice, Key, Page, Row
from certwright.store.etcd_client import EtcdClient
from certwright.store.etcd_messages import RANGE, TXN, RangeRequest, TxnRequest, read_op
from certwright.store.etcd_rows import Layout, Span
from certwright.store.log import Place
from certwright.store.pages import Wanted
from certwright.store.seal import UnknownDataKey

T = TypeVar("T")

# How many rows are asked for at once; and how many at first, while it is not known how large they are.
_MOST_ROWS = 1_000
_MOST_METAS = 5_000
_FIRST_ROWS = 8
# etcd takes 128 in one transaction (`--max-txn-ops`).
_MOST_OPERATIONS = 100
_ANSWER_BYTES = 4 << 20


class Reader:
    """Reads what lies below one prefix. `catch_up` hears of all that is there at this moment."""

    def __init__(self, client: EtcdClient, layout: Layout, catch_up: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._layout = layout
        self._catch_up = catch_up
        self._row_bytes: dict[tuple[str, bool], int] = {}

    async def row(self, key: Key) -> Row | None:
        """The committed row."""
        meta_key, body_key = self._layout.keys(key)
        return await self.row_of(
            await self._client.call(TXN, TxnRequest(success=[read_op(meta_key), read_op(body_key)]))
        )

    async def row_of(self, answer: Any) -> Row | None:
        """The row that a transaction's two reads have found."""
        return await self._opened(partial(self._row_of, answer))

    async def _opened(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except UnknownDataKey:
            # Another server has begun to seal with a new one, and we have not heard of it yet.
            await self._catch_up()
            return read()

    def _row_of(self, answer: Any) -> Row | None:
        metas, bodies = (response.response_range.kvs for response in answer.responses)
        if not metas:
            return None
        return self._layout.row(metas[0], bodies[0].value if bodies else b"")

    async def count(self, span: Span) -> tuple[int, int]:
        """How many keys there are, and the revision of which that is."""
        request = RangeRequest(key=span.begin, range_end=span.end, count_only=True)
        answer = await self._client.call(RANGE, request)
        return answer.count, answer.header.revision

    async def page(self, wanted: Wanted, revision: int | None) -> Page:
        """The rows that are wanted, see `contract.Store.list`. Raises `Compacted`, `FutureRevision`."""
        if wanted.keep is not None:
            return await self._chosen(wanted, wanted.keep, revision)
        rows: list[Row] = []
        room, more = wanted.max_bytes, True
        left = 0
        while more and (wanted.limit is None or len(rows) < wanted.limit) and (room is None or room > 0):
            after = rows[-1].key[1:] if rows else wanted.after
            ask = self._how_many(wanted, len(rows), room)
            found, more, left, revision = await self._piece(wanted, after, ask, revision or 0)
            if room is not None:
                kept, room = _fitting(found, room)
                left += len(found) - kept
                more, found = more or kept < len(found), found[:kept]
            rows += found
        last = rows[-1].key[1:] if rows else None
        return Page(rows, revision or 0, more, left if more else None, last)

    async def _chosen(self, wanted: Wanted, keep: Choice, revision: int | None) -> Page:
        """Metadata first, then the bodies of those that are kept, all of one revision."""
        most = max(wanted.limit or 0, _MOST_ROWS)
        bare = await self.page(replace(wanted, keep=None, meta_only=True, limit=most), revision)
        page = bare.only(list(filter(keep, bare.rows)), wanted.limit)
        if wanted.meta_only:
            return page
        rows = await self._with_bodies(wanted, page.rows, page.revision)
        return page.only(rows, len(rows)) if len(rows) < len(page.rows) else replace(page, rows=rows)

    async def _with_bodies(self, wanted: Wanted, bare: list[Row], revision: int) -> list[Row]:
        """The rows with their bodies: all of them, or the first ones that fill `wanted.max_bytes`."""
        rows: list[Row] = []
        room = wanted.max_bytes
        while len(rows) < len(bare) and (room is None or room > 0):
            some = bare[len(rows) :][: min(self._how_many(wanted, len(rows), room), _MOST_OPERATIONS)]
            reads = [read_op(self._layout.keys(row.key)[1], revision=revision) for row in some]
            answer = await self._client.call(TXN, TxnRequest(success=reads))
            whole = await self._opened(partial(self._completed, some, answer))
            self._learn(wanted, whole)
            if room is not None:
                kept, room = _fitting(whole, room)
                whole = whole[:kept]
            rows += whole
        return rows

    def _completed(self, bare: list[Row], answer: Any) -> list[Row]:
        rows = []
        for row, response in zip(bare, answer.responses, strict=True):
            found = response.response_range.kvs
            if not found:
                raise self._layout.damaged(self._layout.keys(row.key)[1])
            rows.append(row._replace(body=self._layout.read_body(row.key, found[0].value)))
        return rows

    async def _piece(
        self, wanted: Wanted, after: Place | None, limit: int, revision: int
    ) -> tuple[list[Row], bool, int, int]:
        """At most `limit` rows after a place; whether more follow, how many, and the revision of all."""
        metas, bodies = self._layout.spans(wanted.bucket, wanted.namespace, after)
        reads = [read_op(metas.begin, metas.end, limit=limit, revision=revision)]
        if not wanted.meta_only:
            reads.append(read_op(bodies.begin, bodies.end, limit=limit, revision=revision))
        answer = await self._client.call(TXN, TxnRequest(success=reads))
        found = answer.responses[0].response_range
        contents = None if wanted.meta_only else answer.responses[1].response_range.kvs
        rows = await self._opened(partial(self._rows, found.kvs, contents))
        self._learn(wanted, rows)
        return rows, found.more, found.count - len(rows), revision or answer.header.revision

    def _rows(self, metas: Any, bodies: Any) -> list[Row]:
        layout = self._layout
        if bodies is None:
            return [layout.row(meta, b"") for meta in metas]
        skip, skip_body = len(layout.meta), len(layout.body)
        rows = []
        for meta, body in zip_longest(metas, bodies):
            if meta is None or body is None or meta.key[skip:] != body.key[skip_body:]:
                raise layout.damaged((meta or body).key)
            rows.append(layout.row(meta, body.value))
        return rows

    def _how_many(self, wanted: Wanted, have: int, room: int | None) -> int:
        """How many rows to ask for, so that an answer is neither much too large nor one of many."""
        most = _MOST_METAS if wanted.meta_only else _MOST_ROWS
        if wanted.limit is not None:
            most = min(most, wanted.limit - have)
        if room is None:
            room = _ANSWER_BYTES
        usual = self._row_bytes.get((wanted.bucket, wanted.meta_only))
        return min(most, _FIRST_ROWS if usual is None else room // usual + 1)

    def _learn(self, wanted: Wanted, rows: list[Row]) -> None:
        if rows:
            size = sum(len(row.meta) + len(row.body) for row in rows)
            self._row_bytes[(wanted.bucket, wanted.meta_only)] = size // len(rows) + 1


def _fitting(rows: list[Row], room: int) -> tuple[int, int]:
    """How many rows to keep until `room` is filled, and what is left of it."""
    for index, row in enumerate(rows, 1):
        room -= len(row.meta) + len(row.body)
        if room <= 0:
            return index, 0
    return len(rows), room
