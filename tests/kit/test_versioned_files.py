"""Files that are replaced together."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from certwright.kit.versioned_files import File, current_version, is_hook_done, mark_hook_done, replace_files


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    handle = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield handle
    os.close(handle)


def pair(number: int) -> dict[str, File]:
    content = str(number).encode() * 2000
    return {
        "tls.crt": File(content=content, is_private=False),
        "tls.key": File(content=content, is_private=True),
    }


def test_a_reader_of_one_version_never_sees_half_of_it(tmp_path: Path, folder: int) -> None:
    replace_files(folder, pair(0))
    stop, mixed, reads = Event(), [], [0]

    def read() -> None:
        while not stop.is_set():
            version = (tmp_path / "..data").resolve()
            try:
                contents = {(version / name).read_bytes() for name in ("tls.crt", "tls.key")}
            except FileNotFoundError:
                continue  # the version was removed between the two reads
            reads[0] += 1
            if len(contents) != 1:
                mixed.append(contents)

    reader = Thread(target=read)
    reader.start()
    for number in range(30):
        replace_files(folder, pair(number))
    stop.set()
    reader.join()
    assert (mixed, reads[0] > 0) == ([], True)
    assert len([name for name in os.listdir(tmp_path) if name.startswith("..")]) == 2


@pytest.mark.parametrize("step", range(1, 12))
def test_a_failure_at_any_step_leaves_the_last_version(
    tmp_path: Path, folder: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_files(folder, pair(1))
    calls = [0]

    def failing(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            calls[0] += 1
            if calls[0] >= step:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **named)

        monkeypatch.setattr(os, name, call)

    for name in ("mkdir", "fsync", "fchmod", "rename", "symlink"):
        failing(name)
    with contextlib.suppress(OSError):
        replace_files(folder, pair(2))
    monkeypatch.undo()
    contents = {(tmp_path / name).read_bytes() for name in ("tls.crt", "tls.key")}
    assert len(contents) == 1
    replace_files(folder, pair(2))
    assert {(tmp_path / name).read_bytes() for name in ("tls.crt", "tls.key")} == {b"2" * 2000}
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith("..")) == sorted(
        ("..data", str(current_version(folder)))
    )


def test_done_belongs_to_one_version(folder: int) -> None:
    assert not is_hook_done(folder)
    replace_files(folder, pair(1))
    first = current_version(folder)
    assert first is not None
    mark_hook_done(folder, first)
    assert is_hook_done(folder)
    replace_files(folder, pair(1))
    assert is_hook_done(folder)
    replace_files(folder, pair(2))
    assert not is_hook_done(folder)
    mark_hook_done(folder, first)
    assert not is_hook_done(folder)


def test_setuid_is_never_kept(tmp_path: Path, folder: int) -> None:
    replace_files(folder, pair(1))
    (tmp_path / "tls.key").chmod(0o4750)
    replace_files(folder, pair(2))
    assert (tmp_path / "tls.key").stat().st_mode & 0o7777 == 0o750


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_group_that_cannot_be_kept_is_named_and_the_files_stay(tmp_path: Path, folder: int) -> None:
    replace_files(folder, {"key": File(content=b"old", is_private=True)})
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.chown(tmp_path / "key", 65534, 4)
    os.seteuid(65534)
    try:
        with pytest.raises(
            PermissionError, match="key cannot be given to user nobody and group adm: only root"
        ):
            replace_files(folder, {"key": File(content=b"new", is_private=True)})
    finally:
        os.seteuid(0)
    assert (tmp_path / "key").read_bytes() == b"old"


_AS_OWNER = """
import os, sys
from certwright.kit.versioned_files import File, replace_files
files = {
    "crt": File(content=b"crt", is_private=False),
    "key": File(content=sys.argv[2].encode(), is_private=True, mode=0o600, uid=1, gid=1),
    "p12": File(
        content=os.urandom(8), is_private=True, mode=0o600, uid=1, gid=1, origin=sys.argv[2].encode()
    ),
}
print(*replace_files(os.open(sys.argv[1], os.O_RDONLY), files))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can change users")
def test_a_file_that_only_its_owner_may_read_is_replaced_when_it_differs(
    request: pytest.FixtureRequest,
) -> None:
    # Not below pytest's own folders, which others may not enter.
    folder = Path(tempfile.mkdtemp())
    request.addfinalizer(partial(shutil.rmtree, folder))
    os.chown(folder, 65534, 65534)

    def write(key: str) -> str:
        caps = "-all,+chown,+fowner"
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={caps}"]
        command += [f"--ambient-caps={caps}", sys.executable, "-c", _AS_OWNER, str(folder), key]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.stderr
        return done.stdout.strip()

    assert [write("one"), write("one"), write("two"), write("two")] == ["crt key p12", "", "key p12", ""]
    (folder / "key").write_bytes(b"own")  # by its owner, in the same place and with the same size
    assert [write("two"), write("two")] == ["key", ""]
    (folder / "..digests").unlink()
    assert [write("two"), write("two")] == ["key p12", ""]
    os.chown(folder / "..digests", 1, 1)  # forged by others
    assert write("two") == "key p12"
    assert (folder / "key").stat().st_uid == 1
