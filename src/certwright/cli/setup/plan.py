"""Steps that change a machine, and the record of their results.

A step is idempotent: nothing happens if its result exists. An interrupted set-up is repeated, because each
step is recorded before it runs. Removal reads the record only, in reverse.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

import msgspec

from certwright.cli.errors import Failed, report
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.encoding import in_words, one_line
from certwright.kube.util.files import PUBLIC, write_atomically

RECORDS: Final = Path("/etc/certwright/setup")
"""The records, one for each thing that is set up. Only root may write them, because root acts on them."""
HEAD: Final = "Written by certwright setup; a changed file is not replaced."
_HEAD: Final = re.compile(rb"\S+ " + re.escape(HEAD.encode()) + rb" sha256:([0-9a-f]{64})\n")
_LARGEST: Final = 1 << 20
_TIMEOUT_S: Final = 180
_SYSTEMD: Final = Path("/run/systemd/system")
"""Exists where systemd runs; see sd_booted(3)."""


class Refused(Exception):
    """A step that must not run; the text is one sentence with the fix."""


@dataclass(frozen=True, slots=True)
class Host:
    """This machine, or an image of one in the directory `root`."""

    root: Path | None = None

    def at(self, path: Path | str) -> Path:
        """The path on this machine."""
        return Path(path) if self.root is None else self.root / str(path).lstrip("/")

    @property
    def is_live(self) -> bool:
        """Whether users are made and programs run."""
        return self.root is None

    @property
    def has_systemd(self) -> bool:
        """Whether systemd runs here; an image is taken to have it."""
        return self.root is not None or _SYSTEMD.is_dir()


class Made(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result of a step: a `user`, `directory`, `file`, `link` or `object`. `owner`: the set-up that needs
    it; empty: all of the record."""

    kind: str
    what: str
    owner: str = ""


class Step(Protocol):
    """One idempotent change of the machine."""

    @property
    def made(self) -> Made:
        """The results of the step."""

    def describe(self, host: Host) -> str:
        """The step in words for people; the caller indents further lines."""

    def is_done(self, host: Host) -> bool:
        """Whether nothing is left to do. Raises `Refused`, and `OSError`."""

    def do(self, host: Host) -> None:
        """Do it. Raises `OSError` and `Failed`."""


@dataclass(frozen=True, slots=True)
class User:
    """A system user without a login, with a group of the same name."""

    name: str
    home: Path

    @property
    def made(self) -> Made:
        return Made("user", self.name)

    @property
    def words(self) -> tuple[str, ...]:
        """The command that makes the user."""
        options = ("--system", "--user-group", "--home-dir", str(self.home), "--shell", "/usr/sbin/nologin")
        return ("useradd", *options, "--no-create-home", self.name)

    def describe(self, host: Host) -> str:  # noqa: ARG002 - see Step
        return f"make the user {self.name}: {shlex.join(self.words)}"

    def is_done(self, host: Host) -> bool:
        # Users of an image are made in the image.
        return not host.is_live or exists(self.name)

    def do(self, host: Host) -> None:  # noqa: ARG002 - see Step
        run(self.words)


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of that user and group."""

    path: Path
    mode: int = 0o755
    user: str = "root"

    @property
    def made(self) -> Made:
        return Made("directory", str(self.path))

    def describe(self, host: Host) -> str:
        return f"make the directory {host.at(self.path)} (mode {self.mode:04o}, of {self.user})"

    def is_done(self, host: Host) -> bool:
        path = host.at(self.path)
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            raise Refused(f"{path} is not a directory; move it away, and run this again")
        if host.is_live and exists(self.user) and status.st_uid not in (pwd.getpwnam(self.user).pw_uid, 0):
            raise Refused(
                f"{path} belongs to user {name_of(status.st_uid)}; it is expected to be of {self.user}: run "
                f"`chown {self.user} {path}`, or move it away, and run this again"
            )
        return not host.is_live or status.st_uid == _uid(self.user)

    def do(self, host: Host) -> None:
        path = host.at(self.path)
        path.mkdir(parents=True, exist_ok=True)
        if host.is_live:
            # An existing directory of root keeps its mode.
            os.chown(path, _uid(self.user), grp.getgrnam(self.user).gr_gid)
        path.chmod(self.mode)


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file of root; its first line has the digest of the rest. `is_seed`: an existing file is the user's,
    whatever its content. `comment` begins a comment."""

    path: Path
    body: str
    comment: str = "#"
    mode: int = PUBLIC
    owner: str = ""
    is_seed: bool = False

    @property
    def made(self) -> Made:
        return Made("file", str(self.path), self.owner)

    @property
    def content(self) -> bytes:
        """The whole file."""
        body = self.body.encode()
        return f"{self.comment} {HEAD} sha256:{sha256(body).hexdigest()}\n".encode() + body

    def describe(self, host: Host) -> str:
        mode = f" (mode {self.mode:04o})" if self.mode != PUBLIC else ""
        return f"write {host.at(self.path)}{mode}:\n{self.body.rstrip()}"

    def is_done(self, host: Host) -> bool:
        path = host.at(self.path)
        present = _read(path)
        if present is None:
            return False
        if self.is_seed or present == self.content:
            return True
        if not is_ours(present):
            raise Refused(refusal(path, present))
        return False

    def do(self, host: Host) -> None:
        path = host.at(self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self.content, mode=self.mode)


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, e.g. of a module that a server loads."""

    path: Path
    target: str
    owner: str = ""

    @property
    def made(self) -> Made:
        return Made("link", str(self.path), self.owner)

    def describe(self, host: Host) -> str:
        return f"link {host.at(self.path)} to {self.target}"

    def is_done(self, host: Host) -> bool:
        path = host.at(self.path)
        return path.exists() or path.is_symlink()

    def do(self, host: Host) -> None:
        path = host.at(self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.target)


class Content(msgspec.Struct):
    """The content of a record. `is_begun`: changes are made that servers have not read yet."""

    made: list[Made] = []
    is_begun: bool = False


@dataclass(slots=True)
class Record:
    """What the set-up `name` has made."""

    host: Host
    name: str
    content: Content = field(default_factory=Content)

    @classmethod
    def read(cls, host: Host, name: str) -> Record:
        """The record; empty if nothing is set up. Raises `Failed`."""
        path = host.at(RECORDS / f"{name}.json")
        try:
            return cls(host, name, json_decoder(Content).decode(path.read_bytes()))
        except FileNotFoundError:
            return cls(host, name)
        except (OSError, msgspec.MsgspecError) as error:
            reason = (
                in_words(error) if isinstance(error, OSError) else "is not a record of `certwright setup`"
            )
            raise Failed(f"{path}: {reason}; what it has made cannot be known") from None

    @property
    def path(self) -> Path:
        """The file of the record."""
        return self.host.at(RECORDS / f"{self.name}.json")

    def owners(self) -> set[str]:
        """The set-ups that share the record."""
        return {made.owner for made in self.content.made} - {""}

    def save(self) -> None:
        """Write the record, or remove it if it is empty. Raises `OSError`."""
        if not self.content.made:
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # They are not empty.
                self.path.parent.rmdir()
                self.path.parent.parent.rmdir()
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, msgspec.json.encode(self.content) + b"\n", mode=PUBLIC)

    def add(self, made: Made) -> None:
        """Record something before it is made. Raises `OSError`."""
        self.content.is_begun = True
        if made not in self.content.made:
            self.content.made.append(made)
        self.save()

    def end(self) -> None:
        """Record that the servers have read all changes. Raises `OSError`."""
        if self.content.is_begun:
            self.content.is_begun = False
            self.save()


def check(steps: Iterable[Step], host: Host) -> list[Step]:
    """The steps that are left to do. Raises `Failed` for all that must not run, before any does."""
    left, refused = [], []
    for step in steps:
        try:
            if not step.is_done(host):
                left.append(step)
        except Refused as error:
            refused.append(str(error))
        except OSError as error:
            refused.append(f"{error.filename}: {in_words(error)}")
    if refused:
        raise Failed(f"{'; '.join(refused)}. Nothing was changed")
    return left


def perform(steps: Iterable[Step], record: Record) -> bool:
    """Run the steps that are left, and print each. Whether there was any. Raises `Failed`."""
    left = check(steps, record.host)
    present = [step for step in left if isinstance(step, Directory) and record.host.at(step.path).exists()]
    for step in left:
        try:
            if step not in present:
                record.add(step.made)
            step.do(record.host)
        except OSError as error:
            raise Failed(
                f"{error.filename or record.path}: {in_words(error)}; what was made so far is recorded: "
                f"run this "
                "again, or with --remove"
            ) from error
        report(step.describe(record.host).partition(":\n")[0])
    return bool(left)


def undo(made: Made, host: Host) -> str:
    """Undo one thing; returns a sentence where it stays, or an empty text. Raises `OSError`."""
    path = host.at(made.what)
    match made.kind:
        case "file":
            present = _read(path)
            if present is not None and not is_ours(present):
                return f"{path} stays, because it was changed after setup had written it"
            path.unlink(missing_ok=True)
            if path.parent.suffix == ".d":
                with contextlib.suppress(OSError):  # It is not empty.
                    path.parent.rmdir()
        case "link":
            if path.is_symlink():
                path.unlink()
        case "directory":
            try:
                path.rmdir()
            except FileNotFoundError:
                return ""
            except OSError:
                return f"{path} stays, because it is not empty"
        case "user":
            return _remove_user(made.what)
    return ""


def _remove_user(name: str) -> str:
    if not exists(name):
        return ""
    home = Path(pwd.getpwnam(name).pw_dir)
    if home.exists():
        return f"the user {name} stays, because {home} belongs to it; `userdel {name}` removes it"
    run(("userdel", name))
    return ""


def is_ours(content: bytes) -> bool:
    """Whether setup has written exactly this."""
    head = _HEAD.match(content)
    return head is not None and sha256(content[head.end() :]).hexdigest().encode() == head[1]


def is_ours_at(path: Path) -> bool:
    """Whether setup has written exactly the content of that file."""
    try:
        return is_ours(path.read_bytes())
    except OSError:
        return False


def refusal(path: Path, content: bytes) -> str:
    """Why the file is not replaced, with the fix."""
    if HEAD.encode() in content.partition(b"\n")[0]:
        return (
            f"{path} was changed after setup had written it; to keep your change, move the file to another "
            f"name and "
            "take out its first line; to discard it, delete the file; then run this again"
        )
    return f"{path} exists and was not written by setup; move it away, and run this again"


def _read(path: Path) -> bytes | None:
    """The content of a regular file; None if nothing is there. Raises `Refused` and `OSError`."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        raise Refused(f"{path} is not a regular file; move it away, and run this again")
    return path.read_bytes()


def exists(user: str) -> bool:
    """Whether this machine has the user."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def name_of(uid: int) -> str:
    """The name of the user, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _uid(user: str) -> int:
    return pwd.getpwnam(user).pw_uid


def run(words: Sequence[str]) -> str:
    """Run a program and return its output. Raises `Failed` with the end of the output."""
    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_S,
        )
    except OSError as error:
        raise Failed(f"`{words[0]}` cannot be started: {in_words(error)}") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"`{shlex.join(words)}` did not end within {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        reason = one_line(done.stdout.strip())[-500:] or f"exit status {done.returncode}"
        raise Failed(f"`{shlex.join(words)}` failed: {reason}")
    return done.stdout


def find_program(name: str) -> str | None:
    """The path of a program, which may be on root's PATH only."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin")
