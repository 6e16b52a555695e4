"""In-memory store: for tests, and for servers without persistent state."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Unpack

from certwright.kube.store.contract import (
    Changed,
    Encode,
    Event,
    Key,
    ListOptions,
    Page,
    Row,
    Unavailable,
    check_delete,
    check_put,
    tombstone,
)
from certwright.kube.store.damage import DamagedRows
from certwright.kube.store.fanout import Fanout, Subscription
from certwright.kube.store.log import MAX_BYTES, EventLog, Place
from certwright.kube.store.pages import Query, Undo, count_past, cut


class _Bucket:
    """Rows by place, and the places in order."""

    def __init__(self) -> None:
        self.rows: dict[Place, Row] = {}
        self._places: list[Place] = []

    def set(self, place: Place, row: Row) -> None:
        if place not in self.rows:
            insort(self._places, place)
        self.rows[place] = row

    def remove(self, place: Place) -> None:
        del self.rows[place]
        del self._places[bisect_left(self._places, place)]

    def span(self, namespace: str | None, after: Place | None) -> tuple[int, int]:
        """The range of places of a namespace after `after`."""
        begin, end = 0, len(self._places)
        if namespace is not None:
            begin = bisect_left(self._places, (namespace, ""))
            end = bisect_left(self._places, (namespace + "\0", ""))
        return (begin if after is None else max(begin, bisect_right(self._places, after))), end

    def scan(self, begin: int, end: int, *, meta_only: bool) -> Iterator[Row]:
        for index in range(begin, end):
            row = self.rows[self._places[index]]
            yield row._replace(body=b"") if meta_only else row


def _count_undone(rows: _Bucket, query: Query, undo: Undo) -> int:
    """How many fewer rows exist now than at the past revision."""
    return count_past(undo, query) - sum(place in rows.rows for place in undo if query.covers(place))


class MemoryStore:
    """A `contract.Store` that commits immediately and loses everything when the process ends.

    `window_bytes`: how much of the recent past can still be watched and listed.
    """

    def __init__(self, *, window_bytes: int = MAX_BYTES) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._log = EventLog(max_bytes=window_bytes)
        self._fanout = Fanout(self._log)
        self._closed = False
        self.damage = DamagedRows()
        """Empty; see `contract.Store.damage`."""

    @property
    def revision(self) -> int:
        """The last committed revision; 0 in a new store."""
        return self._log.revision

    @property
    def trouble(self) -> str:
        """Always empty, because nothing can fail here."""
        return ""

    async def up_to(self, revision: int) -> int:  # noqa: ARG002 - no other process writes here
        """The last committed revision, without waiting."""
        return self.revision

    async def check(self) -> None:
        """Always succeeds, because nothing can fail here."""

    async def get(self, key: Key) -> Row | None:
        """The committed row."""
        return self._find(key)

    async def latest(self, key: Key) -> Row | None:
        """The committed row, because every write commits immediately."""
        return self._find(key)

    def recent(self, key: Key) -> Row | None:
        """None, because `latest` reads memory, too."""

    async def settled(self, key: Key) -> None:
        """Return immediately, because every write is committed."""

    def _find(self, key: Key) -> Row | None:
        bucket = self._buckets.get(key.bucket)
        return bucket.rows.get((key.namespace, key.name)) if bucket is not None else None

    async def list(self, bucket: str, namespace: str | None = None, **options: Unpack[ListOptions]) -> Page:
        """A page of the bucket; see `contract.Store.list`."""
        query = Query(bucket, namespace, **options)
        revision = query.revision
        undo = self._log.undo(bucket, revision) if revision is not None else {}
        stored = self._buckets.get(bucket) or _Bucket()
        begin, end = stored.span(namespace, query.after)
        rows, more, last = cut(stored.scan(begin, end, meta_only=query.meta_only), query, undo)
        remaining = None
        if query.counted and more and query.keep is None:
            remaining = end - begin - len(rows) + _count_undone(stored, query, undo)
        return Page(rows, self.revision if revision is None else revision, more, remaining, last)

    async def count(self, bucket: str, namespace: str | None = None) -> int:
        """The number of rows."""
        begin, end = (self._buckets.get(bucket) or _Bucket()).span(namespace, None)
        return end - begin

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        """Write a row; see `contract.Store.put`."""
        self._check_open()
        previous = self._find(key)
        check_put(previous, expect)
        revision = self.revision + 1
        row = Row(key, revision, *encode(revision))
        self._buckets.setdefault(key.bucket, _Bucket()).set((key.namespace, key.name), row)
        self._fanout.publish([Event(revision, row, previous)])
        return row

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        """Remove a row; see `contract.Store.delete`."""
        self._check_open()
        previous = check_delete(self._find(key), expect)
        revision = self.revision + 1
        row = tombstone(previous, revision, encode)
        self._buckets[key.bucket].remove((key.namespace, key.name))
        self._fanout.publish([Event(revision, row, previous, deleted=True)])
        return row

    async def discard(self, key: Key, encode: Encode) -> Row:  # noqa: ARG002 - none is ever damaged
        """No row here is ever damaged: raises `Missing` or `Changed`."""
        raise Changed(check_delete(self._find(key), None))

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")

    def watch(self, bucket: str, *, after: int, namespace: str | None = None) -> Subscription:
        """Every event of the bucket after a revision; see `contract.Store.watch`."""
        return self._fanout.subscribe(bucket, after=after, namespace=namespace)

    async def close(self) -> None:
        """End all watches and take no more writes."""
        self._closed = True
        self._fanout.close()
