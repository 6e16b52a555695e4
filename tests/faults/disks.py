"""Small disks of one's own: they can be full, read-only, or break. Only root can mount them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted disk."""

    path: Path

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12):
                try:
                    while file.write(bytes(size)) == size:
                        continue
                except OSError:
                    continue

    def clear(self) -> None:
        """Give the room back."""
        self._filler.unlink()

    def remount(self, mode: str) -> None:
        """`ro` or `rw`; nobody may have a file open for writing."""
        run("mount", "-o", f"remount,{mode}", str(self.path))

    def break_down(self) -> None:
        """Let the file system find an error: from now on nothing can be written."""
        source = run("findmnt", "--noheadings", "--output", "SOURCE", str(self.path)).strip()
        Path("/sys/fs/ext4", Path(source).name, "trigger_fs_error").write_text("a test")


def run(*words: str) -> str:
    """What a command prints. Raises `CalledProcessError`."""
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


@contextmanager
def memory_disk(folder: Path, *, megabytes: int) -> Iterator[Disk]:
    """A disk in memory."""
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs") as disk:
        yield disk


@contextmanager
def file_disk(folder: Path, *, megabytes: int) -> Iterator[Disk]:
    """An ext4 in a file, which is not written any more once it has found an error."""
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    try:
        run("mkfs.ext4", "-q", "-F", str(image))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no ext4 can be made here: {error}")
    with _mounted(folder, "-o", "loop,errors=remount-ro", str(image)) as disk:
        yield disk


@contextmanager
def _mounted(folder: Path, *words: str) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    path = folder / "disk"
    path.mkdir()
    try:
        run("mount", *words, str(path))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    try:
        yield Disk(path)
    finally:
        run("umount", "--lazy", str(path))
