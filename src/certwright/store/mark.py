"""The mark beside a store: its id, and a revision that it has certainly reached.

A store that was emptied, replaced by another one, or that lost its write-ahead log looks like a good store to
SQLite and to etcd. The mark is a second record of what must be there. It may be behind the store, at most by
the time between two of its writes; it is never ahead, because only committed revisions are written to it.
"""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from certwright.kit.files import write_atomically
from certwright.store.contract import Damaged

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """`store`: the id of the store; `revision`: a committed revision of it; `place`: which of several stores
    that one mark can be for, e.g. etcd's prefix."""

    store: str
    revision: int
    place: str = ""


class MarkFile:
    """Where a mark is kept. `store`: the words for the store in messages, e.g. its path."""

    def __init__(self, path: Path, store: str) -> None:
        self.path = path
        self._store = store

    def read(self) -> Mark | None:
        """The mark; None where there is none, or it cannot be read. Raises `OSError`."""
        try:
            return Mark(**json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            _log.warning("%s cannot be read and is written again: %s", self.path, error)
            return None

    def write(self, mark: Mark) -> None:
        """Replace the mark. Raises `OSError`."""
        write_atomically(self.path, json.dumps(asdict(mark)).encode())

    def remove(self) -> None:
        """Remove the mark, so that any store is accepted. Raises `OSError`."""
        self.path.unlink(missing_ok=True)

    def check(self, mark: Mark, store: str | None, revision: int) -> None:
        """Raise `Damaged` unless the store with this id (None: it has none), at this revision, is the one of
        the mark and has not lost a commit that the mark knows of."""
        if store is None or store != mark.store:
            raise self.refusal(mark, f"{self._store} is not the store that was here before")
        if revision < mark.revision:
            raise self.refusal(
                mark,
                f"{self._store} is at revision {revision}: an older copy was put in its place, or its last"
                " commits were lost",
            )

    def refusal(self, mark: Mark, what: str) -> Damaged:
        """`Damaged`, with what is wrong and the ways out."""
        return Damaged(
            f"{what} ({self.path.name} records store {mark.store[:8]} at revision {mark.revision}): put the"
            " right files back, or run `certwright restore --force` with a backup; to continue with what is"
            f" there, remove {self.path}"
        )


def new_id() -> str:
    """An id for a new store."""
    return secrets.token_hex(16)
