"""Writer thread: commits batches, and checkpoints the write-ahead log between them.

The event loop decides every conflict immediately and assigns revisions against the overlay of decided but
uncommitted writes, so that the thread never decides anything. Readers see the committed row of these keys,
which is kept beside the new one, because the database may hold either while a commit is under way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from certwright.kube.store.contract import Event, Key, Lost, Row
from certwright.kube.store.envelope import Seal
from certwright.kube.store.key_rotation import Swept
from certwright.kube.store.keyring import Ring
from certwright.kube.store.log import Place
from certwright.kube.store.sqlite import sealing
from certwright.kube.store.sqlite.file import PAGE_SIZE, WAL_BYTES, explain
from certwright.kube.store.sqlite.guard import OpenFiles


@dataclass(slots=True, eq=False)
class Batch:
    """Writes that are committed together (group commit).

    `events` in order of revision; `final` is the row of each key after all of them, None: deleted; `waiters`
    are resolved when it is committed or has failed.
    """

    events: list[Event] = field(default_factory=list)
    final: dict[Key, Row | None] = field(default_factory=dict)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def revision(self) -> int:
        """The last revision in it."""
        return self.events[-1].revision


@dataclass(slots=True, eq=False)
class Entry:
    """One key: its committed row, its pending row, and the batch that writes the pending row."""

    committed: Row | None
    latest: Row | None
    batch: Batch


class Overlay:
    """The keys that have a write under way."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}

    def find(self, key: Key) -> Entry | None:
        """The entry of a key, None if the row in the database is both committed and latest."""
        return self._entries.get(key)

    def keys(self) -> Iterable[Key]:
        """The keys that have a write under way."""
        return self._entries.keys()

    def write(self, event: Event, batch: Batch) -> None:
        """Add a write to a batch that is not being committed yet."""
        key = event.row.key
        kept = None if event.deleted else event.row
        batch.events.append(event)
        batch.final[key] = kept
        if (entry := self._entries.get(key)) is None:
            self._entries[key] = Entry(event.previous, kept, batch)
        else:
            entry.latest, entry.batch = kept, batch

    def committed(self, batch: Batch) -> None:
        """The batch is in the database: drop its entries without a later write."""
        for key, row in batch.final.items():
            entry = self._entries[key]
            if entry.batch is batch:
                del self._entries[key]
            else:
                entry.committed = row

    def before(self, batch: Batch, bucket: str) -> dict[Place, Row | None]:
        """The committed rows of those keys of a bucket that a batch under way writes."""
        return {key[1:]: self._entries[key].committed for key in batch.final if key.bucket == bucket}

    def clear(self) -> None:
        """Drop every write: their commit failed, and later ones were decided on theirs."""
        self._entries.clear()


_log = logging.getLogger(__name__)

T = TypeVar("T")

_UPSERT = (
    "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (bucket, namespace, name) DO UPDATE"
    " SET revision = excluded.revision, meta = excluded.meta, body = excluded.body"
)
_DELETE = "DELETE FROM rows WHERE bucket = ? AND namespace = ? AND name = ?"


def _settle(result: asyncio.Future[Any], value: object, error: Exception | None) -> None:
    if result.done():  # the waiter was cancelled
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)


class Log:
    """The length of the write-ahead log, and when to copy it into the database."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, max_bytes: int = WAL_BYTES) -> None:
        self._connection = connection
        self._path = path
        self._max_frames = max_bytes // PAGE_SIZE
        self._retry_at = 0
        # Closed only after the connections: closing any handle of a file drops the process's locks on it.
        self._index = os.open(path.with_name(f"{path.name}-shm"), os.O_RDONLY | os.O_CLOEXEC)
        self.files = OpenFiles(path, self.frames)
        """The files as they were when the store was opened."""

    def frames(self) -> int:
        """The valid frames in the log (`mxFrame`, bytes 16-19 of the WAL-index; WAL file format, 2.1)."""
        return int.from_bytes(os.pread(self._index, 4, 16), sys.byteorder)

    def keep_small(self) -> None:
        """Checkpoint: copy the log into the database when it has reached its size, so that SQLite restarts
        it.

        A failure does not affect the writers: their rows are safe in the log, which grows.
        """
        frames = self.frames()
        if frames < max(self._max_frames, self._retry_at):
            return
        if self.files.problem():
            # A checkpoint would give a truncated database its old size again, without its old content, and
            # hide the loss from the guard, which reports it.
            return
        try:
            _, logged, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            _log.warning("the log could not be copied into the database: %s", explain(error, self._path))
            logged, copied = frames, 0
        # A reader may have blocked it. Not after every commit again: each attempt costs a flush.
        self._retry_at = 0 if copied == logged else frames + self._max_frames // 8

    def close(self) -> None:
        """Close the index; the connections must be closed before."""
        os.close(self._index)


class Writer:
    """Commits one batch after the other in a separate thread, and reports to `done` on the event loop.

    Takes over the connection and closes it.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        done: Callable[[Batch, Exception | None], None],
        seal: Seal | None = None,
    ) -> None:
        self._connection = connection
        self._seal = seal
        self.log = Log(connection, path)
        """The write-ahead log."""
        self._abandoned: Lost | None = None
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Batch | Callable[[], None] | None] = SimpleQueue()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        # A daemon thread, so that a store that was not closed does not keep the program alive.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def abandon(self, error: Lost) -> None:
        """Refuse everything from now on, and leave the files as they are when the thread ends.

        Closing the last connection would copy the log into the database and delete the log by its path, which
        may be another store's by now.
        """
        self._abandoned = error

    def submit(self, batch: Batch) -> None:
        """Commit a batch; the one before must be done."""
        self._queue.put(batch)

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work between two batches; returns or raises what it does."""
        result: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                self._require()
                done = work(self._connection)
            except Exception as error:
                self._notify(_settle, result, None, error)
            else:
                self._notify(_settle, result, done, None)

        self._queue.put(run)
        return await result

    async def stop(self) -> None:
        """End the thread. All batches must be done, and all other connections closed."""
        self._queue.put(None)
        await asyncio.shield(self._stopped)
        if self._abandoned is None:
            self._thread.join()

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            if not isinstance(batch, Batch):
                batch()
            elif not self._notify(self._done, batch, self._commit(batch)):
                break
            if self._abandoned is None:
                self.log.keep_small()
        if self._abandoned is None:
            try:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                _log.warning("the log was left for the next start: %s", error)
            self._connection.close()
            self.log.close()
        self._notify(self._stopped.set_result, None)
        if self._abandoned is not None:
            # This frame keeps the connection open until the process ends.
            threading.Event().wait()

    def _require(self) -> None:
        if self._abandoned is not None:
            raise self._abandoned

    def _notify(self, function: Callable[..., object], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed, so no waiter is left
            return False
        return True

    def _commit(self, batch: Batch) -> Exception | None:
        rows = [row for row in batch.final.values() if row is not None]
        gone = [key for key, row in batch.final.items() if row is None]
        rows.append(Row(Key("", "", ""), batch.revision, b"", b""))
        try:
            self._require()
            if self._seal is not None:
                rows = list(map(self._seal.encrypt_row, rows))
            with sealing.transaction(self._connection):
                self._connection.executemany(_UPSERT, [(*row.key, *row[1:]) for row in rows])
                self._connection.executemany(_DELETE, gone)
        except Exception as error:
            return error
        return None


P = ParamSpec("P")


class SqliteSweeping:
    """A `key_rotation.Sweepable`: the writer thread rewrites pages of rows."""

    def __init__(self, writer: Writer, seal: Seal, path: Path) -> None:
        self._writer = writer
        self._seal = seal
        self._path = path

    async def count_sealed(self, after: Key | None) -> tuple[int, int]:
        return await self._do(sealing.count, after)

    async def keep(self, ring: Ring) -> None:
        await self._do(sealing.keep, ring)

    async def sweep(self, after: Key | None) -> Swept:
        return await self._do(sealing.sweep, after)

    async def _do(
        self, work: Callable[Concatenate[sqlite3.Connection, Seal, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await self._writer.do(lambda connection: work(connection, self._seal, *args, **kwargs))
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
