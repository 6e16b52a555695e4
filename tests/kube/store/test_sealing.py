"""Rows that are sealed on the disk: what lies there, what opens them and what does not."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from certwright.kube.store.contract import Compacted, Damaged, Key, StoreError
from certwright.kube.store.keyring import KEY_BYTES, WrongKey, fingerprint
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite
from kube.store.opening import opened_file
from support.sealed import SECRETS, Keys, seal_with

CHILD = Path(__file__).with_name("rotating_child.py")
PEM = b"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n"
META = b'{"annotations":{"last-applied":"' + PEM.hex().encode() + b'"}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is to be."""
    return tmp_path / "store.db"


@pytest.fixture
def keys() -> Keys:
    """One wrapping key."""
    return Keys(os.urandom(KEY_BYTES))


async def write(store: SqliteStore, count: int) -> None:
    """Secrets, some of them written over and some deleted."""
    for number in range(count):
        key = Key(SECRETS, "ns", f"{number:03}")
        await store.put(key, lambda revision: (META, PEM + b"old"))
        await store.put(key, lambda revision: (META, PEM))
        if number % 3 == 2:
            await store.delete(key)


def shows(path: Path, secret: bytes = PEM[:40]) -> set[str]:
    """Which files beside `path` hold what must not be seen, as it is or as hexadecimal digits."""
    return {
        file.name
        for file in path.parent.glob(f"{path.name}*")
        if secret in (content := file.read_bytes()) or secret.hex().encode() in content
    }


def settled(store: SqliteStore) -> bool:
    """Whether all rows are as they are to be."""
    assert store.rotation is not None
    return store.rotation.settled


async def until(done: Callable[[], bool], nap: Callable[[], Awaitable[object]]) -> None:
    """Wait for a condition."""
    for _ in range(10_000):
        if done():
            return
        await nap()
    pytest.fail("it did not happen")


async def test_neither_metadata_nor_data_can_be_read_in_the_files(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 30)
        await store.put(Key("things", "", "plain"), lambda revision: (b"", b"plain as day"))
        assert shows(path) == set()
        page = await store.list(SECRETS)
        assert {(row.meta, row.body) for row in page.rows} == {(META, PEM)}
    assert shows(path) == set()
    assert shows(path, b"plain as day") == {path.name}


async def test_rows_are_there_after_opening_again(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 3)
    async with opened_file(path, seal=seal_with(keys)) as store:
        row = await store.get(Key(SECRETS, "ns", "001"))
        assert row is not None
        assert (row.meta, row.body) == (META, PEM)
        [first, second] = (await store.list(SECRETS, meta_only=True)).rows
        assert (first.meta, second.meta, first.body) == (META, META, b"")


async def test_the_wrong_key_is_refused_and_the_right_one_named(path: Path, keys: Keys) -> None:
    await (await open_sqlite(path, seal=seal_with(keys))).close()
    other = Keys(os.urandom(KEY_BYTES))
    with pytest.raises(WrongKey) as refusal:
        await open_sqlite(path, seal=seal_with(other))
    assert fingerprint(keys.keys[0]) in str(refusal.value)
    assert fingerprint(other.keys[0]) in str(refusal.value)
    assert other.source in str(refusal.value)


async def test_a_lost_key_is_not_replaced_by_a_new_one(path: Path, keys: Keys) -> None:
    await (await open_sqlite(path, seal=seal_with(keys))).close()
    none = Keys()
    with pytest.raises(WrongKey, match="has no key, or is missing"):
        await open_sqlite(path, seal=seal_with(none))
    assert none.keys == ()


async def test_a_sealed_store_is_not_opened_without_a_seal(path: Path, keys: Keys) -> None:
    await (await open_sqlite(path, seal=seal_with(keys))).close()
    with pytest.raises(Damaged, match="encrypted rows"):
        await open_sqlite(path)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE rows SET body = CAST(substr(body, 1, length(body) - 1) ||"
        " iif(substr(body, -1) = x'00', x'01', x'00') AS BLOB) WHERE name = '000'",
        "UPDATE rows SET body = (SELECT body FROM rows WHERE name = '001') WHERE name = '000'",
        "UPDATE rows SET body = meta WHERE name = '000'",
        "UPDATE rows SET body = substr(body, 1, 30) WHERE name = '000'",
    ],
    ids=["changed", "of another row", "metadata as body", "cut"],
)
async def test_a_row_that_was_tampered_with_does_not_open(path: Path, keys: Keys, tampering: str) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 2)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(tampering)
        connection.commit()
    async with opened_file(path, seal=seal_with(keys)) as store:
        with pytest.raises(Damaged, match="ns/000 of secrets cannot be read"):
            await store.get(Key(SECRETS, "ns", "000"))
        assert await store.get(Key(SECRETS, "ns", "001")) is not None


async def test_of_rows_that_are_not_chosen_only_the_metadata_is_opened(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 2)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE rows SET body = meta WHERE name = '000'")
        connection.commit()
    async with opened_file(path, seal=seal_with(keys)) as store:
        chosen = await store.list(SECRETS, keep=lambda row: row.meta == META and row.key.name != "000")
        assert [(row.key.name, row.body) for row in chosen.rows] == [("001", PEM)]
        damaged = await store.list(SECRETS, keep=lambda row: row.key.name == "000")
        assert (damaged.rows, damaged.damaged) == ([], (Key(SECRETS, "ns", "000"),))


async def test_a_plain_store_of_before_is_sealed_without_new_revisions(path: Path, keys: Keys) -> None:
    async with opened_file(path) as store:
        await write(store, 200)
        before = (await store.list(SECRETS)).rows
    assert shows(path) == {path.name}
    async with opened_file(path, seal=seal_with(keys)) as store:
        assert shows(path) == set()
        assert settled(store)
        assert (await store.list(SECRETS)).rows == before
    assert shows(path) == set()


async def test_switched_off_rows_are_plain_again_and_no_key_is_needed(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 5)
    await (await open_sqlite(path, seal=seal_with(keys, wanted=False))).close()
    assert shows(path) == {path.name}
    async with opened_file(path) as store:
        assert [row.body for row in (await store.list(SECRETS)).rows] == [PEM] * 4


async def test_what_is_not_sealed_has_no_keys_to_rotate(path: Path) -> None:
    keys = Keys()
    async with opened_file(path, seal=seal_with(keys, wanted=False)) as store:
        assert store.rotation is not None
        assert not (await store.rotation.progress()).wanted
        with pytest.raises(StoreError, match="not encrypted"):
            await store.rotation.rotate()
        with pytest.raises(StoreError, match="not encrypted"):
            await store.rotation.rewrap()
        assert keys.keys == ()


async def test_rotation_seals_every_row_anew_while_others_write(
    path: Path, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "certwright.kube.store.key_rotation")
    seal = seal_with(keys)
    async with opened_file(path, seal=seal) as store:
        await write(store, 300)
        kept = (await store.list(SECRETS)).rows
        old_ring = set(seal.ring.keys)
        old = rows_on_disk(path)
        assert store.rotation is not None
        await store.rotation.rotate()
        number = 0

        async def write_on() -> None:
            nonlocal number
            await store.put(Key(SECRETS, "later", f"{number}"), lambda revision: (META, PEM))
            number += 1

        await until(lambda: settled(store), write_on)
        assert caplog.messages == [
            "the data key was replaced; the rows are re-encrypted",
            "all rows are encrypted as configured, and the former data key is removed",
        ]
        assert old_ring.isdisjoint(seal.ring.keys)
        assert set(rows_on_disk(path)).isdisjoint(old)
        assert (await store.list(SECRETS, "ns")).rows == kept
    async with opened_file(path, seal=seal_with(keys)) as store:
        assert (await store.list(SECRETS, "ns")).rows == kept
        assert await store.count(SECRETS, "later") == number


async def test_rotation_goes_on_after_the_process_was_killed(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 300)
        kept = (await store.list(SECRETS)).rows
        old = rows_on_disk(path)
        assert store.rotation is not None
        await store.rotation.rotate()
    assert not settled(store)
    async with opened_file(path, seal=seal_with(keys)) as store:
        assert settled(store)
        assert set(rows_on_disk(path)).isdisjoint(old)
        assert (await store.list(SECRETS)).rows == kept


@pytest.mark.parametrize("turn", range(4))
async def test_a_process_that_is_killed_while_it_rotates_loses_nothing(
    path: Path, keys: Keys, turn: int
) -> None:
    for round_ in range(3):
        names = await asyncio.to_thread(rotate_until_killed, path, keys, f"{turn}-{round_}")
        async with opened_file(path, seal=seal_with(keys)) as store:
            assert settled(store)
            rows = {row.key.name: row for row in (await store.list(SECRETS)).rows}
            assert names <= rows.keys()
            assert {row.body for row in rows.values()} == {b"x" * 2_000}
            assert all(row.meta == b"%d" % row.revision for row in rows.values())


def rotate_until_killed(path: Path, keys: Keys, turn: str) -> set[str]:
    """Let a child write and rotate, kill it somewhere in the middle; the names of the rows it has written."""
    environment = {
        **os.environ,
        "WRAPPING_KEY": keys.keys[0].hex(),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, str(CHILD), str(path), turn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(random.Random(turn).randint(60, 300))]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    assert "rotating\n" in lines
    return {line.strip() for line in lines if line.endswith("\n")} - {"rotating"}


async def test_the_wrapping_key_is_replaced_without_touching_rows(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 5)
        old, before = keys.keys[0], rows_on_disk(path)
        assert store.rotation is not None
        await store.rotation.rewrap()
        assert len(keys.keys) == 1
        assert keys.keys[0] != old
        assert rows_on_disk(path) == before
    with pytest.raises(WrongKey):
        await open_sqlite(path, seal=seal_with(Keys(old)))
    await (await open_sqlite(path, seal=seal_with(keys))).close()


async def test_a_new_key_before_the_old_one_wraps_at_the_next_start(path: Path, keys: Keys) -> None:
    await (await open_sqlite(path, seal=seal_with(keys))).close()
    new = os.urandom(KEY_BYTES)
    await (await open_sqlite(path, seal=seal_with(Keys(new, *keys.keys)))).close()
    await (await open_sqlite(path, seal=seal_with(Keys(new)))).close()


async def test_a_row_that_does_not_open_keeps_the_old_keys(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        await write(store, 2)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE rows SET body = meta WHERE name = '000'")
        connection.commit()
    seal = seal_with(keys)
    async with opened_file(path, seal=seal) as store:
        assert store.rotation is not None
        old_ring = set(seal.ring.keys)
        await store.rotation.rotate()
        rotation = store.rotation
        tick = Key("things", "", "tick")
        await until(lambda: rotation.unreadable > 0, lambda: store.put(tick, lambda revision: (b"", b"")))
        assert old_ring < set(seal.ring.keys)
        assert not settled(store)
    async with opened_file(path, seal=seal_with(keys)) as store:  # which tries again
        assert await store.get(Key(SECRETS, "ns", "001")) is not None


async def test_a_new_store_can_begin_at_a_later_revision(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys), begin_at=5_000) as store:
        assert store.revision == 5_000
        row = await store.put(Key(SECRETS, "ns", "a"), lambda revision: (b"", b""))
        assert row.revision == 5_001
        with pytest.raises(Compacted):
            store.watch(SECRETS, after=4_999)


async def test_only_one_rotation_at_a_time(path: Path, keys: Keys) -> None:
    async with opened_file(path, seal=seal_with(keys)) as store:
        assert store.rotation is not None
        await store.rotation.rotate()
        with pytest.raises(StoreError, match="already"):
            await store.rotation.rotate()


def rows_on_disk(path: Path) -> list[bytes]:
    """What lies there for the Secrets."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT meta, body FROM rows WHERE bucket = ?", (SECRETS,))
        return [meta + body for meta, body in rows]
