"""Rows and pages of rows from etcd, by linearizable reads: they include every commit of every server."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from certwright.kube.store.contract import Choice, DamagedRow, Key, Page, Row, StoreError
from certwright.kube.store.envelope import UnknownDataKey
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import (
    MOST_OPERATIONS,
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    count_op,
    exists,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import INDEX_EVERY, Layout, Span, is_indexed
from certwright.kube.store.log import Place
from certwright.kube.store.pages import Query

_log = logging.getLogger(__name__)

# Rows per request; and in the first one, while their size is unknown.
_MOST_ROWS = 1_000
_MOST_METAS = 5_000
_FIRST_ROWS = 8
_ANSWER_BYTES = 4 << 20
_MANY = 2_000
"""Rows after a page from which on the index is read: below that, counting them takes at most 2 ms."""
_SPARE = 2
"""Keys beyond those that a page's rows are expected to have, so that few pages need a second range."""


class _Piece(NamedTuple):
    """Some rows of a page; whether more follow (`seems`: not known, but likely), the revision of all, and the
    last place read. `read` is the number of keys read, `left` how many follow; None: not known."""

    rows: list[Row]
    damaged: list[Key]
    more: bool
    seems: bool
    revision: int
    last: Place | None
    read: int
    left: int | None


class Reader:
    """Reads below one prefix. `catch_up` waits until the feed has everything that etcd has now; None: no feed
    follows etcd, and the data keys are those of the revision that is read."""

    def __init__(
        self,
        client: EtcdClient,
        layout: Layout,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._layout = layout
        self._catch_up = catch_up
        self._index = SparseIndex(client, layout)
        self._row_bytes: dict[tuple[str, bool], int] = {}

    async def close(self) -> None:
        """Stop what runs in the background."""
        await self._index.close()

    async def row(self, key: Key) -> Row | None:
        """The committed row. Raises `DamagedRow`."""
        meta_key, body_key = self._layout.keys(key)
        return await self.row_of(
            await self._client.call(TXN, TxnRequest(success=[read_op(meta_key), read_op(body_key)]))
        )

    async def row_of(self, answer: Any) -> Row | None:
        """The row in a transaction's two reads. Raises `DamagedRow`."""
        metas, bodies = (response.response_range.kvs for response in answer.responses)
        if not metas:
            return None
        row = await self._opened(partial(self._layout.row, metas[0], bodies[0].value if bodies else b""))
        if isinstance(row, DamagedRow):
            raise row
        return row

    async def revision_of(self, key: Key) -> int:
        """The revision of a row, which need not be readable; 0: it does not exist."""
        kvs = (await self._client.call(RANGE, RangeRequest(key=self._layout.keys(key)[0]))).kvs
        return kvs[0].mod_revision if kvs else 0

    async def _opened(self, read: Callable[[], Row]) -> Row | DamagedRow:
        try:
            return read()
        except UnknownDataKey:
            # Another server has begun to encrypt with a new key, which this server has not read yet.
            if self._catch_up is not None:
                await self._catch_up()
        except DamagedRow as error:
            return error
        try:
            return read()
        except DamagedRow as error:
            self._layout.damage.note(error)
            return error

    async def _readable(self, reads: Iterable[Callable[[], Row]]) -> tuple[list[Row], list[Key]]:
        """The rows that can be read, and the keys of the others."""
        rows, damaged = list[Row](), list[Key]()
        for read in reads:
            row = await self._opened(read)
            if isinstance(row, DamagedRow):
                damaged.append(row.key)
            else:
                rows.append(row)
        return rows, damaged

    async def count(self, span: Span) -> tuple[int, int]:
        """The number of keys, and the revision of the count."""
        request = RangeRequest(key=span.begin, range_end=span.end, count_only=True)
        answer = await self._client.call(RANGE, request)
        return answer.count, answer.header.revision

    async def page(self, query: Query, revision: int | None) -> Page:
        """The requested rows, see `contract.Store.list`. Raises `Compacted`, `FutureRevision`."""
        if query.keep is not None:
            return await self._chosen(query, query.keep, revision)
        return await self._page(query, revision)

    async def _page(self, query: Query, revision: int | None) -> Page:
        """As `page`, for all rows in a span."""
        rows, damaged = list[Row](), list[Key]()
        room, more, seems, last = query.max_bytes, True, False, query.after
        left: int | None = None
        index = await self._index.current(query.bucket, revision or 0)
        while more and (query.limit is None or len(rows) < query.limit) and (room is None or room > 0):
            ask = self._how_many(query, len(rows), room)
            counted = query.counted and left is None
            piece = await self._piece(query, last, ask, revision or 0, index, counted=counted)
            batch, more, seems, revision = piece.rows, piece.more, piece.seems, piece.revision
            left = piece.left if piece.left is not None else left and left - piece.read
            last = piece.last or last
            damaged += piece.damaged
            if room is not None:
                kept, room = _fitting(batch, room)
                if kept < len(batch):
                    left = left if left is None else left + len(batch) - kept
                    more, seems, batch = True, False, batch[:kept]
                    last = batch[-1].key[1:]
            rows += batch
            if index is None and more and (left or 0) > _MANY:
                index = await self._index.read(query.bucket)
        after = last
        while more and seems:
            piece = await self._piece(replace(query, meta_only=True), after, 1, revision or 0, index)
            more, seems = piece.more or piece.read > 0, piece.seems and not piece.read
            after = piece.last or after
        return Page(rows, revision or 0, more, left if more else None, last, tuple(damaged))

    async def _chosen(self, query: Query, keep: Choice, revision: int | None) -> Page:
        """All rows of one revision: the metadata first, then the bodies of the accepted rows."""
        most = max(query.limit or 0, _MOST_ROWS)
        metas = replace(query, keep=None, meta_only=True, limit=most)
        bare = await self._page(metas, revision)
        page = bare.only(list(filter(keep, bare.rows)), query.limit)
        if query.meta_only:
            return page
        return await self._with_bodies(query, page)

    async def _with_bodies(self, query: Query, page: Page) -> Page:
        """The page's rows with their bodies: all of them, or the first ones that fill `query.max_bytes`."""
        bare, rows, damaged = page.rows, list[Row](), list(page.damaged)
        room, done = query.max_bytes, 0
        while done < len(bare) and (room is None or room > 0):
            some = bare[done:][: min(self._how_many(query, len(rows), room), MOST_OPERATIONS)]
            done += len(some)
            complete, unreadable = await self._bodies_of(some, page.revision)
            self._learn(query, complete)
            if room is not None:
                kept, room = _fitting(complete, room)
                if kept < len(complete):
                    done += 1 - len(some) + [row.key for row in some].index(complete[kept - 1].key)
                    complete = complete[:kept]
            rows += complete
            damaged += unreadable
        if done < len(bare):
            page = page.only(bare, done)
        return replace(page, rows=rows, damaged=tuple(damaged))

    async def _bodies_of(self, rows: list[Row], revision: int) -> tuple[list[Row], list[Key]]:
        """The rows with their bodies of that revision, and the keys of those that cannot be read."""
        reads = [read_op(self._layout.keys(row.key)[1], revision=revision) for row in rows]
        answer = await self._client.call(TXN, TxnRequest(success=reads))
        bodies = [
            next((kv.value for kv in response.response_range.kvs), b"") for response in answer.responses
        ]
        return await self._readable(
            partial(self._layout.with_body, row, body) for row, body in zip(rows, bodies, strict=True)
        )

    async def _piece(
        self,
        query: Query,
        after: Place | None,
        limit: int,
        revision: int,
        index: BucketIndex | None,
        *,
        counted: bool = False,
    ) -> _Piece:
        """At most `limit` rows after a place; maybe fewer, even none, if `index` is given."""
        layout = self._layout
        span, _ = layout.spans(query.bucket, query.namespace, after)
        end = index.end_of(span.begin[len(layout.meta) :], limit) if index is not None else None
        metas, bodies = layout.spans(query.bucket, query.namespace, after, end)
        reads = [read_op(metas.begin, metas.end, limit=limit, revision=revision)]
        if not query.meta_only:
            reads.append(read_op(bodies.begin, bodies.end, limit=limit, revision=revision))
        if counted:
            reads.append(count_op(span.begin, span.end, revision=revision))
        answer = await self._client.call(TXN, TxnRequest(success=reads))
        response = answer.responses[0].response_range
        kept, values = list(response.kvs), dict[bytes, bytes]()
        skip, skip_body = len(layout.meta), len(layout.body)
        if not query.meta_only:
            contents = answer.responses[1].response_range
            values = {body.key[skip_body:]: body.value for body in contents.kvs}
            if contents.more:
                # If a row lacks one of its two keys, the two responses do not end at the same row.
                last_body = contents.kvs[-1].key[skip_body:]
                kept = [meta for meta in kept if meta.key[skip:] <= last_body]
        rows, damaged = await self._readable(
            partial(layout.row, meta, None if query.meta_only else values.get(meta.key[skip:], b""))
            for meta in kept
        )
        self._learn(query, rows)
        if index is not None:
            self._index.add(index.missing(meta.key[skip:] for meta in kept))
        more, bounded = response.more or len(kept) < len(response.kvs), metas.end < span.end
        last = layout.key_of(kept[-1].key)[1:] if kept else None
        if bounded and not more and end is not None:
            last = layout.key_of(layout.meta + end)[1:]
        count = answer.responses[-1].response_range.count if counted else response.count
        left = count - len(kept) if counted or not bounded else None
        return _Piece(
            rows,
            damaged,
            more or bounded,
            bounded and not more,
            revision or answer.header.revision,
            last,
            len(kept),
            left,
        )

    def _how_many(self, query: Query, have: int, room: int | None) -> int:
        """How many rows to request, so that a response is neither much too large nor one of many."""
        most = _MOST_METAS if query.meta_only else _MOST_ROWS
        if query.limit is not None:
            most = min(most, query.limit - have)
        if room is None:
            room = _ANSWER_BYTES
        usual = self._row_bytes.get((query.bucket, query.meta_only))
        return min(most, _FIRST_ROWS if usual is None else room // usual + 1)

    def _learn(self, query: Query, rows: list[Row]) -> None:
        if rows:
            size = sum(len(row.meta) + len(row.body) for row in rows)
            self._row_bytes[(query.bucket, query.meta_only)] = size // len(rows) + 1


def _fitting(rows: list[Row], room: int) -> tuple[int, int]:
    """How many rows to keep until they fill `room` bytes, and how many bytes are left of it."""
    for index, row in enumerate(rows, 1):
        room -= len(row.meta) + len(row.body)
        if room <= 0:
            return index, 0
    return len(rows), room


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """The index of one bucket: sorted keys, without their prefix, at `revision` or later."""

    names: list[bytes]
    revision: int

    def end_of(self, begin: bytes, rows: int) -> bytes | None:
        """The last key of a range that has about so many rows, or more; None: the range has no end."""
        position = bisect_right(self.names, begin) + rows // INDEX_EVERY + _SPARE
        return self.names[position] if position < len(self.names) else None

    def missing(self, names: Iterable[bytes]) -> list[bytes]:
        """The keys among these that belong into the index and are missing from it."""
        present = self.names
        return [
            name
            for name in names
            if is_indexed(name) and (not (at := bisect_right(present, name)) or present[at - 1] != name)
        ]


class SparseIndex:
    """Sparse index: every 128th key of a bucket, on average, as ends of ranges.

    etcd counts all keys of a range, whatever its limit (`treeIndex.Revisions`, 3.4 to 3.6: some 0.9 µs each).
    If every page of a list ran to the end of the bucket, the time of a list would grow with the square of its
    length.

    A row is indexed if a hash of its key says so. The transaction that writes or deletes the row writes or
    deletes its index key, which is empty. The index only bounds ranges: with missing or needless keys, a list
    takes longer and contains the same rows.
    """

    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._buckets: dict[str, BucketIndex] = {}
        self._missing = set[bytes]()
        self._adding: asyncio.Task[None] | None = None

    async def current(self, bucket: str, revision: int) -> BucketIndex | None:
        """The index of a bucket, at a revision or later (0: now); None: it has not been read, because the
        bucket was not large. Raises `Unavailable`."""
        index = self._buckets.get(bucket)
        return index if index is None or 0 < revision <= index.revision else await self.read(bucket)

    async def read(self, bucket: str) -> BucketIndex:
        """The index of a bucket as it is now. Raises `Unavailable`."""
        span = self._layout.index_span(bucket)
        answer = await self._client.call(
            RANGE, RangeRequest(key=span.begin, range_end=span.end, keys_only=True)
        )
        skip = len(self._layout.index)
        index = BucketIndex([kv.key[skip:] for kv in answer.kvs], answer.header.revision)
        self._buckets[bucket] = index
        return index

    def add(self, names: Iterable[bytes]) -> None:
        """Add keys of rows that an earlier version of certwright has written, in the background."""
        self._missing.update(names)
        if self._missing and (self._adding is None or self._adding.done()):
            self._adding = asyncio.create_task(self._add(), name="sparse index")

    async def _add(self) -> None:
        try:
            while self._missing:
                name = self._missing.pop()
                row, write = exists(self._layout.meta + name), put_op(self._layout.index + name, b"")
                await self._client.call(TXN, TxnRequest(compare=[row], success=[write]))
        except StoreError as error:
            self._missing.clear()
            _log.debug("the index of the rows in etcd was not completed: %s", error)

    async def close(self) -> None:
        """Stop adding keys."""
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
