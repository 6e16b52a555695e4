"""HTTP-01 by a file in the document root of a web server (RFC 8555 §8.3).

A tenant may have written the object with the path, and other users of the machine may write below the root.
So every directory below the root is opened relative to its parent and no symbolic link is followed, the file
name is a token and nothing else, and a file that is not the response for that token is neither replaced nor
deleted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Sequence
from threading import Lock

from certwright.acme.protocol.challenges import WELL_KNOWN
from certwright.acme.solvers.contract import SolverError, Task
from certwright.kit.versioned_files import open_below, open_child, reason_of

_PAGE_MODE = 0o644  # The web server runs as another user, and a challenge response is not secret.
_DIRECTORY_MODE = 0o755
_OURS = tuple(WELL_KNOWN.strip("/").split("/"))
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,256}")
# "base64url(Thumbprint(accountKey))" is a SHA-256 digest (RFC 8555 §8.1).
_LONGEST_PAGE = 256 + 1 + 64
# Another process may delete the empty directory between our open and our write.
_ATTEMPTS = 3


class WebRoots:
    """The directories that this process has created below web roots: only those are deleted, once they are
    empty. One for all solvers of a process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: set[tuple[str, ...]] = set()


class WebRoot:
    """Writes files below `root`, a directory that the operator has named. `below` are the components of the
    path from there to the served directory, which must exist."""

    def __init__(self, root: str, below: Sequence[str] = (), *, shared: WebRoots | None = None) -> None:
        self._root = root
        self._below = tuple(below)
        self._shared = shared or WebRoots()

    async def present(self, task: Task) -> None:
        await self._do(lambda: self._write(task), task, "write")

    async def clean_up(self, task: Task) -> None:
        await self._do(lambda: self._delete(task), task, "delete")

    async def _do(self, work: Callable[[], None], task: Task, verb: str) -> None:
        # RFC 8555 §8.3: a token is base64url. Anything else must not become a path.
        if _TOKEN.fullmatch(task.token) is None:
            raise SolverError(f"the server's token {task.token[:80]!r} is not base64url (RFC 8555 §8.3)")
        try:
            await asyncio.to_thread(work)
        except OSError as error:
            page = "/".join((self._root.rstrip("/"), *self._below, *_OURS, task.token))
            raise SolverError(f"cannot {verb} {page}: {reason_of(error)}") from error

    def _write(self, task: Task) -> None:
        for attempt in range(_ATTEMPTS):
            with (
                self._shared.lock,
                open_below(self._root, self._below) as served,
                contextlib.ExitStack() as stack,
            ):
                try:
                    folder = self._ours(served, stack, make=True)
                    assert folder is not None
                    _check_replaceable(folder, task)
                    _replace(folder, task.token, task.key.encode())
                    return
                except FileNotFoundError:
                    if attempt + 1 == _ATTEMPTS:
                        raise

    def _delete(self, task: Task) -> None:
        with (
            self._shared.lock,
            open_below(self._root, self._below) as served,
            contextlib.ExitStack() as stack,
        ):
            folder = self._ours(served, stack, make=False)
            if folder is None or _page(folder, task.token) is None:
                return
            _check_replaceable(folder, task)
            os.unlink(task.token, dir_fd=folder)
            self._delete_made(served, stack)

    def _ours(self, served: int, stack: contextlib.ExitStack, *, make: bool) -> int | None:
        """A file descriptor of `.well-known/acme-challenge`; None if it does not exist and `make` is
        False."""
        here = served
        for depth, name in enumerate(_OURS, 1):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _DIRECTORY_MODE, dir_fd=here)
                    self._shared.made.add(self._place(depth))
            try:
                here = open_child(name, here)
            except FileNotFoundError:
                if make:
                    raise
                return None
            stack.callback(os.close, here)
        return here

    def _delete_made(self, served: int, stack: contextlib.ExitStack) -> None:
        """Delete empty directories that this process has created, the innermost first."""
        for depth in range(len(_OURS), 0, -1):
            if self._place(depth) not in self._shared.made:
                return
            above = served
            for name in _OURS[: depth - 1]:
                above = open_child(name, above)
                stack.callback(os.close, above)
            try:
                os.rmdir(_OURS[depth - 1], dir_fd=above)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise
                return
            self._shared.made.discard(self._place(depth))

    def _place(self, depth: int) -> tuple[str, ...]:
        return (self._root, *self._below, *_OURS[:depth])


def _page(folder: int, name: str) -> bytes | None:
    """The beginning of the file's content; None if it does not exist. Follows no link and does not block on
    a FIFO."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        return os.read(file, _LONGEST_PAGE + 1)
    finally:
        os.close(file)


def _check_replaceable(folder: int, task: Task) -> None:
    """Raises `SolverError` if a file of that name is no challenge response, and so belongs to another
    user."""
    page = _page(folder, task.token)
    if page is None or page == task.key.encode():
        return
    # A response begins with its token (RFC 8555 §8.1), also that of a former account.
    if len(page) > _LONGEST_PAGE or not page.startswith(f"{task.token}.".encode()):
        raise SolverError(
            f'the file "{task.token}" in {"/".join(_OURS)} exists and is not a proof of that challenge; '
            "it is neither replaced nor deleted"
        )


def _replace(folder: int, name: str, content: bytes) -> None:
    temporary = f".{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, _PAGE_MODE, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as written:
            os.fchmod(written.fileno(), _PAGE_MODE)  # whatever the umask is
            written.write(content)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
