"""Source of a backup: all rows of a store, as of one revision."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from certwright.kube.store.contract import Row
from certwright.kube.store.damage import DamagedRows


@dataclass(frozen=True, slots=True)
class Dump:
    """`rows` can be read once, in pages; close them when leaving early. `ring`: the data keys as stored;
    None: no row is sealed there. `damage`: the rows that were left out so far, because they cannot be
    read."""

    revision: int
    ring: bytes | None
    rows: AsyncGenerator[list[Row], None]
    damage: DamagedRows
