"""A store file that was deleted, emptied, replaced or cut short, or that lost its write-ahead log, is refused
at the start and while it is open, and never served as an empty store.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from certwright.kube.store.contract import Damaged, Key, Lost
from certwright.kube.store.mark import Mark
from certwright.kube.store.sqlite.backup import replacing
from certwright.kube.store.sqlite.file import WAL_BYTES, mark_file
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite
from conformance.store_words import A, fill, saying
from kube.store.opening import opened_file
from support.sealed import Keys, seal_with
from support.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is to be, in a folder that nothing else needs."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store of five rows."""
    async with opened_file(path) as opened:
        await fill(opened, 5)
        yield opened


async def killed(path: Path, copy: Path) -> Path:
    """The files of a store as a crash leaves them, in the folder `copy`: five rows, all in the log."""
    async with opened_file(path) as store:
        await fill(store, 5)
        known = mark_file(path).read()
        assert known is not None
        mark_file(path).write(Mark(known.store, store.revision))  # as a second later
        shutil.copytree(path.parent, copy)
    return copy / path.name


def marked(path: Path) -> int:
    """The revision in the mark."""
    known = mark_file(path).read()
    return -1 if known is None else known.revision


async def rows(path: Path) -> int:
    """How many rows a store has."""
    store = await open_sqlite(path)
    try:
        return await store.count("things")
    finally:
        await store.close()


# --- at the start -----------------------------------------------------------------------------------------


def delete(path: Path) -> None:
    """The file is gone."""
    path.unlink()


def empty(path: Path) -> None:
    """The file has no bytes."""
    path.write_bytes(b"")


def delete_log(path: Path) -> None:
    """The write-ahead log is gone."""
    path.with_name(f"{path.name}-wal").unlink()


def damage_log_header(path: Path) -> None:
    """SQLite takes a log with such a header for an empty one."""
    with path.with_name(f"{path.name}-wal").open("r+b") as log:
        log.seek(20)
        log.write(b"\xff\xff")


def damage_log_middle(path: Path) -> None:
    """SQLite drops the frames from here on."""
    with path.with_name(f"{path.name}-wal").open("r+b") as log:
        log.seek(32 + 8216 + 100)
        log.write(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("harm", [delete, empty, delete_log, damage_log_header, damage_log_middle])
async def test_a_store_that_lost_commits_is_refused_until_its_mark_is_removed(
    path: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    crashed = await killed(path, tmp_path / "crashed")
    harm(crashed)
    for _ in range(2):
        with pytest.raises(Damaged, match=r"certwright restore --force.*remove .*store\.db\.mark"):
            await open_sqlite(crashed)
    mark_file(crashed).remove()
    assert await rows(crashed) < 5


@pytest.mark.parametrize("mark", ["missing", "empty"])
@pytest.mark.parametrize("harm", [empty, delete_log])
async def test_a_store_without_rows_is_refused_where_a_server_has_worked_before(
    path: Path, tmp_path: Path, harm: Callable[[Path], None], mark: str
) -> None:
    crashed = await killed(path, tmp_path / "crashed")
    harm(crashed)
    if mark == "missing":
        mark_file(crashed).remove()
    else:
        mark_file(crashed).path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(Damaged, match=r"holds nothing, although .* to begin with an empty store, remove"):
            await open_sqlite(crashed, expects_rows=mark == "missing")
    for file in crashed.parent.iterdir():
        file.unlink()
    await (await open_sqlite(crashed, expects_rows=True)).close()
    # One that ended before its first write starts.
    await (await open_sqlite(crashed, expects_rows=True)).close()


async def test_a_store_that_was_killed_starts_with_its_mark(path: Path, tmp_path: Path) -> None:
    assert await rows(await killed(path, tmp_path / "crashed")) == 5


async def test_a_log_that_sqlite_itself_has_copied_and_removed_is_not_missed(
    path: Path, tmp_path: Path
) -> None:
    crashed = await killed(path, tmp_path / "crashed")
    with closing(sqlite3.connect(crashed)) as other:
        assert other.execute("SELECT count(*) FROM rows WHERE bucket = 'things'").fetchone() == (5,)
    assert not crashed.with_name("store.db-wal").exists()
    assert await rows(crashed) == 5


async def test_another_store_in_its_place_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for file in (path, other):
        async with opened_file(file) as store:
            await fill(store, 5)
    shutil.copy(other, path)
    with pytest.raises(Damaged, match="is not the store that was here before"):
        await open_sqlite(path)


async def test_an_older_copy_in_its_place_is_refused(path: Path, tmp_path: Path) -> None:
    async with opened_file(path) as store:
        pass
    shutil.copy(path, tmp_path / "old")
    async with opened_file(path) as store:
        await fill(store, 5)
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(Damaged, match="is at revision 0: an older copy"):
        await open_sqlite(path)


async def test_a_store_of_a_version_without_marks_gets_one(path: Path) -> None:
    async with opened_file(path) as store:
        await fill(store, 5)
    mark_file(path).remove()
    with closing(sqlite3.connect(path)) as old, old:
        old.execute("DELETE FROM rows WHERE bucket = '' AND name = 'store'")
    assert await rows(path) == 5
    delete(path)
    with pytest.raises(Damaged, match="is missing"):
        await open_sqlite(path)


async def test_a_mark_that_cannot_be_read_does_not_keep_a_store_from_starting(path: Path) -> None:
    async with opened_file(path) as store:
        await fill(store, 5)
    mark_file(path).path.write_text("{")
    assert await rows(path) == 5
    assert mark_file(path).read() is not None


@pytest.mark.parametrize("force", [False, True])
async def test_a_restored_store_takes_the_place_of_a_lost_one(path: Path, *, force: bool) -> None:
    seal = seal_with(Keys())
    async with opened_file(path, seal=seal) as store:
        await fill(store, 5)
    delete(path)
    async with replacing(path, seal, begin_at=100, force=force) as new:
        await new.put(A, saying("restored"))
    async with opened_file(path, seal=seal) as store:
        assert (store.revision, await store.count("things")) == (101, 1)


# --- while it is open -------------------------------------------------------------------------------------


def delete_folder(path: Path) -> None:
    """The whole data directory is gone."""
    shutil.rmtree(path.parent)


def replace(path: Path) -> None:
    """Another file is put in its place."""
    new = path.with_name("new")
    shutil.copy(path, new)
    new.rename(path)


def replace_log(path: Path) -> None:
    """Another log is put in its place."""
    log = path.with_name(f"{path.name}-wal")
    new = path.with_name("new")
    shutil.copy(log, new)
    new.rename(log)


def empty_log(path: Path) -> None:
    """The log has no bytes."""
    path.with_name(f"{path.name}-wal").write_bytes(b"")


@pytest.mark.parametrize("harm", [delete_folder, delete, empty, replace, delete_log, replace_log, empty_log])
async def test_a_store_that_is_lost_serves_neither_reads_nor_writes(
    store: SqliteStore, path: Path, harm: Callable[[Path], None]
) -> None:
    await store.check()
    watch = store.watch("things", after=store.revision)
    harm(path)
    with pytest.raises(Lost, match=r"store\.db"):
        await store.check()
    for request in (
        lambda: store.put(A, saying("x")),
        lambda: store.delete(Key("things", "ns", "000")),
        lambda: store.get(A),
        lambda: store.latest(A),
        lambda: store.list("things"),
        lambda: store.count("things"),
        store.check,
    ):
        with pytest.raises(Lost):
            await request()
    with pytest.raises(Lost):
        store.watch("things", after=store.revision)
    assert await watch.next() is None


async def test_what_was_put_in_the_place_of_an_open_store_is_left_alone(path: Path, tmp_path: Path) -> None:
    crashed = await killed(path, tmp_path / "crashed")
    async with opened_file(path) as store:
        path.with_name("store.db-wal").unlink()
        for file in crashed.parent.iterdir():
            shutil.copy(file, tmp_path / "new")
            (tmp_path / "new").rename(path.parent / file.name)
        with pytest.raises(Lost):
            await store.check()
    assert await rows(path) == 5


async def test_a_checkpoint_does_not_hide_that_the_file_was_emptied(store: SqliteStore, path: Path) -> None:
    await store.check()
    empty(path)
    with suppress(Lost):  # the timer of the guard may be faster
        for number in range(4):
            await store.put(Key("things", "ns", f"large{number}"), saying("x" * (WAL_BYTES // 3)))
    with pytest.raises(Lost, match=r"store\.db was cut short"):
        await store.check()


async def test_a_store_that_is_closed_does_not_fill_a_file_that_was_emptied(path: Path) -> None:
    async with opened_file(path) as store:
        await fill(store, 5)
        await store.check()
        empty(path)
    with pytest.raises(Damaged, match=r"store\.db is empty"):
        await open_sqlite(path)


async def test_the_loss_is_noticed_without_a_request(store: SqliteStore, path: Path) -> None:
    watch = store.watch("things", after=store.revision)
    delete(path)
    async with asyncio.timeout(60):
        assert await watch.next() is None
    with pytest.raises(Lost):
        await store.put(A, saying("x"))


async def test_the_mark_follows_the_commits(store: SqliteStore, path: Path) -> None:
    await until(lambda: marked(path) == store.revision)
    await store.put(A, saying("x"))
    await store.close()
    assert marked(path) == store.revision


async def test_writes_under_way_when_the_loss_is_noticed_get_an_answer(
    store: SqliteStore, path: Path
) -> None:
    writes = [asyncio.ensure_future(store.put(A, saying("gathering")))]
    await asyncio.sleep(0)
    writes.append(asyncio.ensure_future(store.put(A, saying("in flight"))))
    await asyncio.sleep(0)
    writes.append(asyncio.ensure_future(store.put(A, saying("gathering"))))
    await asyncio.sleep(0)
    delete(path)
    with pytest.raises(Lost):
        await store.check()
    _, pending = await asyncio.wait(writes, timeout=60)
    assert not pending
