"""Damaged rows: sealed rows that do not open, and contents that no server has written.

Such a row affects only itself: lists leave it out, a get of it fails, `Store.discard` removes it. The damaged
rows met so far are recorded here, for health checks, metrics and warnings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from certwright.kube.store.contract import DamagedRow, Event, Key, Row
from certwright.kube.store.envelope import Seal

_log = logging.getLogger(__name__)

Check = Callable[[Row], str]
"""What is wrong with the contents of a row, as half a sentence; empty when they are intact. The body may be
missing (empty)."""

_MOST_KNOWN = 1_000


class DamagedRows:
    """The damaged rows that were met, at most 1,000 of them. Each is logged once."""

    def __init__(self) -> None:
        self._rows: dict[Key, DamagedRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[DamagedRow]:
        return iter(list(self._rows.values()))

    def of(self, bucket: str, namespace: str | None) -> list[DamagedRow]:
        """The damaged rows that a list of a bucket, or of one namespace of it, leaves out."""
        return [
            row for row in self if row.key.bucket == bucket and namespace in (None, "", row.key.namespace)
        ]

    def note(self, row: DamagedRow) -> None:
        """Record a damaged row."""
        if row.key in self._rows or len(self._rows) >= _MOST_KNOWN:
            return
        self._rows[row.key] = row
        _log.error("%s", row)

    def forget(self, events: Sequence[Event]) -> None:
        """Drop the rows that these events remove or overwrite."""
        if self._rows:
            for event in events:
                self._rows.pop(event.row.key, None)


class Opener:
    """Decodes stored rows: opens sealed ones, and checks their contents.

    `seal` None: nothing is sealed. `check` None: contents are not checked.
    """

    def __init__(self, seal: Seal | None, check: Check | None, damage: DamagedRows) -> None:
        self._seal = seal
        self._check = check
        self.damage = damage

    def row(self, row: Row) -> Row:
        """The row, of which a part may be open already, or the body be left out (empty). Raises `DamagedRow`,
        which is recorded."""
        try:
            if self._seal is not None:
                row = self._seal.decrypt_row(row)
            if self._check is not None and (problem := self._check(row)):
                raise DamagedRow(row.key, problem)
        except DamagedRow as error:
            self.damage.note(error)
            raise
        return row
