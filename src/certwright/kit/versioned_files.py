"""A directory whose files are replaced together, in the layout of Kubernetes' volumes (`AtomicWriter`).

    tls.crt -> ..data/tls.crt        the documented names are links that never change
    tls.key -> ..data/tls.key
    ..data -> ..5f0c1d9a8e7b6243     one rename of this link replaces all files
    ..5f0c1d9a8e7b6243/              a version: regular files, never written again
    ..done -> ..5f0c1d9a8e7b6243     the version after which the caller's hook has succeeded
    ..digests                        of files that this process may not read, because they have another owner

A reader sees the files of one version, also after a crash at any moment. Mode, owner and group of a file are
those of its predecessor, so that `chgrp` and `chmod` on the documented name last. All names are resolved
relative to the directory's descriptor, and links other than these are replaced, never followed.

An object that a tenant wrote may have chosen the path below the operator's root, and other users of the
machine may write there. So each directory is opened relative to its parent (`openat`), and a symbolic link on
the way is an error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import pwd
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.files import PRIVATE, PUBLIC

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


def reserve(directory: str | Path) -> int:
    """Reserve a directory for this process (flock; nothing is written), until the process ends in any way or
    closes the returned file descriptor. Raises `BlockingIOError` if another process has reserved it."""
    handle = os.open(directory, _OPEN_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a file system without locks
        pass
    return handle


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


_DATA = "..data"
_DONE = "..done"
_DIGESTS = "..digests"
_VERSION = re.compile(r"\.\.[0-9a-f]{16}")
_VERSION_MODE = 0o755  # The files have their own modes.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PERMISSIONS = 0o777
_OTHERS = 0o007


class Attributes(msgspec.Struct, frozen=True):
    """Permission bits, and numeric owner and group."""

    mode: int
    uid: int
    gid: int


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file. `is_private`: it contains or may contain a private key, and is never readable by all users.
    `mode`, `uid` and `gid` None: as its predecessor, or 0600 (private) or 0644, and this process's user.
    `origin`: what the content was made from, where each making differs, e.g. by a salt; else empty."""

    content: bytes
    is_private: bool
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    origin: bytes = b""

    @property
    def digest(self) -> str:
        """The SHA-256 by which the file is known where it cannot be read."""
        return sha256(self.origin or self.content).hexdigest()

    def attributes(self, before: Attributes | None) -> Attributes:
        """The attributes of the new file; `before`: its predecessor's."""
        default = PRIVATE if self.is_private else PUBLIC
        kept = before or Attributes(default, os.geteuid(), os.getegid())
        mode = kept.mode & _PERMISSIONS
        if self.is_private and mode & _OTHERS:
            mode = PRIVATE
        return Attributes(
            mode if self.mode is None else self.mode,
            kept.uid if self.uid is None else self.uid,
            kept.gid if self.gid is None else self.gid,
        )


Read = Callable[[str], bytes | None]
"""Read the present content of a file by its name; None if it does not exist."""


class ForeignFile(Exception):
    """A file that was not written here is in the way; the text is its name."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The changed files, the version of the files, whether the hook has succeeded for it, and a value that
    changes when others change the files."""

    changed: Sequence[str]
    version: str
    is_hook_done: bool
    signature: tuple[object, ...]


class VersionedFolder(msgspec.Struct, frozen=True):
    """A directory below a root whose files are replaced together. Does blocking file I/O: call it in a
    thread."""

    root: str
    parts: Sequence[str]

    @property
    def path(self) -> Path:
        """Its path."""
        return Path(self.root, *self.parts)

    def write(
        self,
        make: Callable[[Read], Mapping[str, File]],
        *,
        obsolete: Collection[str] = (),
        replaces_foreign: bool = False,
    ) -> Written:
        """Replace the files by the result of `make`, and remove `obsolete` files. Raises what `make` raises,
        `OSError`, and `ForeignFile` unless `replaces_foreign`."""
        with open_below(self.root, self.parts, create=True) as folder:
            files = make(partial(read_file, folder))
            for name in files:
                if not replaces_foreign and not is_ours(folder, name):
                    raise ForeignFile(name)
            return Written(
                changed=replace_files(folder, files, obsolete=obsolete),
                version=current_version(folder) or "",
                is_hook_done=is_hook_done(folder),
                signature=signature(folder, files),
            )

    def sign(self, names: Collection[str]) -> tuple[object, ...] | None:
        """The signature of the files as they are; None if the directory does not exist."""
        try:
            with open_below(self.root, self.parts) as folder:
                return signature(folder, names)
        except OSError:
            return None

    def mark_hook_done(self, version: str) -> None:
        """Record that the hook has succeeded for this version. Raises `OSError`."""
        with open_below(self.root, self.parts) as folder:
            mark_hook_done(folder, version)


class _File(msgspec.Struct, frozen=True):
    """`content` None: this process may not read it."""

    content: bytes | None
    attributes: Attributes


class _Digest(msgspec.Struct, frozen=True):
    """`File.digest` of a file that had this stamp. The owner of the file can change it, but not its ctime."""

    stamp: tuple[int, ...]
    sha256: str


def replace_files(folder: int, files: Mapping[str, File], *, obsolete: Collection[str] = ()) -> list[str]:
    """Make the directory of that descriptor contain `files`; returns the names of changed and removed files.

    `obsolete` are names that are removed where they are not in `files`; those of the last version are too.
    Other files stay. Names MUST be file names without a leading dot. Raises `OSError`; then the last version
    is complete.
    """
    version = current_version(folder)
    before = {name: _read(folder, version, name) for name in files}
    after = {}
    for name, file in files.items():
        former = before[name]
        after[name] = _File(file.content, file.attributes(former.attributes if former is not None else None))
    digests = _read_digests(folder) if version is not None else {}
    changed = [
        name
        for name, file in files.items()
        if not _is_same(folder, name, before[name], after[name], digests.get(name), file.digest)
    ]
    listed = _names(folder, version)
    if version is None or changed or listed != set(files):
        version = _write_version(folder, after)
        _write_digests(folder, version, files)
        _link(folder, _DATA, version)
    changed += [name for name in files if name not in changed and not _is_linked(folder, name)]
    for name in files:
        if not _is_linked(folder, name):
            _link(folder, name, f"{_DATA}/{name}")
    removed = [name for name in sorted({*obsolete, *listed} - set(files)) if _unlink(folder, name)]
    os.fsync(folder)
    _remove_versions(folder, but=version)
    return changed + removed


def _is_same(
    folder: int, name: str, before: _File | None, after: _File, digest: _Digest | None, expected: str
) -> bool:
    if before is None or before.content is not None:
        return before == after
    if digest is None or before.attributes != after.attributes:
        return False
    stamp = _stamp_with_change(folder, f"{_DATA}/{name}")
    return digest == _Digest(stamp, expected)


def _stamp_with_change(folder: int, path: str) -> tuple[int, ...]:
    status = os.stat(path, dir_fd=folder)
    return (status.st_ino, status.st_ctime_ns, status.st_size)


def _read_digests(folder: int) -> dict[str, _Digest]:
    """The digests, if this process has written them: others may be able to write into the directory."""
    try:
        with os.fdopen(os.open(_DIGESTS, _READ, dir_fd=folder), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return {}
            return json_decoder(dict[str, _Digest]).decode(file.read())
    except (OSError, msgspec.MsgspecError):
        return {}


def _write_digests(folder: int, version: str, files: Mapping[str, File]) -> None:
    digests = {
        name: _Digest(_stamp_with_change(folder, f"{version}/{name}"), file.digest)
        for name, file in files.items()
        if not os.access(f"{version}/{name}", os.R_OK, dir_fd=folder, effective_ids=True)
    }
    if not digests:
        _unlink(folder, _DIGESTS)
        return
    temporary = f"..new-{secrets.token_hex(8)}"
    own = Attributes(PRIVATE, os.geteuid(), os.getegid())
    _write(folder, temporary, _File(msgspec.json.encode(digests), own))
    os.rename(temporary, _DIGESTS, src_dir_fd=folder, dst_dir_fd=folder)


def current_version(folder: int) -> str | None:
    """The name of the current version; None before the first."""
    return _version_of(folder, _DATA)


def read_file(folder: int, name: str) -> bytes | None:
    """The content of the file in the current version; None if it does not exist. Follows no link."""
    file = _read(folder, current_version(folder), name)
    return file.content if file is not None else None


def is_ours(folder: int, name: str) -> bool:
    """Whether the name is free or that of a file of ours, so that `replace_files` replaces no other file."""
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    return _is_linked(folder, name)


def is_hook_done(folder: int) -> bool:
    """Whether the hook has succeeded for the current version, also before a restart."""
    version = current_version(folder)
    return version is not None and _version_of(folder, _DONE) == version


def mark_hook_done(folder: int, version: str) -> None:
    """Record on the disk that the hook has succeeded for this version."""
    _link(folder, _DONE, version)
    os.fsync(folder)


def signature(folder: int, names: Collection[str]) -> tuple[object, ...]:
    """A value that changes when a file of these names is changed, replaced or deleted by any program."""
    version = current_version(folder)
    return (version, *(_stamp(folder, name) for name in sorted(names)))


def _stamp(folder: int, name: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(name, dir_fd=folder)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid, status.st_gid)


def _version_of(folder: int, link: str) -> str | None:
    try:
        target = os.readlink(link, dir_fd=folder)
    except OSError:
        return None
    return target if _VERSION.fullmatch(target) else None


@contextmanager
def _opened(folder: int, version: str) -> Iterator[int]:
    handle = open_child(version, folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _names(folder: int, version: str | None) -> set[str]:
    if version is None:
        return set()
    try:
        with _opened(folder, version) as handle:
            return set(os.listdir(handle))
    except OSError:
        return set()


def _read(folder: int, version: str | None, name: str) -> _File | None:
    """The file of that name in the version; without a version, a regular file of an older layout."""
    try:
        if version is None:
            return _read_in(folder, name)
        with _opened(folder, version) as handle:
            return _read_in(handle, name)
    except OSError:
        return None


def _read_in(folder: int, name: str) -> _File | None:
    content = None
    try:
        with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                content = file.read()
    except PermissionError:
        status = os.lstat(name, dir_fd=folder)
    if not stat.S_ISREG(status.st_mode):
        return None
    return _File(content, Attributes(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid))


def _write_version(folder: int, files: Mapping[str, _File]) -> str:
    version = f"..{secrets.token_hex(8)}"
    os.mkdir(version, 0o700, dir_fd=folder)
    try:
        with _opened(folder, version) as handle:
            for name, file in files.items():
                _write(handle, name, file)
            os.fchmod(handle, _VERSION_MODE)
            os.fsync(handle)
    except BaseException:
        _remove_version(folder, version)
        raise
    return version


def _write(folder: int, name: str, file: _File) -> None:
    attributes = file.attributes
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, PRIVATE, dir_fd=folder), "wb") as opened:
        status = os.fstat(opened.fileno())
        if (status.st_uid, status.st_gid) != (attributes.uid, attributes.gid):
            _change_owner(opened.fileno(), name, attributes)
        # After the owner, because a change of the owner may clear bits; whatever the umask is.
        os.fchmod(opened.fileno(), attributes.mode)
        opened.write(file.content or b"")
        opened.flush()
        os.fsync(opened.fileno())


def _change_owner(handle: int, name: str, attributes: Attributes) -> None:
    try:
        os.fchown(handle, attributes.uid, attributes.gid)
    except PermissionError as error:
        user, group = _user(attributes.uid), _group(attributes.gid)
        raise PermissionError(
            error.errno,
            f"{name} cannot be given to user {user} and group {group}: only root can, a process with "
            "CAP_CHOWN and CAP_FOWNER (in its unit AmbientCapabilities=CAP_CHOWN CAP_FOWNER, see "
            "docs/delivery.md), or a member of the group its own files",
        ) from error


def _user(uid: int) -> str:
    """The name, where the user has one."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    """The name, where the group has one."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _is_linked(folder: int, name: str) -> bool:
    try:
        return os.readlink(name, dir_fd=folder) == f"{_DATA}/{name}"
    except OSError:
        return False


def _link(folder: int, name: str, target: str) -> None:
    temporary = f"..new-{secrets.token_hex(8)}"
    os.symlink(target, temporary, dir_fd=folder)
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _unlink(folder: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _remove_versions(folder: int, *, but: str) -> None:
    """Remove older versions, and what a killed process left."""
    for name in os.listdir(folder):
        if name.startswith("..new-"):
            _unlink(folder, name)
        elif _VERSION.fullmatch(name) and name != but:
            _remove_version(folder, name)


def _remove_version(folder: int, version: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        with _opened(folder, version) as handle:
            for name in os.listdir(handle):
                os.unlink(name, dir_fd=handle)
        os.rmdir(version, dir_fd=folder)
