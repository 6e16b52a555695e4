"""Backup and restore of an SQLite file: all rows at one revision, while another process may write to the
file; and a new file filled from a backup, which is renamed when it is complete."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from certwright.kube.store.backup_file import Dump
from certwright.kube.store.contract import DamagedRow, Key, Row, Unavailable
from certwright.kube.store.damage import Check, DamagedRows, Opener
from certwright.kube.store.envelope import Seal
from certwright.kube.store.sqlite import sealing
from certwright.kube.store.sqlite.file import SELECT_REVISION, check_identity, connect, explain, mark_file
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite
from certwright.kube.util.files import AlreadyLocked, FileLock

_ROWS = 256
_SELECT = (
    "SELECT bucket, namespace, name, revision, meta, body FROM rows WHERE bucket <> ''"
    " ORDER BY bucket, namespace, name"
)


@asynccontextmanager
async def dump_sqlite(path: Path, seal: Seal, check: Check | None = None) -> AsyncIterator[Dump]:
    """Read the file in one transaction: concurrent writers are neither blocked nor seen. `check`: the test
    that readable rows pass.

    Raises `Unavailable` and `Damaged` (`WrongKey`).
    """
    if not _size(path):
        raise Unavailable(f"there is no store at {path}")
    try:
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA query_only = ON")
            check_identity(connection, path)
            connection.execute("BEGIN")
            (revision,) = connection.execute(SELECT_REVISION).fetchone()
            ring = sealing.read_ring(connection)
            if ring is not None:
                seal.adopt(ring)
            opener = Opener(seal, check, DamagedRows())
            yield Dump(revision, ring, _rows(connection, opener), opener.damage)
    except sqlite3.Error as error:
        raise explain(error, path) from error


async def _rows(connection: sqlite3.Connection, opener: Opener) -> AsyncGenerator[list[Row], None]:
    with closing(connection.execute(_SELECT)) as cursor:
        while batch := cursor.fetchmany(_ROWS):
            rows: list[Row] = []
            for row in batch:
                with suppress(DamagedRow):
                    rows.append(opener.row(Row(Key(*row[:3]), *row[3:])))
            yield rows


_BESIDE = ("-wal", "-shm")


@asynccontextmanager
async def replacing(path: Path, seal: Seal, *, begin_at: int, force: bool) -> AsyncIterator[SqliteStore]:
    """A new store, to be filled inside the block; at its end it replaces the existing one.

    Raises `Unavailable` if a store exists and `force` was not given, or a process uses it, and `OSError`.
    """
    if not force and _size(path) is not None:
        raise Unavailable(f"{path} exists; --force replaces it")
    lock = FileLock(path.with_name(f"{path.name}.lock"), holder=f"process {os.getpid()}")
    try:
        lock.acquire()
    except AlreadyLocked as error:
        raise Unavailable(f"{path} is in use by another process ({error.holder or 'unknown'})") from error
    new = path.with_name(f"{path.name}.restoring")
    try:
        _remove(new)
        store = await open_sqlite(new, seal=seal, begin_at=begin_at)
        try:
            yield store
        finally:
            await store.close()
        for suffix in _BESIDE:  # of the old store: its log must not be taken for the new one's
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        os.replace(new, path)
        # After the store, because after a crash in between the next start is refused; in the other order its
        # check would be skipped.
        os.replace(mark_file(new).path, mark_file(path).path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        _remove(new)
        lock.release()


def _size(path: Path) -> int | None:
    """The size of the file; None: it does not exist."""
    return path.stat().st_size if path.exists() else None


def _remove(path: Path) -> None:
    for suffix in ("", *_BESIDE, ".lock", ".mark"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
