"""A dump is of one moment, whoever writes meanwhile; a backup file says when it is not whole."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from certwright.kube.store.backup_file import BackupReader, BackupWriter, Dump, Header
from certwright.kube.store.contract import Damaged, Encode, Key, Row, Store
from certwright.kube.store.envelope import Seal
from certwright.kube.store.etcd.backup import dump_etcd
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.keyring import KEY_BYTES
from certwright.kube.store.sqlite.backup import dump_sqlite
from kube.store.opening import opened, opened_file
from support.etcd import Etcd
from support.sealed import SECRETS, Keys, seal_with

PAIRS = 40
LEFT, RIGHT = SECRETS, "things"


def saying(text: bytes) -> Encode:
    """A body, and no metadata."""
    return lambda revision: (b"", text)


async def turn(store: Store, stop: asyncio.Event) -> None:
    """Write the same number into two rows, one bucket after the other, again and again."""
    number = 0
    while not stop.is_set():
        for pair in range(PAIRS):
            text = b"%d" % number
            for bucket in (LEFT, RIGHT):
                await store.put(Key(bucket, "ns", f"{pair:02}"), saying(text))
        number += 1


def check(rows: list[Row], revision: int) -> None:
    """The rows are of one moment: at most one pair is half written, and nothing is newer."""
    texts = {bucket: [row.body for row in rows if row.key.bucket == bucket] for bucket in (LEFT, RIGHT)}
    assert sum(left != right for left, right in zip(texts[LEFT], texts[RIGHT], strict=False)) <= 1
    assert max(row.revision for row in rows) == revision
    # The numbers fall once at most, where the writer was.
    numbers = [int(text) for text in texts[LEFT]]
    assert sum(one < other for one, other in itertools.pairwise(numbers)) == 0


async def collect(dump: Dump, seal: Seal, path: Path) -> BackupReader:
    """The dump as a file."""
    with BackupWriter(path, Header("1", 0, "test", dump.revision, dump.ring)) as out:
        async for page in dump.rows:
            for row in page:
                out.add(seal.encrypt_row(row))
    return BackupReader(path)


async def back_up_under_load(
    store: Store, dump: AbstractAsyncContextManager[Dump], seal: Seal, path: Path
) -> None:
    stop = asyncio.Event()
    watch = store.watch(LEFT, after=store.revision)
    async with asyncio.TaskGroup() as group:
        group.create_task(turn(store, stop))
        for _ in range(PAIRS):
            assert await watch.next(60)
        async with dump as pages:
            backup = await collect(pages, seal, path)
        stop.set()
    rows = list(backup.rows())
    assert not [row for row in rows if row.key.bucket == SECRETS and not row.body.startswith(b"\0")]
    check([seal.decrypt_row(row) for row in rows], backup.header.revision)


@pytest.fixture
def keys() -> Keys:
    """One wrapping key."""
    return Keys(os.urandom(KEY_BYTES))


async def test_a_dump_of_sqlite_under_load_is_of_one_moment(tmp_path: Path, keys: Keys) -> None:
    path, seal = tmp_path / "store.db", seal_with(keys)
    async with opened_file(path, seal=seal_with(keys)) as store:
        await back_up_under_load(store, dump_sqlite(path, seal), seal, tmp_path / "file")


async def test_a_dump_of_etcd_under_load_is_of_one_moment(tmp_path: Path, keys: Keys, etcd: Etcd) -> None:
    # Without ticks: the last revision is that of a row.
    access, seal = Access((etcd.member,), tick_after_s=60.0, patience_s=240.0), seal_with(keys)
    async with opened(access, seal=seal_with(keys), prefix="/dumped") as store:
        await back_up_under_load(store, dump_etcd(access, "/dumped", seal), seal, tmp_path / "file")


def test_every_changed_byte_of_a_backup_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with BackupWriter(path, Header("1", 0, "test", 1, None)) as out:
        out.add(Row(Key("things", "ns", "a"), 1, b"meta", b"body"))
    content = path.read_bytes()
    assert [row.body for row in BackupReader(path).rows()] == [b"body"]
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
        with pytest.raises(Damaged):
            BackupReader(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(Damaged):
            BackupReader(path)


def test_a_backup_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"the one before")
    with pytest.raises(RuntimeError), BackupWriter(path, Header("1", 0, "test", 1, None)):
        raise RuntimeError
    assert path.read_bytes() == b"the one before"
    assert list(tmp_path.iterdir()) == [path]
