"""Restore of an SQLite file: fills a new file from a backup, and renames it when it is complete."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from certwright.kube.store.contract import Unavailable
from certwright.kube.store.envelope import Seal
from certwright.kube.store.sqlite.file import mark_file
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite
from certwright.kube.util.files import AlreadyLocked, FileLock

_BESIDE = ("-wal", "-shm")


@asynccontextmanager
async def replacing(path: Path, seal: Seal, *, begin_at: int, force: bool) -> AsyncIterator[SqliteStore]:
    """A new store, to be filled inside the block; at its end it replaces the existing one.

    Raises `Unavailable` if a store exists and `force` was not given, or a process uses it, and `OSError`.
    """
    if not force and _is_there(path):
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
        _flush(path.parent)
    finally:
        _remove(new)
        lock.release()


def _is_there(path: Path) -> bool:
    return path.exists()


def _remove(path: Path) -> None:
    for suffix in ("", *_BESIDE, ".lock", ".mark"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
