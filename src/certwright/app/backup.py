"""Backup and restore: all objects of a store in one file, and back into an empty store of any type."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

import certwright
from certwright.app import opening, shared_files
from certwright.app.controllers import Closers
from certwright.app.encryption import new_seal
from certwright.app.options import ServeOptions, StartError
from certwright.app.stores import check_row, etcd_of, is_etcd, sqlite_path
from certwright.kube.apiserver.model.objects import at_revision
from certwright.kube.store.backup_file import BackupReader, BackupWriter, Dump, Header
from certwright.kube.store.contract import Encode, Key, Row, Store, StoreError
from certwright.kube.store.envelope import Seal
from certwright.kube.store.keyring import wrapped_by
from certwright.kube.store.sqlite.backup import dump_sqlite, replacing

_TOGETHER = 256

_New = tuple[Key, Encode]
_Add = Callable[[list[_New]], Awaitable[None]]
"""Writes rows into the store that is being filled."""

REVISIONS_PER_S = 100_000
"""A restored SQLite file continues at this many revisions per second since 1970: after every revision
assigned since the backup, so that no client takes a new object for a cached one."""


class Summary(msgspec.Struct, frozen=True):
    """The result of a backup or restore. `wrapped_by`: the fingerprint of the key that its Secrets need
    (None: not encrypted); `source`: the place of that key. `made`: seconds since 1970. `left_out`: a sentence
    for each unreadable object."""

    objects: int
    revision: int
    made: int
    wrapped_by: str | None
    source: str
    left_out: tuple[str, ...] = ()


async def back_up(options: ServeOptions, file: Path) -> Summary:
    """Write a backup of the configured store, whether or not a server runs on it.

    Raises `StartError` with a sentence for the user.
    """
    try:
        seal = new_seal(options)
        async with _dump(options, seal) as dump:
            made = int(time.time())
            form = "etcd" if is_etcd(options) else "sqlite"
            header = Header(certwright.__version__, made, form, dump.revision, dump.ring)
            objects = 0
            with BackupWriter(file, header) as out:
                async with aclosing(_with_identity(dump, options.data_dir)) as rows:
                    async for row in rows:
                        out.add(seal.encrypt_row(row))
                        objects += row.key.bucket != shared_files.KEY.bucket
            return replace(_summary(header, objects, seal), left_out=tuple(map(str, dump.damage)))
    except StoreError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"{file} cannot be written: {error.strerror or error}") from error


def _dump(options: ServeOptions, seal: Seal) -> AbstractAsyncContextManager[Dump]:
    if not is_etcd(options):
        return dump_sqlite(sqlite_path(options), seal, check_row)
    return etcd_of(options).dump(seal, check_row)


async def _with_identity(dump: Dump, data_dir: Path) -> AsyncGenerator[Row, None]:
    """The rows, and the server's identity files if the rows do not contain them."""
    has_identity = False
    async with aclosing(dump.rows) as pages:
        async for page in pages:
            for row in page:
                has_identity = has_identity or row.key == shared_files.KEY
                yield row
    if not has_identity and (content := shared_files.pack(data_dir)) is not None:
        yield Row(shared_files.KEY, dump.revision, b"", content)


async def restore(options: ServeOptions, file: Path, *, force: bool = False) -> Summary:
    """Fill an empty store from a backup; with `force` replace a store.

    Raises `StartError` with a sentence for the user.
    """
    closers = Closers()
    try:
        backup = BackupReader(file)
        seal = new_seal(options)
        if backup.header.ring is not None:
            seal.adopt(backup.header.ring)
        opening.lock_data_dir(options.data_dir, closers)
        objects = 0
        async with _target(options, backup, force=force) as add:
            opened = map(seal.decrypt_row, backup.rows())
            while rows := list(itertools.islice(opened, _TOGETHER)):
                keep = [(row.key, _encode(row)) for row in rows if row.key != shared_files.KEY]
                await add(keep)
                objects += len(keep)
                for row in rows:
                    if row.key == shared_files.KEY:
                        shared_files.unpack(row.body, options.data_dir)
        return _summary(backup.header, objects, seal)
    except StoreError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        where = error.filename or file
        raise StartError(f"{where}: {error.strerror or error}") from error
    finally:
        await closers.close()


def _encode(row: Row) -> Encode:
    """The row with its old content and a new revision."""
    return lambda revision: (at_revision(row.meta, revision), row.body)


@asynccontextmanager
async def _target(options: ServeOptions, backup: BackupReader, *, force: bool) -> AsyncIterator[_Add]:
    seal = new_seal(options)
    if not is_etcd(options):
        begin_at = max(backup.header.revision, int(time.time()) * REVISIONS_PER_S)
        async with replacing(sqlite_path(options), seal, begin_at=begin_at, force=force) as store:
            yield lambda rows: _put_all(store, rows)
        return
    etcd = etcd_of(options)
    async with etcd.refilling(seal, force=force) as filling:
        yield filling.add
    etcd.remove_mark()


async def _put_all(store: Store, rows: list[_New]) -> None:
    await asyncio.gather(*(store.put(key, encode, expect=0) for key, encode in rows))


def _summary(header: Header, objects: int, seal: Seal) -> Summary:
    fingerprint = None if header.ring is None else wrapped_by(header.ring)
    return Summary(objects, header.revision, header.made, fingerprint, seal.wrapping.source)
