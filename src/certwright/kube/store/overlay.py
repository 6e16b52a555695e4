"""Overlay of decided but uncommitted writes, as later writes must see them.

The event loop decides every conflict immediately and assigns revisions against the rows here, so that the
writer thread never decides anything. Readers see the committed row of these keys, which is kept beside the
new one, because the database may hold either while a commit is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from certwright.kube.store.contract import Event, Key, Row
from certwright.kube.store.log import Place


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
    """One key: its committed row, the row that the next write finds, and the batch that writes it."""

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
