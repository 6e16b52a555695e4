"""Envelope encryption in the SQLite file: stores the ring, and re-seals rows.

A page of rows is rewritten in one transaction, in place: revisions stay the same, and watchers are not
notified. An interrupted run continues at the next start, because the ring records whether it was finished.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from certwright.kube.store.contract import Damaged, Key, Row
from certwright.kube.store.envelope import Seal
from certwright.kube.store.key_rotation import Swept
from certwright.kube.store.keyring import Ring

_log = logging.getLogger(__name__)

SEALED_FORMAT = 2
"""`PRAGMA user_version` of a file with a ring."""

_ROWS = 64
_SELECT_RING = "SELECT meta FROM rows WHERE bucket = '' AND namespace = '' AND name = 'ring'"
_PUT_RING = (
    "INSERT INTO rows VALUES ('', '', 'ring', 0, ?, x'') ON CONFLICT (bucket, namespace, name)"
    " DO UPDATE SET meta = excluded.meta"
)
_DROP_RING = "DELETE FROM rows WHERE bucket = '' AND namespace = '' AND name = 'ring'"
_UPDATE = "UPDATE rows SET meta = ?, body = ? WHERE bucket = ? AND namespace = ? AND name = ?"
_START = Key("", "", "")


def read_ring(connection: sqlite3.Connection) -> bytes | None:
    """The ring as stored. Raises `sqlite3.Error`."""
    row = connection.execute(_SELECT_RING).fetchone()
    return None if row is None else bytes(row[0])


def begin(connection: sqlite3.Connection, seal: Seal | None, path: Path, *, is_new: bool) -> None:
    """Load the ring of a file that no other process uses, create one if it has none, and finish an
    interrupted run.

    Raises `Damaged` (`WrongKey` among them) and `sqlite3.Error`.
    """
    blob = read_ring(connection)
    if seal is None:
        if blob is not None:
            raise Damaged(f"{path} holds encrypted rows, and no encryption key is configured")
        return
    if (changed := seal.begin(blob)) is not None:
        _put(connection, changed)
        seal.adopt(changed)
    if not seal.ring.settled:
        _finish(connection, seal, is_new=is_new)


def _finish(connection: sqlite3.Connection, seal: Seal, *, is_new: bool) -> None:
    page = sweep(connection, seal, None)
    unreadable = page.unreadable
    while page.place is not None:
        page = sweep(connection, seal, page.place)
        unreadable += page.unreadable
    if (is_new or _clean(connection)) and not unreadable:
        keep(connection, seal, seal.ring.done())


def _clean(connection: sqlite3.Connection) -> bool:
    """Erase plain rows that were overwritten or deleted before rows were sealed, and may remain in free parts
    of the file. False: the disk was too full for that; the next start tries again."""
    try:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        _log.warning("old, unencrypted rows may still exist in free parts of the file (%s)", error)
        return False
    return True


def keep(connection: sqlite3.Connection, seal: Seal, ring: Ring) -> None:
    """Store a ring, and use it."""
    blob = seal.wrapped(ring)
    if ring.current or not ring.settled:
        _put(connection, blob)
    else:
        connection.execute(_DROP_RING)
    seal.adopt(blob)


def _put(connection: sqlite3.Connection, blob: bytes) -> None:
    with transaction(connection):
        connection.execute(_PUT_RING, (blob,))
        connection.execute(f"PRAGMA user_version = {SEALED_FORMAT}")


def sweep(connection: sqlite3.Connection, seal: Seal, after: Key | None) -> Swept:
    """Encrypt the next rows again, where needed. Raises `sqlite3.Error`."""
    marks = ", ".join("?" * len(seal.buckets))
    statement = (
        "SELECT bucket, namespace, name, revision, meta, body FROM rows"  # noqa: S608 - marks only
        f" WHERE bucket IN ({marks}) AND (bucket, namespace, name) > (?, ?, ?)"
        " ORDER BY bucket, namespace, name LIMIT ?"
    )
    unreadable = 0
    with transaction(connection):
        records = connection.execute(statement, (*sorted(seal.buckets), *(after or _START), _ROWS)).fetchall()
        rows = [Row(Key(*row[:3]), *row[3:]) for row in records]
        for row in rows:
            if not seal.is_current(row.meta, row.body):
                unreadable += not _rewrite(connection, seal, row)
    return Swept(rows[-1].key if len(rows) == _ROWS else None, len(rows), unreadable)


def _rewrite(connection: sqlite3.Connection, seal: Seal, row: Row) -> bool:
    try:
        row = seal.encrypt_row(seal.decrypt_row(row))
    except Damaged as error:
        _log.error("%s", error)
        return False
    connection.execute(_UPDATE, (row.meta, row.body, *row.key))
    return True


def count(connection: sqlite3.Connection, seal: Seal, after: Key | None) -> tuple[int, int]:
    """How many rows are to be swept, and how many of them after a key. Raises `sqlite3.Error`."""
    marks = ", ".join("?" * len(seal.buckets))
    statement = (
        "SELECT count(*), count(*) FILTER (WHERE (bucket, namespace, name) > (?, ?, ?))"  # noqa: S608 - marks only
        f" FROM rows WHERE bucket IN ({marks})"
    )
    total, left = connection.execute(statement, (*(after or _START), *sorted(seal.buckets))).fetchone()
    return int(total), int(left)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction around the block: all of its statements, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has rolled back by itself.
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
