"""Rows in an SQLite file: durable, with group commit of concurrent writes.

The event loop decides and reads; one thread commits (`writer`). One batch is in flight while the next
gathers, without a timer: a lone writer waits only for the commit of its write, and under load the batches
grow.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Unpack

import msgspec

from certwright.kube.store.contract import (
    Changed,
    DamagedRow,
    Encode,
    Event,
    Key,
    ListOptions,
    Lost,
    Page,
    Row,
    StoreError,
    Unavailable,
    check_delete,
    check_put,
    tombstone,
)
from certwright.kube.store.damage import Check, DamagedRows, Opener
from certwright.kube.store.envelope import Seal
from certwright.kube.store.fanout import Fanout, Subscription
from certwright.kube.store.key_rotation import Rotation
from certwright.kube.store.log import MAX_BYTES, EventLog
from certwright.kube.store.pages import Query, Undo, count_past, cut
from certwright.kube.store.sqlite.file import SELECT_REVISION, Files, explain, open_files, write_probe
from certwright.kube.store.sqlite.guard import Guard
from certwright.kube.store.sqlite.keys import AbsentKeys
from certwright.kube.store.sqlite.writer import Batch, Overlay, SqliteSweeping, Writer

_GET = "SELECT revision, meta, body FROM rows WHERE bucket = ? AND namespace = ? AND name = ?"


async def open_sqlite(
    path: Path,
    *,
    seal: Seal | None = None,
    check: Check | None = None,
    begin_at: int = 0,
    expects_rows: bool = False,
    window_bytes: int = MAX_BYTES,
) -> SqliteStore:
    """Open the store in a file, or create it; its folder must exist.

    `begin_at`: the revision of a new store. `expects_rows`: see `open_files`. `seal`: how rows are sealed in
    the file; None: not at all. Rows that do not conform yet are rewritten first. `check`: the test that
    readable rows pass. `window_bytes`: how much of the recent past can still be watched and listed. The file
    and those beside it are readable by their owner only. Raises `Unavailable` and `Damaged`.
    """
    files = await asyncio.to_thread(open_files, path, seal, begin_at, expects_rows=expects_rows)
    return SqliteStore(files, seal=seal, check=check, window_bytes=window_bytes)


class SqliteStore:
    """A `contract.Store` in a file; made by `open_sqlite`.

    In addition to the contract, any method raises `Damaged` when SQLite finds the file damaged.
    """

    def __init__(
        self, files: Files, *, seal: Seal | None = None, check: Check | None = None, window_bytes: int
    ) -> None:
        self._path = files.path
        self._lock = files.lock
        self._reader = files.reader
        self._loop = asyncio.get_running_loop()
        self._log = EventLog(files.revision, max_bytes=window_bytes)
        self._fanout = Fanout(self._log)
        self._overlay = Overlay()
        self._absent = AbsentKeys(files.reader, self._overlay.keys)
        self._handed_out = files.revision
        self._gathering = Batch()
        self._in_flight: Batch | None = None
        self._flush_soon = False
        self._closing = False
        self._commits = 0
        self.trouble = ""
        """See `contract.Store.trouble`."""
        self.damage = DamagedRows()
        """See `contract.Store.damage`."""
        self._opener = Opener(seal, check, self.damage)
        self._writer = Writer(files.writer, files.path, self._done, seal)
        self._guard = Guard(
            files.path,
            self._writer.log.files,
            files.mark,
            revision=lambda: self.revision,
            lost=self._lose,
        )
        self.rotation = Rotation(seal, SqliteSweeping(self._writer, seal, files.path)) if seal else None
        """The key rotation, if rows are sealed."""
        if self.rotation is not None:
            self.rotation.go_on()

    @property
    def revision(self) -> int:
        """The last committed revision; 0 in a new store."""
        return self._log.revision

    @property
    def commits(self) -> int:
        """The number of commits since the store was opened; each is of one or more writes."""
        return self._commits

    # -- reading

    async def up_to(self, revision: int) -> int:  # noqa: ARG002 - no other process writes here
        """The last committed revision, without waiting."""
        return self.revision

    async def get(self, key: Key) -> Row | None:
        """The committed row."""
        self._guard.require()
        entry = self._overlay.find(key)
        return self._read(key) if entry is None else entry.committed

    async def latest(self, key: Key) -> Row | None:
        """The row as the next write will find it."""
        self._guard.require()
        entry = self._overlay.find(key)
        return self._read(key) if entry is None else entry.latest

    def recent(self, key: Key) -> Row | None:
        """None, because `latest` knows recent rows, too."""

    async def settled(self, key: Key) -> None:
        """Wait for the write of a row that is under way; see `contract.Store.settled`."""
        if (entry := self._overlay.find(key)) is not None:
            await self._waiter(entry.batch)

    def _read(self, key: Key) -> Row | None:
        if (event := self._log.last(key)) is not None:
            return None if event.deleted else event.row
        if self._absent.lacks(key):
            return None
        try:
            row = self._reader.execute(_GET, key).fetchone()
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
        if row is None:
            return None
        return self._opener.row(Row(key, *row))

    async def list(self, bucket: str, namespace: str | None = None, **options: Unpack[ListOptions]) -> Page:
        """A page of the bucket; see `contract.Store.list`."""
        self._guard.require()
        query = Query(bucket, namespace, **options)
        revision = query.revision
        # The commit under way may or may not be in the database yet; for the reader it is not.
        unsure = self._overlay.before(self._in_flight, bucket) if self._in_flight is not None else {}
        undo = unsure if revision is None else unsure | self._log.undo(bucket, revision)
        try:
            with closing(Scan(self._reader, query, self._opener)) as scan:
                rows, more, last = cut(iter(scan), query, undo, scan.complete)
            countable = query.counted and more and query.keep is None
            count = count_rows(self._reader, query, undo) if countable else None
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
        remaining = count - len(rows) if count is not None else None
        of = self.revision if revision is None else revision
        return Page(rows, of, more, remaining, last, tuple(scan.damaged))

    async def count(self, bucket: str, namespace: str | None = None) -> int:
        """The number of rows."""
        self._guard.require()
        where, values = where_of(Query(bucket, namespace))
        statement = f"SELECT count(*), ({SELECT_REVISION}) FROM rows WHERE {where}"  # noqa: S608 - constants
        try:
            counted, revision = self._reader.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
        # Of one snapshot: if newer than the last reported commit, it includes the batch in flight.
        early = self._in_flight if revision > self.revision else None
        return int(counted) - (self._growth(early, bucket, namespace) if early is not None else 0)

    def _growth(self, batch: Batch, bucket: str, namespace: str | None) -> int:
        before = self._overlay.before(batch, bucket)
        return sum(
            (batch.final[Key(bucket, *place)] is not None) - (row is not None)
            for place, row in before.items()
            if namespace is None or place[0] == namespace
        )

    def watch(self, bucket: str, *, after: int, namespace: str | None = None) -> Subscription:
        """Every event of the bucket after a revision; see `contract.Store.watch`."""
        self._guard.require()
        return self._fanout.subscribe(bucket, after=after, namespace=namespace)

    # -- writing

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        """Write a row; see `contract.Store.put`."""
        self._check_open()
        entry = self._overlay.find(key)
        previous = self._read(key) if entry is None else entry.latest
        try:
            check_put(previous, expect)
        except StoreError:
            await self.settled(key)
            raise
        revision = self._handed_out + 1
        row = Row(key, revision, *encode(revision))
        await self._write(Event(revision, row, previous))
        return row

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        """Remove a row; see `contract.Store.delete`."""
        self._check_open()
        entry = self._overlay.find(key)
        try:
            previous = check_delete(self._read(key) if entry is None else entry.latest, expect)
        except StoreError:
            await self.settled(key)
            raise
        revision = self._handed_out + 1
        row = tombstone(previous, revision, encode)
        await self._write(Event(revision, row, previous, deleted=True))
        return row

    async def discard(self, key: Key, encode: Encode) -> Row:
        """Remove a row that cannot be read; see `contract.Store.discard`."""
        self._check_open()
        entry = self._overlay.find(key)
        try:
            current = self._read(key) if entry is None else entry.latest
        except DamagedRow:
            revision = self._handed_out + 1
            row = Row(key, revision, *encode(revision))
            await self._write(Event(revision, row, None, deleted=True))
            return row
        raise Changed(check_delete(current, None))

    async def check(self) -> None:
        """Return if the files are intact, and, after a failed commit, if another would succeed."""
        self._check_open()
        self._guard.check()
        if not self.trouble:
            return
        try:
            await self._writer.do(write_probe)
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
        self.trouble = ""

    def _check_open(self) -> None:
        if self._closing:
            raise Unavailable("the store is closed")
        self._guard.require()

    def _lose(self, error: Lost) -> None:
        self._writer.abandon(error)
        self._absent.close()
        self._fanout.close()

    async def _write(self, event: Event) -> None:
        self._handed_out = event.revision
        if event.previous is None:
            self._absent.note(event.row.key)
        self._overlay.write(event, self._gathering)
        if self._in_flight is None and not self._flush_soon:
            # Soon, not now: what is written in this turn of the loop goes into the same batch.
            self._flush_soon = True
            self._loop.call_soon(self._flush)
        await self._waiter(self._gathering)

    def _waiter(self, batch: Batch) -> asyncio.Future[None]:
        waiter = self._loop.create_future()
        batch.waiters.append(waiter)
        return waiter

    def _flush(self) -> None:
        self._flush_soon = False
        if self._in_flight is None and self._gathering.events:
            self._in_flight, self._gathering = self._gathering, Batch()
            self._writer.submit(self._in_flight)

    def _done(self, batch: Batch, error: Exception | None) -> None:
        self._in_flight = None
        if error is not None:
            self._fail(batch, error)
            return
        self._commits += 1
        self.trouble = ""
        self._overlay.committed(batch)
        self.damage.forget(batch.events)
        self._flush()
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)
        # The writers continue in the loop's next turn, before the readers of watches that this wakes. Watch
        # events are sent now.
        self._fanout.publish(batch.events)

    def _fail(self, batch: Batch, error: Exception) -> None:
        # Writes gathered during the commit were decided as if it had succeeded, so they fail as well.
        waiters = batch.waiters + self._gathering.waiters
        self._gathering = Batch()
        self._overlay.clear()
        reason = explain(error, self._path)
        self.trouble = str(reason)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(type(reason)(str(reason)))

    async def close(self) -> None:
        """Finish the commit under way, end all watches, close files."""
        if self._closing:
            return
        self._closing = True
        if self.rotation is not None:
            await self.rotation.close()
        while (batch := self._in_flight or self._gathering).events:
            await asyncio.gather(self._waiter(batch), return_exceptions=True)
        with suppress(Lost):  # closing copies the log into the database: only into the one that was opened
            self._guard.check()
        self._fanout.close()
        self._absent.close()
        await self._guard.close()
        if self._guard.error is None:
            self._reader.close()
        await self._writer.stop()
        self._lock.release()


_BODY = "SELECT body FROM rows WHERE rowid = ?"
# Usually in the row's page. SQLite knows the length of a body without reading it.
_SMALL_BODY = "CASE WHEN length(body) <= 4096 THEN body END"

# More rows than this are not counted for a page's `remaining`: that takes some 10 ms.
_COUNTED = 100_000


class Scan:
    """The current rows of a bucket, in order, decrypted. Close it, or it blocks checkpoints.

    If rows are chosen by their metadata, the bodies of rejected rows are not decrypted, and large bodies are
    not read: each requested large body is read separately. Methods raise `sqlite3.Error`.
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
        bucket, has_bodies, opened = self._query.bucket, self._has_bodies, self._opener.row
        for rowid, namespace, name, revision, meta, body in self._cursor:
            self._at = (rowid, body)
            try:
                row = opened(Row(Key(bucket, namespace, name), revision, meta, body if has_bodies else b""))
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
            return self._opener.row(row._replace(body=body))
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
