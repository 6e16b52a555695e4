"""File guard: notices within a second that the files of an open store were deleted, replaced or truncated.

SQLite does not notice: its descriptors stay valid, so it commits into files without a path. The same timer
keeps the mark up to date, by which the next start notices such a loss.

Only `stat` is used, because closing a second descriptor of these files would drop SQLite's locks on them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from certwright.kube.store.contract import Lost
from certwright.kube.store.mark import Mark, MarkKeeper
from certwright.kube.store.sqlite.file import PAGE_SIZE, mark_file

_log = logging.getLogger(__name__)

EVERY_S = 1.0
"""Interval of the checks. Acknowledged commits of this period can be lost with the files."""
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24  # SQLite file format, 4.1


class OpenFiles:
    """The database and its write-ahead log as they were when the store was opened.

    `frames`: the number of frames in the log by its index.
    """

    def __init__(self, path: Path, frames: Callable[[], int]) -> None:
        self._path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._frames = frames
        self._inodes = {file: _inode(os.stat(file)) for file in (self._path, self._wal)}
        self._size = self._path.stat().st_size

    def problem(self) -> str:
        """What is wrong with the files; empty when they are intact. May be called in any thread."""
        frames, known = self._frames(), self._size
        try:
            stats = {file: os.stat(file) for file in (self._path, self._wal)}
        except (FileNotFoundError, NotADirectoryError) as error:
            return f"{error.filename} was deleted while it was in use"
        except OSError as error:
            # A failing disk may recover; until then SQLite reports its errors.
            _log.debug("%s", error)
            return ""
        for file, stat in stats.items():
            if _inode(stat) != self._inodes[file]:
                return f"{file} was replaced while it was in use"
        size, log = (stat.st_size for stat in stats.values())
        # The database file never shrinks, because nothing here vacuums an open store.
        if size < known:
            return f"{self._path} was cut short while it was in use"
        self._size = max(size, self._size)
        # SQLite may truncate the log when it restarts the log; the log's index then says that the log is
        # empty. A commit may restart the log between the two reads, so both conditions must hold before and
        # after.
        needed = _WAL_HEADER_BYTES + frames * (_FRAME_HEADER_BYTES + PAGE_SIZE)
        if frames and log < needed and self._frames() >= frames:
            return f"{self._wal} was cut short while it was in use"
        return ""


def _inode(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


class Guard:
    """Checks the files each second, on the event loop, and writes the mark after commits, in a thread.

    `revision`: the last committed one. `lost` is called once, with the error of all requests from then on.
    """

    def __init__(
        self,
        path: Path,
        files: OpenFiles,
        mark: Mark,
        *,
        revision: Callable[[], int],
        lost: Callable[[Lost], None],
    ) -> None:
        self._files = files
        self._keeper = MarkKeeper(mark_file(path), mark, revision)
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self.error: Lost | None = None
        """Why the store is no longer served."""
        self._timer = self._loop.call_later(EVERY_S, self._tick)

    def check(self) -> None:
        """Check the files now. Raises `Lost`."""
        if self.error is None and (problem := self._files.problem()):
            self.error = Lost(
                f"{problem}: nothing is read or written any more; stop the server, put the store's files back"
                " or restore a backup, and start it again"
            )
            self._timer.cancel()
            _log.error("%s", self.error)
            self._lost(self.error)
        self.require()

    def require(self) -> None:
        """Raise `Lost` if an earlier check found the files lost."""
        if self.error is not None:
            raise Lost(str(self.error))

    def _tick(self) -> None:
        try:
            self.check()
        except Lost:
            return
        self._timer = self._loop.call_later(EVERY_S, self._tick)
        self._keeper.save_soon()

    async def close(self) -> None:
        """Stop, and write the mark a last time; call it when all commits are done."""
        self._timer.cancel()
        await self._keeper.close(save=self.error is None)
