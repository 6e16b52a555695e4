"""What only a store on disk has to stand: being killed, opened again, full, damaged, foreign, forbidden."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from certwright.kube.store.contract import Compacted, Damaged, Key, StoreError, Unavailable
from certwright.kube.store.sqlite.file import WAL_BYTES, connect, explain
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite
from conformance.store_words import A, fill, said, saying
from kube.store.opening import opened_file

CHILD = Path(__file__).with_name("writing_child.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is to be."""
    return tmp_path / "store.db"


@pytest.fixture
async def full_path(path: Path) -> Path:
    """A closed store with 200 rows of 10 KB."""
    async with opened_file(path) as store:
        for number in range(200):
            await store.put(Key("things", "ns", f"{number:03}"), lambda revision: (b"m", b"x" * 10_000))
    return path


def put_bytes(path: Path, content: bytes, *, at: int = 0) -> None:
    """Write into a file behind the store's back."""
    with open(path, "r+b" if at else "wb") as file:
        file.seek(at)
        file.write(content)


def garbage(size: int) -> bytes:
    """The same in every run: some pages of others could pass for good ones."""
    return random.Random(size).randbytes(size)


def get_bytes(path: Path) -> bytes:
    """What is in a file."""
    return path.read_bytes()


async def test_rows_and_revision_are_there_after_opening_again(path: Path) -> None:
    async with opened_file(path) as store:
        await fill(store, 3)
    async with opened_file(path) as store:
        assert said((await store.list("things")).rows) == ["000=old", "001=old", "002=old"]
        assert store.revision == 3
        assert (await store.put(A, saying("x"))).revision == 4


async def test_revisions_do_not_go_back_when_the_last_row_was_deleted(path: Path) -> None:
    async with opened_file(path) as store:
        await store.put(A, saying("x"))
        await store.delete(A)
    async with opened_file(path) as store:
        assert store.revision == 2
        with pytest.raises(Compacted):
            store.watch("things", after=1)
        watch = store.watch("things", after=2)
        row = await store.put(A, saying("y"), expect=0)
        assert row.revision == 3
        assert [event.row for event in await watch.next() or ()] == [row]


def test_a_full_disk_fails_writes_with_a_sentence_until_there_is_room(path: Path) -> None:
    command = [sys.executable, str(CHILD), str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    failure, readable, recovered = result.stdout.splitlines()
    assert failure.startswith(f"Unavailable: the disk that holds {path} cannot be read or written")
    assert readable == "the failed write is invisible: True True"
    assert recovered == "recovered True [True]"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (sqlite3.SQLITE_FULL, Unavailable, "the disk that holds /d/store.db is full"),
        (sqlite3.SQLITE_IOERR_WRITE, Unavailable, "cannot be read or written"),
        (sqlite3.SQLITE_READONLY, Unavailable, "permissions"),
        (sqlite3.SQLITE_BUSY, Unavailable, "locked by another program"),
        (sqlite3.SQLITE_CORRUPT, Damaged, "restore it from a backup"),
        (sqlite3.SQLITE_NOMEM, Unavailable, "could not be read or written"),
    ],
)
def test_errors_are_explained(code: int, kind: type[StoreError], words: str) -> None:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    explained = explain(error, Path("/d/store.db"))
    assert type(explained) is kind
    assert words in str(explained)
    assert "/d/store.db" in str(explained)


async def test_files_are_for_their_owner_only_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened_file(path) as store:
            await store.put(A, saying("x"))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes.keys() >= {"store.db", "store.db-wal", "store.db-shm"}
    assert set(modes.values()) == {0o600}


async def test_a_file_that_others_could_read_is_closed_to_them(full_path: Path) -> None:
    os.chmod(full_path, 0o644)
    async with opened_file(full_path):
        assert {stat.S_IMODE(file.stat().st_mode) for file in full_path.parent.iterdir()} == {0o600}


async def test_closing_leaves_one_file_and_nothing_to_recover(full_path: Path) -> None:
    names = {file.name for file in full_path.parent.iterdir()}
    assert names == {"store.db", "store.db.lock", "store.db.mark"}


async def test_a_second_opener_is_refused(path: Path) -> None:
    async with opened_file(path):
        with pytest.raises(Unavailable, match=f"in use by another process \\(process {os.getpid()}\\)"):
            await open_sqlite(path)
    await (await open_sqlite(path)).close()


@pytest.mark.parametrize(
    "content",
    [b"hello, I am no database\n" * 500, b"x", garbage(20_000)],
    ids=["text", "a letter", "garbage"],
)
async def test_a_file_of_something_else_is_refused(path: Path, content: bytes) -> None:
    put_bytes(path, content)
    with pytest.raises(Damaged, match=r"store\.db is not a store"):
        await open_sqlite(path)
    assert get_bytes(path) == content


async def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(Damaged, match="another program"):
        await open_sqlite(path)


async def test_a_store_of_a_newer_version_is_refused(full_path: Path) -> None:
    with closing(connect(full_path)) as connection:
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(Damaged, match=r"newer certwright \(format 3; this one reads 2\)"):
        await open_sqlite(full_path)


@pytest.mark.parametrize("keep", [20, 50, 5_000, 100_000, -1])
async def test_a_store_that_was_cut_short_is_refused(full_path: Path, keep: int) -> None:
    size = os.stat(full_path).st_size
    os.truncate(full_path, keep if keep > 0 else size + keep)
    with pytest.raises(Damaged, match=r"store\.db is damaged .*restore it from a backup"):
        await open_sqlite(full_path)


async def test_a_store_overwritten_with_garbage_is_refused(full_path: Path) -> None:
    put_bytes(full_path, garbage(os.stat(full_path).st_size - 8192), at=8192)
    with pytest.raises(Damaged, match="restore it from a backup"):
        await open_sqlite(full_path)


async def test_damage_in_the_middle_is_told_when_it_is_read(full_path: Path) -> None:
    size = os.stat(full_path).st_size
    put_bytes(full_path, garbage(size // 3), at=size // 3)
    async with opened_file(full_path) as store:
        with pytest.raises(Damaged, match="restore it from a backup"):
            await store.list("things")


async def test_after_a_refusal_the_file_can_be_moved_away(path: Path) -> None:
    put_bytes(path, b"rubbish" * 100)
    with pytest.raises(Damaged):
        await open_sqlite(path)
    os.unlink(path)
    await (await open_sqlite(path)).close()


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no/store\.db cannot be opened: No such file or directory"):
        await open_sqlite(tmp_path / "no" / "store.db")


@pytest.fixture
def without_power(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process cannot write to, even if it is root."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if root := os.geteuid() == 0:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)


async def test_a_folder_that_cannot_be_written_is_named(without_power: Path) -> None:
    with pytest.raises(Unavailable, match=r"locked/store\.db cannot be opened: Permission denied"):
        await open_sqlite(without_power / "store.db")


async def test_the_log_stays_small_and_is_written_over(path: Path) -> None:
    async with opened_file(path) as store:
        log = path.with_name("store.db-wal")
        for start in range(0, 800, 50):
            await asyncio.gather(
                *(
                    store.put(Key("things", "", f"{start + n}"), lambda revision: (b"", b"x" * 40_000))
                    for n in range(50)
                )
            )
        assert os.stat(path).st_size > 20_000_000
        assert os.stat(log).st_size < 2 * WAL_BYTES


def test_commits_wait_for_the_disk(path: Path) -> None:
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.parametrize("size", [10, 5_000, 300_000])
async def test_a_batch_of_any_number_and_size_is_written_whole(path: Path, size: int) -> None:
    async with opened_file(path) as store:
        counts = [1, 2, 5, 31, 63, 64, 65, 200] if size < 100_000 else [1, 5, 9]
        for count in counts:
            rows = await asyncio.gather(
                *(
                    store.put(
                        Key(f"b{count}", "", f"{n:03}"), lambda revision: (b"%d" % revision, b"x" * size)
                    )
                    for n in range(count)
                )
            )
            assert (await store.list(f"b{count}")).rows == rows


async def test_bodies_are_not_read_for_metadata_nor_for_rows_that_are_not_chosen(path: Path) -> None:
    store = await open_sqlite(path)
    for number in range(40):
        await store.put(Key("things", "", f"{number:02}"), lambda revision: (b"m" * 600, b"x" * 500_000))
    await reopen_and_measure(store, path)


async def reopen_and_measure(store: SqliteStore, path: Path) -> None:
    """Read only metadata, or one row of all, from a cold store, and count the bytes that came from it."""
    await store.close()
    async with opened_file(path) as store:
        before = bytes_read()
        page = await store.list("things", meta_only=True)
        assert [len(row.meta) for row in page.rows] == [600] * 40
        assert bytes_read() - before < 1_000_000
        chosen = await store.list("things", keep=lambda row: row.key.name == "17")
        assert [(row.key.name, len(row.body)) for row in chosen.rows] == [("17", 500_000)]
        assert bytes_read() - before < 2_000_000
        await store.list("things")
        assert bytes_read() - before > 20_000_000


def bytes_read() -> int:
    """What this process has read from files so far (`rchar`, proc(5))."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])
