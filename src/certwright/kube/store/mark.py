"""Store mark: a file beside a store with the store's id, and a revision that the store has certainly reached.

A store that was emptied, replaced, or has lost its write-ahead log looks valid to SQLite and to etcd. The
mark is a second record of what must exist. It may be behind the store, at most by the time between two writes
of the mark, and is never ahead, because only committed revisions are written to it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from certwright.kube.store.contract import Damaged
from certwright.kube.util.files import write_atomically

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """`store`: the id of the store; `revision`: a committed revision of it; `place`: which of the stores that
    can share the mark file, e.g. etcd's prefix."""

    store: str
    revision: int
    place: str = ""


class MarkFile:
    """The file of a mark. `store`: the name of the store in messages, e.g. its path; `remedy`: how to restore
    the store."""

    def __init__(self, path: Path, store: str, *, remedy: str = "put the right files back") -> None:
        self.path = path
        self._store = store
        self._remedy = remedy

    def read(self) -> Mark | None:
        """The mark; None if it is missing or cannot be read. Raises `OSError`."""
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
        """Raise `Damaged` unless the store with this id (None: it has none), at this revision, is the store
        of the mark and has lost no commit that the mark records."""
        if store is None or store != mark.store:
            raise self.refusal(mark, f"{self._store} is not the store that was here before")
        if revision < mark.revision:
            raise self.refusal(
                mark,
                f"{self._store} is at revision {revision}: an older copy was put in its place, or its last"
                " commits were lost",
            )

    def refusal(self, mark: Mark, what: str) -> Damaged:
        """`Damaged`, with the problem and the remedies."""
        return Damaged(
            f"{what} ({self.path.name} records store {mark.store[:8]} at revision {mark.revision}):"
            f" {self._remedy}, or run `certwright restore --force` with a backup; to continue with the "
            "present"
            f" store, remove {self.path}"
        )


class MarkKeeper:
    """Writes the mark after commits, in a thread, one write at a time. `revision`: the last committed one."""

    def __init__(self, file: MarkFile, mark: Mark, revision: Callable[[], int]) -> None:
        self._file = file
        self._mark = mark
        self._revision = revision
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    def save_soon(self) -> None:
        """Start to write the mark, unless it is up to date or being written."""
        if self._task is None and self._revision() != self._mark.revision:
            self._task = asyncio.create_task(self._save(), name="mark of the store")

    async def run(self, every_s: float) -> None:
        """Keep the mark up to date, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            self.save_soon()

    async def _save(self) -> None:
        mark = replace(self._mark, revision=self._revision())
        try:
            await asyncio.to_thread(self._file.write, mark)
        except OSError as error:
            # Commits are safe without the mark; the next start just checks less.
            if not self._is_failing:
                _log.warning("%s cannot be written: %s", self._file.path, error.strerror)
            self._is_failing = True
        else:
            self._mark, self._is_failing = mark, False
        finally:
            self._task = None

    async def close(self, *, save: bool) -> None:
        """Stop; with `save` write the mark a last time, which is right when no commit is under way."""
        while self._task is not None:
            await asyncio.wait((self._task,))
        if save and self._revision() != self._mark.revision:
            await self._save()


def new_id() -> str:
    """An id for a new store."""
    return secrets.token_hex(16)
