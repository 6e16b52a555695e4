"""Atomic file replacement, file permissions and lock files."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from types import TracebackType

PRIVATE = 0o600
PUBLIC = 0o644


def write_atomically(path: Path, content: bytes, *, mode: int = PRIVATE) -> None:
    """Replace `path` with `content` atomically: a reader sees the old file or the new one, also after a
    crash.

    The file never exists with wider permissions than `mode`. Raises `OSError`.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    # Without this a crash may lose the rename itself.
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class AlreadyLocked(Exception):
    """Another process owns the lock; `holder` is the text that it wrote into the lock (may be empty)."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is held by another process ({holder or 'unknown'})")
        self.holder = holder


class FileLock:
    """An advisory lock that the system releases when the process ends (flock), so a crash never leaves it
    behind."""

    def __init__(self, path: Path, *, holder: str) -> None:
        self._path = path
        self._holder = holder
        self._fd: int | None = None

    def acquire(self) -> None:
        """Acquire the lock or raise `AlreadyLocked` immediately; `OSError` where the file cannot be
        opened."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.write(fd, self._holder.encode())
        except BlockingIOError:
            holder = os.read(fd, 200).decode(errors="replace").strip()
            os.close(fd)
            raise AlreadyLocked(self._path, holder) from None
        except OSError:  # e.g. a full disk; an open descriptor would keep the lock
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        """Release the lock; does nothing without the lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
