"""Sweeps of the SQLite file for a key rotation: the writer thread rewrites its pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from certwright.kube.store.contract import Key
from certwright.kube.store.envelope import Seal
from certwright.kube.store.key_rotation import Swept
from certwright.kube.store.keyring import Ring
from certwright.kube.store.sqlite import sealing
from certwright.kube.store.sqlite.file import explain
from certwright.kube.store.sqlite.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


class SqliteSweeping:
    """A `key_rotation.Sweepable`."""

    def __init__(self, writer: Writer, seal: Seal, path: Path) -> None:
        self._writer = writer
        self._seal = seal
        self._path = path

    async def count_sealed(self, after: Key | None) -> tuple[int, int]:
        """See `Sweepable.count_sealed`."""
        return await self._do(sealing.count, after)

    async def keep(self, ring: Ring) -> None:
        """See `Sweepable.keep`."""
        await self._do(sealing.keep, ring)

    async def sweep(self, after: Key | None) -> Swept:
        """See `Sweepable.sweep`."""
        return await self._do(sealing.sweep, after)

    async def _do(
        self, work: Callable[Concatenate[sqlite3.Connection, Seal, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await self._writer.do(lambda connection: work(connection, self._seal, *args, **kwargs))
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
