"""The SQLite file: its schema, its opening and checks, and its errors in words for an operator.

One table holds the current rows. `meta` comes before `body`: a large body is stored in overflow pages, which
SQLite does not read for a query of earlier columns. The row with the empty bucket has the last revision; it
is written with every commit, so that revisions never go back.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from certwright.kube.store.contract import Damaged, StoreError, Unavailable
from certwright.kube.store.envelope import Seal
from certwright.kube.store.mark import Mark, MarkFile, new_id
from certwright.kube.store.sqlite import sealing
from certwright.kube.util.files import PRIVATE, AlreadyLocked, FileLock

_log = logging.getLogger(__name__)

APPLICATION_ID = 0x43574B31  # "CWK1"
FORMAT, NEWEST = 1, sealing.SEALED_FORMAT
PAGE_SIZE = 8192  # rows of 2-3 KB: a third more rows per second than with 4096
WAL_BYTES = 8 << 20
_BUSY_MS = 5_000  # how long a write waits for another program that has the file locked

_SCHEMA = (
    "CREATE TABLE rows (bucket TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,"
    " revision INTEGER NOT NULL, meta BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (bucket, namespace, name))",
    "INSERT INTO rows VALUES ('', '', '', 0, x'', x'')",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)
_MAGIC = b"SQLite format 3\0"
_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

_SELECT_ID = "SELECT CAST(meta AS TEXT) FROM rows WHERE bucket = '' AND namespace = '' AND name = 'store'"
_INSERT_ID = "INSERT INTO rows VALUES ('', '', 'store', 0, ?, x'')"
SELECT_REVISION = "SELECT revision FROM rows WHERE bucket = '' AND namespace = '' AND name = ''"


@dataclass(slots=True)
class Files:
    """An open store: the writer's and the readers' connection, the lock, its mark, and the last revision."""

    path: Path
    lock: FileLock
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    mark: Mark
    revision: int


def explain(error: Exception, path: Path) -> StoreError:
    """Translate an error of SQLite's to one sentence: `Damaged`, or `Unavailable`."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return Unavailable(f"the disk that holds {path} is full")
        case sqlite3.SQLITE_IOERR if _has_no_room(path):
            return Unavailable(f"the disk that holds {path} is full")
        case sqlite3.SQLITE_IOERR:
            name = getattr(error, "sqlite_errorname", "")
            return Unavailable(f"the disk that holds {path} cannot be read or written ({error}, {name})")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_AUTH:
            return Unavailable(f"{path} cannot be written; check the permissions of the file and its folder")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(f"{path} is locked by another program")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return damaged(path, str(error))
    return Unavailable(f"{path} could not be read or written ({error})")


def _has_no_room(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < PAGE_SIZE


_PROBE_BYTES = 500_000  # a commit of one page may fit where larger ones do not


def write_probe(connection: sqlite3.Connection) -> None:
    """Commit `_PROBE_BYTES` bytes and remove them. Raises `sqlite3.Error` if that fails."""
    update = "UPDATE rows SET body = zeroblob(?) WHERE bucket = '' AND namespace = '' AND name = ''"
    # A health check does not wait as long as a writer does.
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS // 20}")
    try:
        for size in (_PROBE_BYTES, 0):
            connection.execute(update, (size,))
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")


def damaged(path: Path, what: str) -> Damaged:
    """`Damaged`, with the problem and the remedies."""
    return Damaged(
        f"{path} is damaged ({what}): restore it from a backup, or move it away, together with"
        f" {path.name}-wal, {path.name}-shm and {path.name}.mark, to begin with an empty store"
    )


def mark_file(path: Path) -> MarkFile:
    """The mark beside a store."""
    return MarkFile(path.with_name(f"{path.name}.mark"), str(path))


def open_files(
    path: Path, seal: Seal | None = None, begin_at: int = 0, *, expects_rows: bool = False
) -> Files:
    """Open a store, or create one if the file is missing or empty. Performs file I/O.

    Rows are sealed as `seal` requires when this returns. `expects_rows`: a server has worked here before, so
    a file without rows is refused, and a missing one is logged.

    Raises `Unavailable` (no permission, disk full, in use by another process) and `Damaged`.
    """
    lock = FileLock(path.with_name(f"{path.name}.lock"), holder=f"process {os.getpid()}")
    try:
        lock.acquire()
    except AlreadyLocked as error:
        raise Unavailable(f"{path} is in use by another process ({error.holder or 'unknown'})") from error
    except OSError as error:
        raise _cannot_open(path, error) from error
    try:
        return _open_locked(path, lock, seal, begin_at, expects_rows=expects_rows)
    except BaseException:
        lock.release()
        raise


def _open_locked(
    path: Path, lock: FileLock, seal: Seal | None, begin_at: int, *, expects_rows: bool
) -> Files:
    try:
        marks = mark_file(path)
        if (known := marks.read()) is not None:
            _check_present(path, marks, known)
            expects_rows = False  # a server that ended before its first write
        elif marks.path.exists() or (path.exists() and expects_rows):
            expects_rows = True
            if not path.exists() or not path.stat().st_size:
                raise _without_rows(path, marks)
        elif expects_rows:
            expects_rows = False
            _log.warning("%s is new, although a server has worked here before: its keys exist", path)
        _make_private(path)
        _check_header(path)
        # Opened and closed once first: this recovers what a crash has left and removes the log, which can be
        # created again only while no process has it open.
        with closing(connect(path)) as setup:
            check_identity(setup, path)
            setup.execute("PRAGMA journal_mode = WAL")
            (revision,) = _check_readable(setup, path)
            if expects_rows and revision == 0:
                raise _without_rows(path, marks)
            store = _identify(setup, marks, known, revision)
            if revision == 0 and begin_at:
                setup.execute("UPDATE rows SET revision = ? WHERE bucket = '' AND name = ''", (begin_at,))
            sealing.begin(setup, seal, path, is_new=revision == 0)
            # Frames that a crash has left may not be flushed yet, and a mark must not be ahead of the disk.
            setup.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return _connect_both(path, lock, store, known)
    except sqlite3.Error as error:
        raise explain(error, path) from error
    except OSError as error:
        raise _cannot_open(path, error) from error


def _check_present(path: Path, marks: MarkFile, known: Mark) -> None:
    """Raise `Damaged` if a mark records a store, and the file is missing or empty."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise marks.refusal(known, f"{path} is missing") from None
    if not size:
        raise marks.refusal(known, f"{path} is empty")


def _without_rows(path: Path, marks: MarkFile) -> Damaged:
    return Damaged(
        f"{path} is missing or holds nothing, although a server has worked here before: put the right files"
        f" back, or run `certwright restore --force` with a backup; to begin with an empty store, remove"
        f" {path}, {path.name}-wal and {marks.path.name}"
    )


def _identify(connection: sqlite3.Connection, marks: MarkFile, known: Mark | None, revision: int) -> str:
    """The id of the store; a new store, or one of a version without marks, gets one. Raises `Damaged`."""
    row: tuple[str] | None = connection.execute(_SELECT_ID).fetchone()
    if known is not None:
        marks.check(known, row[0] if row is not None else None, revision)
    if row is not None:
        return row[0]
    store = new_id()
    connection.execute(_INSERT_ID, (store.encode(),))
    return store


def _cannot_open(path: Path, error: OSError) -> Unavailable:
    if error.errno == errno.ENOSPC:
        return Unavailable(f"the disk that holds {path} is full")
    return Unavailable(f"{path} cannot be opened: {error.strerror}")


def connect(path: Path) -> sqlite3.Connection:
    """A connection without Python's own transactions, usable from any one thread at a time."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        # Deleted or overwritten content is erased in the file, too, because it may be a Secret.
        connection.execute("PRAGMA secure_delete = ON")
        # Checkpoints are made between batches, not in the way of one.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_both(path: Path, lock: FileLock, store: str, known: Mark | None) -> Files:
    with ExitStack() as undo:
        writer = undo.enter_context(closing(connect(path)))
        reader = undo.enter_context(closing(connect(path)))
        reader.execute("PRAGMA query_only = ON")
        # After a period in which checkpoints were impossible, release the space.
        writer.execute(f"PRAGMA journal_size_limit = {8 * WAL_BYTES}")
        (revision,) = reader.execute(SELECT_REVISION).fetchone()
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).chmod(PRIVATE)
        mark = Mark(store, revision)
        if mark != known:
            mark_file(path).write(mark)
        undo.pop_all()
    return Files(path, lock, writer, reader, mark, revision)


def _make_private(path: Path) -> None:
    # SQLite gives its other files the mode of this one, whatever the umask is.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        os.fchmod(handle, PRIVATE)
    finally:
        os.close(handle)


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(100)
        size = os.fstat(file.fileno()).st_size
    if not head:
        return
    if not head.startswith(_MAGIC):
        raise Damaged(f"{path} is not a store of certwright's: name another file, or move this one away")
    # Bytes 16-17 hold the page size, 28-31 the number of pages (SQLite file format, 1.3). While a log exists,
    # pages may still be in it.
    expected = int.from_bytes(head[16:18], "big") * int.from_bytes(head[28:32], "big")
    if size < expected and not _has_log(path):
        raise damaged(path, f"it ends after {size} of {expected} bytes")


def _has_log(path: Path) -> bool:
    try:
        with path.with_name(f"{path.name}-wal").open("rb") as file:
            return file.read(4) in _WAL_MAGIC
    except FileNotFoundError:
        return False


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Make an empty database a store. Raises `Damaged` for another program's, or a newer one's."""
    (identity,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not (identity or version or tables):
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        with sealing.transaction(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
    elif identity != APPLICATION_ID:
        raise Damaged(f"{path} is a database of another program: name another file")
    elif version > NEWEST:
        raise Damaged(
            f"{path} was written by a newer certwright (format {version}; this one reads {NEWEST}):"
            " run the newer version, or restore a backup of the older"
        )


def _check_readable(connection: sqlite3.Connection, path: Path) -> tuple[int]:
    """The row with the last revision."""
    # A full check reads the whole file. This reads the ends of the table and of its index, which shows most
    # truncations and overwrites; reads notice the rest.
    last: tuple[int] | None = connection.execute(SELECT_REVISION).fetchone()
    if last is None:
        raise damaged(path, "the row with its last revision is missing")
    for order in ("rowid ASC", "rowid DESC", "bucket DESC, namespace DESC, name DESC"):
        connection.execute(f"SELECT * FROM rows ORDER BY {order} LIMIT 1").fetchone()  # noqa: S608 - constants
    return last
