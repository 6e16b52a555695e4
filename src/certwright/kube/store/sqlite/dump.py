"""Source of a backup: all rows of an SQLite file at one revision, while another process may write to it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from certwright.kube.store.contract import DamagedRow, Key, Row, Unavailable
from certwright.kube.store.damage import Check, DamagedRows, Opener
from certwright.kube.store.dump import Dump
from certwright.kube.store.envelope import Seal
from certwright.kube.store.sqlite import sealing
from certwright.kube.store.sqlite.file import SELECT_REVISION, check_identity, connect, explain

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
    if not _is_there(path):
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


def _is_there(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


async def _rows(connection: sqlite3.Connection, opener: Opener) -> AsyncGenerator[list[Row], None]:
    with closing(connection.execute(_SELECT)) as cursor:
        while batch := cursor.fetchmany(_ROWS):
            rows: list[Row] = []
            for row in batch:
                with suppress(DamagedRow):
                    rows.append(opener.row(Row(Key(*row[:3]), *row[3:])))
            yield rows
