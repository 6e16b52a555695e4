"""What a backup is made from: all rows of a store, as they were at one revision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from certwright.store.contract import Row


@dataclass(frozen=True, slots=True)
class Dump:
    """`rows` can be read once, in pages. `ring`: the data keys as they lie in the store, None: no row is
    sealed there."""

    revision: int
    ring: bytes | None
    rows: AsyncIterator[list[Row]]
