"""Rows in etcd: durable, and shared by several servers.

Each write is one transaction, on the condition that the row is as expected, so it happens once, whatever
other servers write and however often it is attempted. The write is acknowledged when the feed has published
it, so that later reads here include it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

from certwright.kube.store.contract import (
    Changed,
    Compacted,
    DamagedRow,
    Encode,
    Follower,
    Key,
    ListOptions,
    Page,
    Row,
    StoreError,
    Unavailable,
    Usage,
    check_delete,
    check_put,
)
from certwright.kube.store.damage import Check
from certwright.kube.store.envelope import Seal
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.feed import Feed
from certwright.kube.store.etcd.identity import check_mark, identify
from certwright.kube.store.etcd.listing import Reader
from certwright.kube.store.etcd.maintenance import DEFAULT_QUOTA_BYTES, Compaction, QuotaWatch, compacted
from certwright.kube.store.etcd.messages import (
    RANGE,
    STATUS,
    TXN,
    RangeRequest,
    StatusRequest,
    TxnRequest,
    read_op,
)
from certwright.kube.store.etcd.row_format import settle_format
from certwright.kube.store.etcd.rows import Content, LastState, Layout, Meta, encode_apart, join, new_writer
from certwright.kube.store.etcd.sealing import EtcdSweeping, load_ring
from certwright.kube.store.fanout import Fanout, Subscription
from certwright.kube.store.key_rotation import Rotation
from certwright.kube.store.log import MAX_BYTES, EventLog
from certwright.kube.store.mark import MarkFile, MarkKeeper
from certwright.kube.store.pages import Query

DEFAULT_PREFIX = "/certwright"
DEFAULT_COMPACTION_S = 300.0
_OLDEST = (3, 4)
_MARK_EVERY_S = 10.0
"""A snapshot of etcd that is older than this is noticed at the start."""


async def open_etcd(
    access: Access,
    *,
    seal: Seal | None = None,
    check: Check | None = None,
    prefix: str = DEFAULT_PREFIX,
    compact_every_s: float = DEFAULT_COMPACTION_S,
    quota_bytes: int = DEFAULT_QUOTA_BYTES,
    window_bytes: int = MAX_BYTES,
    upgrade_format: bool = False,
    marks: MarkFile | None = None,
) -> EtcdStore:
    """Open the store below a prefix of an etcd cluster, or create it.

    `seal`: how rows are sealed; None: not at all. `compact_every_s` 0: another process compacts etcd.
    `quota_bytes`: etcd's quota, if etcd does not report it. `window_bytes`: how much of what happens from now
    on can be watched later. `upgrade_format`: see `row_format`. `check`: the test that readable rows pass.
    `marks`: where the store's id is recorded beside it; None: any store is accepted.

    Raises `Unavailable`, after some patience, and `Damaged`.
    """
    client = EtcdClient(access)
    layout = Layout(prefix, seal, check)
    try:
        await _check_version(client)
        if marks is not None:
            await check_mark(client, layout, marks)
        await settle_format(client, layout, upgrade=upgrade_format)
        await load_ring(client, layout)
        mark = await identify(client, layout)
        if marks is not None:
            marks.write(mark)
    except BaseException as error:
        await client.close()
        if not isinstance(error, OSError):
            raise
        raise Unavailable(f"{error.filename} cannot be read or written: {error.strerror}") from error
    quota = QuotaWatch(client, quota_bytes)
    store = EtcdStore(
        client,
        layout,
        mark.revision,
        quota,
        window_bytes=window_bytes,
        compact_every_s=compact_every_s,
    )
    if marks is not None:
        store.keep_mark(MarkKeeper(marks, mark, lambda: store.revision))
    return store


async def _check_version(client: EtcdClient) -> None:
    version = (await client.call(STATUS, StatusRequest())).version
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        raise Unavailable(f"etcd at {client.member} is version {version}; certwright needs 3.4 or newer")


class EtcdStore:
    """A `contract.Store`, and `contract.Shared`; made by `open_etcd`."""

    def __init__(
        self,
        client: EtcdClient,
        layout: Layout,
        revision: int,
        quota: QuotaWatch,
        *,
        window_bytes: int = MAX_BYTES,
        compact_every_s: float = 0,
    ) -> None:
        self._client = client
        self._layout = layout
        self._fanout = Fanout(EventLog(revision, max_bytes=window_bytes))
        self._feed = Feed(client, layout, self._fanout)
        self._reader = Reader(client, layout, self._catch_up)
        self._locks = KeyLocks()
        self._closing = False
        self._keeper: MarkKeeper | None = None
        seal = layout.seal
        self.rotation = Rotation(seal, EtcdSweeping(client, layout, seal, self._feed.reach)) if seal else None
        """The key rotation, if rows are sealed."""
        if self.rotation is not None:
            self.rotation.go_on()
        self.damage = layout.damage
        """See `contract.Store.damage`."""
        self._compaction = Compaction(client, layout.compaction)
        self._quota = quota
        self._tasks = [asyncio.create_task(quota.run(), name="quota of etcd")]
        if compact_every_s:
            run = self._compaction.run(compact_every_s)
            self._tasks.append(asyncio.create_task(run, name="etcd compaction"))

    def keep_mark(self, keeper: MarkKeeper) -> None:
        """Keep the mark up to date from now on."""
        self._keeper = keeper
        self._tasks.append(asyncio.create_task(keeper.run(_MARK_EVERY_S), name="mark of the store"))

    @property
    def usage(self) -> Usage | None:
        return self._quota.usage

    @property
    def revision(self) -> int:
        """The last committed revision that is published here."""
        return self._feed.revision

    @property
    def trouble(self) -> str:
        return self._client.trouble

    async def up_to(self, revision: int) -> int:
        if revision > self.revision:
            now = (await self._client.call(RANGE, RangeRequest(key=self._layout.format))).header.revision
            await self._feed.reach(min(revision, now))
        return self.revision

    async def _catch_up(self) -> None:
        """Wait until the feed has everything that etcd has now."""
        now = (await self._client.call(RANGE, RangeRequest(key=self._layout.format))).header.revision
        await self._feed.reach(now)

    def follow(self, follower: Follower) -> None:
        self._feed.follow(follower)

    async def wait_lost(self) -> StoreError:
        return await asyncio.shield(self._feed.lost)

    # -- reading

    async def check(self) -> None:
        """Return if etcd answers: a read needs a majority of the members, as a write does."""
        await self._reader.row(Key("", "", ""))

    async def get(self, key: Key) -> Row | None:
        """The committed row, from any server's write."""
        row = await self._reader.row(key)
        if row is not None:
            await self._feed.reach(row.revision)
        return row

    async def latest(self, key: Key) -> Row | None:
        """The row after the writes under way here."""
        await self._locks.over(key)
        return await self.get(key)

    def recent(self, key: Key) -> Row | None:
        return None if self._locks.is_taken(key) else self._fanout.log.row(key)

    async def settled(self, key: Key) -> None:
        """See `contract.Store.settled`; what `latest` shows is committed."""

    async def list(self, bucket: str, namespace: str | None = None, **options: Unpack[ListOptions]) -> Page:
        """A page of the bucket; see `contract.Store.list`."""
        query = Query(bucket, namespace, **options)
        try:
            page = await self._reader.page(query, query.revision)
        except Compacted:
            raise await compacted(self._client, self._layout) from None
        await self._feed.reach(page.revision)
        return page

    async def count(self, bucket: str, namespace: str | None = None) -> int:
        """The number of rows."""
        counted, revision = await self._reader.count(self._layout.spans(bucket, namespace, None)[0])
        await self._feed.reach(revision)
        return counted

    def watch(self, bucket: str, *, after: int, namespace: str | None = None) -> Subscription:
        """Every event of the bucket after a revision; see `contract.Store.watch`."""
        self._feed.hurry()
        return self._fanout.subscribe(bucket, after=after, namespace=namespace)

    # -- writing

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        """Write a row; see `contract.Store.put`."""
        self._check_open()
        content = encode_apart(encode)
        async with self._locks.take(key):
            expected = expect if expect is not None else _revision_of(await self._reader.row(key))
            while True:
                revision, current = await self._put(key, content, expected)
                if revision:
                    return Row(key, revision, join(content.pieces, revision), content.body)
                if _revision_of(current) == expected:
                    await self._catch_up()  # the data keys were rotated
                if expect is not None:
                    await self._feed.reach(_revision_of(current))
                    check_put(current, expect)
                expected = _revision_of(current)

    async def _put(self, key: Key, content: Content, expected: int) -> tuple[int, Row | None]:
        """Write a row that is at a revision; returns the revision of the write. 0: it is at another one, or
        was sealed with an old key; then the present row is returned, too."""
        layout, meta, retries = self._layout, Meta(new_writer(), content.pieces), self._client.retries
        request = TxnRequest(
            compare=layout.conditions(key, expected),
            success=layout.put_ops(key, meta, content.body),
            failure=list(map(read_op, layout.keys(key))),
        )
        with self._feed.seeking(meta.writer):
            answer = await self._client.call(TXN, request)
            revision = int(answer.header.revision) if answer.succeeded else 0
            revision = revision or await self._done_before(meta.writer, answer, retries)
            await self._feed.reach(revision)
        return revision, None if revision else await self._reader.row_of(answer)

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        """Remove a row; see `contract.Store.delete`."""
        self._check_open()
        content = None if encode is None else encode_apart(encode)
        writer = new_writer()
        with self._feed.seeking(writer):
            async with self._locks.take(key):
                row = await self._delete(key, content, writer, expect)
                await self._feed.reach(row.revision)
        return row

    async def _delete(self, key: Key, content: Content | None, writer: bytes, expect: int | None) -> Row:
        row = self._fanout.log.row(key) if expect is not None else None
        while True:
            if row is None or row.revision != expect:
                row = await self._reader.row(key)
                await self._feed.reach(_revision_of(row))
            current, row = check_delete(row, expect), None
            last = _last_state(current, content, writer)
            if revision := await self._remove(key, current.revision, last):
                return last.row(revision, current.body)

    async def _remove(self, key: Key, revision: int, last: LastState) -> int:
        """Delete a row at a revision; returns the revision of the deletion, 0: it is at another one."""
        retries = self._client.retries
        request = TxnRequest(
            compare=self._layout.conditions(key, revision), success=self._layout.delete_ops(last), failure=[]
        )
        answer = await self._client.call(TXN, request)
        if answer.succeeded:
            return int(answer.header.revision)
        done = await self._done_before(last.writer, answer, retries)
        await self._catch_up()  # the data keys may have been rotated
        return done

    async def discard(self, key: Key, encode: Encode) -> Row:
        """Remove a row that cannot be read; see `contract.Store.discard`."""
        self._check_open()
        pieces, body = encode_apart(encode)
        last = LastState(new_writer(), key, pieces, body)
        with self._feed.seeking(last.writer):
            async with self._locks.take(key):
                while True:
                    current_revision = await self._reader.revision_of(key)
                    try:
                        raise Changed(check_delete(await self._reader.row(key), None))
                    except DamagedRow:
                        revision = await self._remove(key, current_revision, last)
                    if revision:
                        await self._feed.reach(revision)
                        return last.row(revision, b"")

    async def _done_before(self, writer: bytes, answer: Any, retries: int) -> int:
        """The revision of a write that failed because an earlier attempt, whose response was lost, had
        succeeded; 0 if none had."""
        if self._client.retries == retries:
            return 0
        return await self._feed.find(writer, answer.header.revision)

    def _check_open(self) -> None:
        if self._closing:
            raise Unavailable("the store is closed")

    async def compact(self, revision: int) -> None:
        """Compact etcd up to a revision. Raises `Compacted` if that was done already."""
        await self._compaction.compact(revision)

    async def close(self) -> None:
        """Finish the writes under way, end all watches, close the connections."""
        if self._closing:
            return
        self._closing = True
        if self.rotation is not None:
            await self.rotation.close()
        await self._locks.all_over()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._keeper is not None:
            await self._keeper.close(save=self._client.lost is None)
        await self._reader.close()
        await self._feed.close()
        self._fanout.close()
        await self._client.close()


class KeyLocks:
    """A lock for each key: writes to a key run one after the other, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: dict[Key, asyncio.Lock] = {}
        self._users = Counter[Key]()

    @asynccontextmanager
    async def take(self, key: Key) -> AsyncIterator[None]:
        """Hold the lock of `key` inside the block."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]

    def is_taken(self, key: Key) -> bool:
        """Whether a write to `key` is under way or queued."""
        return key in self._locks

    async def over(self, key: Key) -> None:
        """Return when all writes to `key` that are queued now are done."""
        if key in self._locks:
            async with self.take(key):
                pass

    async def all_over(self) -> None:
        """Return when the queues are empty."""
        while self._locks:
            await self.over(next(iter(self._locks)))


def _revision_of(row: Row | None) -> int:
    return row.revision if row is not None else 0


def _last_state(current: Row, content: Content | None, writer: bytes) -> LastState:
    if content is None:
        return LastState(writer, current.key, [current.meta], None)
    body = None if content.body == current.body else content.body
    return LastState(writer, current.key, content.pieces, body)
