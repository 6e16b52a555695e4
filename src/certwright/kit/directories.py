"""Directories below a root that the operator has named, opened without following symbolic links.

An object that a tenant wrote may have chosen the path below the root, and other users of the machine may
write there. So each directory is opened relative to its parent (`openat`), and a symbolic link on the way is
an error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MODE = 0o755


@contextmanager
def open_below(root: str | Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """A file descriptor of the directory `root/parts…`; closed at the end.

    `create` makes missing directories, except the root. The parts MUST be file names: no `/`, `.` or `..`.
    Raises `OSError`, with the path as its filename: `ELOOP` or `ENOTDIR` for a symbolic link below the root.
    """
    # The operator chose the root, including links on the path to it.
    here, path = os.open(root, _OPEN_DIRECTORY), str(root)
    try:
        for name in parts:
            path = f"{path.rstrip('/')}/{name}"
            try:
                below = _open(name, here, create=create)
            except OSError as error:
                raise OSError(error.errno, reason_of(error), path) from error
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _open(name: str, parent: int, *, create: bool) -> int:
    is_new = False
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, _MODE, dir_fd=parent)
            os.fsync(parent)  # Without this a crash may lose the directory.
            is_new = True
    below = open_child(name, parent)
    if is_new:
        os.fchmod(below, _MODE)  # Whatever the umask is: files have their own modes.
    return below


def reserve(directory: str | Path) -> None:
    """Reserve a directory for this process, until it ends however it does (flock; nothing is written). Raises
    `BlockingIOError` if another process has reserved it.
    """
    handle = os.open(directory, _OPEN_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a file system without locks
        os.close(handle)


def open_child(name: str, parent: int) -> int:
    """A file descriptor of a directory within another one; a symbolic link is an error.

    Raises `OSError`, of which `reason_of` is the reason.
    """
    return os.open(name, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def reason_of(error: OSError) -> str:
    """Why a directory or file below the root could not be opened, for a message."""
    # The errors of `O_NOFOLLOW | O_DIRECTORY` for a symbolic link, by system.
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a symbolic link, or not a directory; symbolic links are not followed"
    return error.strerror or str(error)
