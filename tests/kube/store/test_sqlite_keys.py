"""What the store knows to be missing from its file without a look into it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from certwright.kube.store.contract import Exists, Key, Unavailable
from certwright.kube.store.sqlite.file import connect
from certwright.kube.store.sqlite.keys import AbsentKeys, KeyFilter
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite
from conformance.store_words import saying
from kube.store.opening import opened_file
from support.waiting import until


def key(number: int, *, bucket: str = "things") -> Key:
    """One of many."""
    return Key(bucket, "ns", f"{number:05}")


def some_lacking(absent: AbsentKeys, *, tried: int = 200) -> int:
    """Of how many keys that nobody has written it says that they are missing."""
    return sum(absent.lacks(key(number, bucket="nobody")) for number in range(tried))


async def until_read(absent: AbsentKeys) -> None:
    """Wait until the whole file was read, which a new key begins."""
    absent.note(key(0, bucket="new"))
    await until(lambda: some_lacking(absent) > 0)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store with nothing in it."""
    path = tmp_path / "store.db"
    await (await open_sqlite(path)).close()
    return path


@pytest.fixture
def file(path: Path) -> Iterator[sqlite3.Connection]:
    """The store's file."""
    with closing(connect(path)) as connection:
        yield connection


def insert(file: sqlite3.Connection, numbers: range) -> None:
    """Write rows into the file."""
    file.executemany("INSERT INTO rows VALUES (?, ?, ?, 1, x'', x'')", map(key, numbers))


def test_a_filter_has_all_that_was_added_and_little_else() -> None:
    keys = KeyFilter(1024)
    for number in range(1024):
        keys.add(key(number))
    assert all(key(number) in keys for number in range(1024))
    assert sum(key(number) in keys for number in range(1024, 11_024)) < 1_000


async def test_every_key_of_the_file_is_known_once_all_pages_were_read(file: sqlite3.Connection) -> None:
    insert(file, range(1_300))
    absent = AbsentKeys(file, tuple)
    assert not some_lacking(absent)
    await until_read(absent)
    assert not any(absent.lacks(key(number)) for number in range(1_300))
    assert some_lacking(absent) > 150


async def test_keys_written_while_the_file_is_read_are_known(file: sqlite3.Connection) -> None:
    insert(file, range(1_000, 2_300))
    absent = AbsentKeys(file, tuple)
    absent.note(key(2))
    absent.note(key(3))  # before the first page's end: no page to come has it
    insert(file, range(2, 4))
    await until_read(absent)
    assert not absent.lacks(key(2))
    assert not absent.lacks(key(3))


async def test_nothing_is_read_before_there_is_a_new_key(file: sqlite3.Connection) -> None:
    asked: list[str] = []
    file.set_trace_callback(asked.append)
    absent = AbsentKeys(file, tuple)
    assert not some_lacking(absent)
    assert asked == []
    absent.note(key(1))
    assert asked != []


async def test_more_keys_than_there_is_room_for_make_room(file: sqlite3.Connection) -> None:
    insert(file, range(1_300))
    absent = AbsentKeys(file, tuple, smallest=256)
    await until_read(absent)
    assert not any(absent.lacks(key(number)) for number in range(1_300))
    assert some_lacking(absent) > 150


async def test_keys_that_are_gone_are_forgotten_in_time_and_those_under_way_are_not(
    file: sqlite3.Connection,
) -> None:
    under_way = [key(1_000_000)]
    absent = AbsentKeys(file, lambda: under_way, smallest=1024)
    for number in range(1_025):  # of which none is in the file
        absent.note(key(number))
    assert absent.lacks(key(17))
    assert not absent.lacks(key(1_000_000))
    assert not absent.lacks(key(1_024))


async def test_a_file_that_cannot_be_read_is_not_known_to_lack_anything(file: sqlite3.Connection) -> None:
    file.execute("DROP TABLE rows")
    absent = AbsentKeys(file, tuple, smallest=4)
    for number in range(20):
        absent.note(key(number))
        assert not some_lacking(absent)


async def test_rows_from_before_the_start_are_found_at_any_moment(
    path: Path, file: sqlite3.Connection
) -> None:
    insert(file, range(1_300))
    async with opened_file(path) as store:
        await store.put(key(1_300), saying("new"), expect=0)
        for _ in range(5):
            for number in (0, 700, 1_299, 1_300):
                assert await store.get(key(number)) is not None
                with pytest.raises(Exists):
                    await store.put(key(number), saying("x"), expect=0)
            await asyncio.sleep(0.01)


async def test_a_row_whose_commit_failed_is_neither_there_nor_in_the_way(path: Path) -> None:
    async with opened_file(path, window_bytes=0) as store:
        with closing(connect(path)) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON rows BEGIN SELECT RAISE(ABORT, 'no'); END")
            with pytest.raises(Unavailable):
                await store.put(key(1), saying("lost"), expect=0)
            other.execute("DROP TRIGGER full")
        assert await store.get(key(1)) is None
        kept = await store.put(key(1), saying("kept"), expect=0)
        assert await store.get(key(1)) == kept


@pytest.mark.parametrize("window_bytes", [0, 5_000])
async def test_a_store_says_of_every_key_what_was_written_last(path: Path, window_bytes: int) -> None:
    async with opened_file(path, window_bytes=window_bytes) as store:
        chosen = random.Random(window_bytes)
        expected: dict[Key, bytes] = {}
        for turn in range(40):
            numbers = chosen.sample(range(60), 12)
            await asyncio.gather(*(change(store, key(number), expected, f"{turn}") for number in numbers))
            if turn % 10 == 9:
                await store.close()
                store = await open_sqlite(path, window_bytes=window_bytes)
            for number in range(60):
                row = await store.get(key(number))
                assert (row.body if row is not None else None) == expected.get(key(number))


async def change(store: SqliteStore, at: Key, expected: dict[Key, bytes], text: str) -> None:
    """Make the row, or remove it if it is there."""
    if at in expected:
        del expected[at]
        await store.delete(at)
    else:
        expected[at] = text.encode()
        await store.put(at, saying(text), expect=0)
