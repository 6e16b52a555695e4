import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kit import logs
from certwright.kube.api import naming
from certwright.kube.util.durations import doubled
from certwright.kube.util.files import AlreadyLocked, FileLock, write_atomically
from certwright.kube.util.tasks import TaskSet


@pytest.mark.parametrize(
    ("attempts", "hours"), [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 32), (10**9, 32)]
)
def test_waits_double_up_to_the_cap(attempts: int, hours: int) -> None:
    assert doubled(timedelta(hours=1), attempts, cap=timedelta(hours=32)) == timedelta(hours=hours)


def test_a_base_of_nothing_switches_the_wait_off() -> None:
    assert doubled(timedelta(0), 5, cap=timedelta(hours=32)) == timedelta(0)


@given(st.text(min_size=1, max_size=400), st.integers(30, 253))
def test_a_bounded_name_fits_and_is_the_same_each_time(name: str, limit: int) -> None:
    short = naming.bounded_name(name, limit=limit)
    assert len(short) <= limit
    assert short == naming.bounded_name(name, limit=limit)


def test_two_long_names_with_one_beginning_stay_different() -> None:
    assert naming.bounded_name("a" * 300 + "x", limit=60) != naming.bounded_name("a" * 300 + "y", limit=60)


def test_suffixes_use_only_the_letters_that_make_no_words() -> None:
    assert set("".join(naming.random_suffix(5) for _ in range(500))) <= set(naming.ALPHABET)


def test_no_uid_is_drawn_twice_however_many_are_drawn() -> None:
    drawn = [naming.new_uid() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(UUID(uid).version == 4 and str(UUID(uid)) == uid for uid in drawn)


# Others have been drawn ahead when it forks off.
FORKING = """
import os
from certwright.kube.api import naming
naming.new_uid()
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*(naming.new_uid() for _ in range(200)))
"""


def test_a_process_that_forks_off_draws_other_uids() -> None:
    """In a process of its own, which has no threads."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    drawn = done.stdout.split()
    assert len(set(drawn)) == len(drawn) == 400


def test_a_file_is_replaced_whole_and_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "tls.key"
    old_mask = os.umask(0)
    try:
        write_atomically(path, b"one")
        write_atomically(path, b"two")
    finally:
        os.umask(old_mask)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["tls.key"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()  # os.replace of a file onto a directory fails
    with pytest.raises(OSError, match="directory"):
        write_atomically(path, b"x")
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_is_refused_while_another_process_holds_it_and_free_once_that_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    program = (
        "import sys, time; from pathlib import Path; from certwright.kube.util.files import FileLock\n"
        "FileLock(Path(sys.argv[1]), holder='process 42').acquire()\n"
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyLocked) as caught:
            FileLock(path, holder="me").acquire()
        assert caught.value.holder == "process 42"
        other.kill()
    with FileLock(path, holder="me"):
        pass


async def test_a_task_that_fails_is_told_and_closing_ends_the_others() -> None:
    tasks = TaskSet()

    async def fail() -> None:
        raise LookupError("gone")

    endless = tasks.start(asyncio.Event().wait(), name="endless")
    tasks.start(fail(), name="failing")
    await tasks.failed.wait()
    assert isinstance(tasks.error, LookupError)
    await tasks.close()
    assert endless.cancelled()


async def test_closing_ends_what_begins_because_of_it() -> None:
    tasks, begun, later = TaskSet(), asyncio.Event(), []

    async def leave_work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            later.append(tasks.start(asyncio.Event().wait(), name="later"))

    tasks.start(leave_work(), name="first")
    await begun.wait()
    await tasks.close()
    assert [task.cancelled() for task in later] == [True]


def test_the_log_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    try:
        logs.set_up(level="info", form="json")
        logging.getLogger("certwright.x").info("issued %s", "web")
        assert json.loads(capsys.readouterr().err)["msg"] == "issued web"
    finally:
        root.handlers[:], root.level = before[0], before[1]


def test_an_unknown_log_level_is_named() -> None:
    with pytest.raises(ValueError, match="'loud' is not a log level"):
        logs.set_up(level="loud")
