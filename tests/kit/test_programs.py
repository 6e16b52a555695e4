"""Programs beside the event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from certwright.kube.util import programs
from certwright.kube.util.programs import read_output
from support.waiting import until


def start(*command: str) -> Popen[bytes]:
    """A program that leads a process group."""
    return Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, process_group=0)


async def see_through(process: Popen[bytes], *, most: int = 100, timeout_s: float = 60.0) -> bytes:
    assert process.stderr is not None
    return await read_output(process, process.stderr, most=most, timeout_s=timeout_s)


async def breaking_off(*command: str, path: Path) -> int:
    """Start a program, and do not wait for it any more when it has written the number of a process to the
    path, which is its last word: that number."""
    task = asyncio.create_task(see_through(start(*command, str(path))))
    # A task that is cancelled before its first step runs nothing, and kills nothing.
    await asyncio.sleep(0)
    await until(lambda: number_in(path) > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return number_in(path)


def number_in(path: Path) -> int:
    """What is written there; 0 as long as nothing is."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else 0


def runs(pid: int) -> bool:
    """Whether that process is there; one that has ended may lie about for a while."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_what_it_said_and_its_status_are_told() -> None:
    process = start("sh", "-c", "echo words >&2; exit 3")
    assert (await see_through(process), process.returncode) == (b"words\n", 3)


async def test_of_a_program_that_talks_much_the_last_words_are_kept() -> None:
    assert await see_through(start("sh", "-c", "seq 1000000 >&2"), most=10) == b"9\n1000000\n"


async def test_one_that_says_no_more_is_waited_for() -> None:
    process = start("sh", "-c", "exec 2>&-; sleep 0.1; exit 3")
    assert (await see_through(process), process.returncode) == (b"", 3)


async def test_one_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_DEATH_S", 60.0)
    process = start("sleep", "600")
    with pytest.raises(TimeoutError):
        await see_through(process, timeout_s=0.1)
    assert process.returncode == -signal.SIGKILL


async def test_one_that_is_waited_for_no_longer_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    script = 'sleep 600 & echo $! > "$0"; wait'
    started = await breaking_off("sh", "-c", script, path=tmp_path / "pid")
    await until(lambda: not runs(started))


async def test_what_has_left_its_group_is_waited_for_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_DEATH_S", 0.1)
    script = 'echo $$ > "$0"; exec sleep 600'
    left = await breaking_off("sh", "-c", f"setsid sh -c '{script}' \"$0\"; true", path=tmp_path / "pid")
    assert runs(left)
    os.kill(left, signal.SIGKILL)
    # Whoever listens to it still is done before the loop is closed.
    await until(lambda: all(thread.name != "program" for thread in threading.enumerate()))
