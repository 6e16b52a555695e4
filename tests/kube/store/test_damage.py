"""A row that cannot be read affects only itself: sealed or not, in SQLite and in etcd."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from certwright.kube.store.backup_file import Dump
from certwright.kube.store.contract import Changed, DamagedRow, Key, Missing, Row, Store
from certwright.kube.store.etcd.backup import dump_etcd
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.messages import RANGE, TXN, RangeRequest, TxnRequest, put_op
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.key_rotation import Sealed
from certwright.kube.store.sqlite.backup import dump_sqlite
from certwright.kube.store.sqlite.store import open_sqlite
from conformance.store_words import saying
from kube.store.opening import asking
from support.etcd import Etcd
from support.sealed import SECRETS, Keys, seal_with

PLAIN = "things"
META, BODY = "meta", "body"
_GOOD = b"good"
_STATEMENTS = {
    META: (
        "SELECT meta FROM rows WHERE bucket = ? AND namespace = ? AND name = ?",
        "UPDATE rows SET meta = ? WHERE bucket = ? AND namespace = ? AND name = ?",
    ),
    BODY: (
        "SELECT body FROM rows WHERE bucket = ? AND namespace = ? AND name = ?",
        "UPDATE rows SET body = ? WHERE bucket = ? AND namespace = ? AND name = ?",
    ),
}


def check(row: Row) -> str:
    """Rows are good as they are written here."""
    return "it is not good" if row.body and not row.body.startswith(_GOOD) else ""


@dataclass(frozen=True, slots=True)
class Disk:
    """A kind of store: `open` opens the same one each time, `harm` changes the last byte of a part of a row
    behind its back."""

    open: Callable[[], Awaitable[Store]]
    harm: Callable[[Key, str], Awaitable[None]]
    dump: Callable[[], AbstractAsyncContextManager[Dump]]


def _flip(kept: bytes) -> bytes:
    return kept[:-1] + bytes([kept[-1] ^ 1]) if kept[:1] == b"\0" else b"bad" + kept


def sqlite(folder: Path) -> Disk:
    """A file."""
    path, keys = folder / "store.db", Keys()

    async def harm(key: Key, part: str) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            read, write = _STATEMENTS[part]
            (kept,) = connection.execute(read, key).fetchone()
            connection.execute(write, (_flip(kept), *key))

    return Disk(
        lambda: open_sqlite(path, seal=seal_with(keys), check=check),
        harm,
        lambda: dump_sqlite(path, seal_with(keys), check),
    )


def etcd_below(etcd: Etcd, prefix: str) -> Disk:
    """A prefix of an etcd."""
    access, keys = Access((etcd.member,)), Keys()

    async def harm(key: Key, part: str) -> None:
        async with asking(access) as client:
            where = Layout(prefix).keys(key)[part == BODY]
            (kept,) = (await client.call(RANGE, RangeRequest(key=where))).kvs
            await client.call(TXN, TxnRequest(success=[put_op(where, _flip(kept.value))]))

    return Disk(
        lambda: open_etcd(access, seal=seal_with(keys), check=check, prefix=prefix, compact_every_s=0),
        harm,
        lambda: dump_etcd(access, prefix, seal_with(keys), check),
    )


@pytest.fixture(params=["sqlite", "etcd"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Each kind of store that outlives its process."""
    if request.param == "sqlite":
        return sqlite(tmp_path)
    return etcd_below(request.getfixturevalue("etcd"), f"/{tmp_path.name}")


def key(bucket: str, name: str) -> Key:
    """Where rows are."""
    return Key(bucket, "ns", name)


@asynccontextmanager
async def damaged(disk: Disk, bucket: str, part: str) -> AsyncIterator[Store]:
    """A store of the rows a, b and c, opened after b was damaged."""
    store = await disk.open()
    for name in "abc":
        await store.put(key(bucket, name), saying(_GOOD.decode()))
    await store.close()
    await disk.harm(key(bucket, "b"), part)
    store = await disk.open()
    try:
        yield store
    finally:
        await store.close()


each_harm = pytest.mark.parametrize(
    ("bucket", "part"), [(SECRETS, META), (SECRETS, BODY), (PLAIN, BODY)], ids=["meta", "body", "plain"]
)


def names(rows: list[Row]) -> str:
    """Of rows, one letter each."""
    return "".join(row.key.name for row in rows)


@each_harm
async def test_lists_leave_a_damaged_row_out_and_name_it(disk: Disk, bucket: str, part: str) -> None:
    async with damaged(disk, bucket, part) as store:
        page = await store.list(bucket)
        assert (names(page.rows), page.damaged) == ("ac", (key(bucket, "b"),))
        page = await store.list(bucket, keep=lambda row: True)
        assert (names(page.rows), page.damaged) == ("ac", (key(bucket, "b"),))
        bare = await store.list(bucket, meta_only=True)
        assert names(bare.rows) == ("ac" if part == META else "abc")
        assert [row.key for row in store.damage] == [key(bucket, "b")]
        assert store.damage.of(bucket, "ns")
        assert not store.damage.of(bucket, "other")


@each_harm
@pytest.mark.parametrize(("limit", "max_bytes"), [(1, None), (None, 1)], ids=["limit", "bytes"])
async def test_pages_go_on_behind_a_damaged_row(
    disk: Disk, bucket: str, part: str, limit: int | None, max_bytes: int | None
) -> None:
    async with damaged(disk, bucket, part) as store:
        page = await store.list(bucket, limit=limit, max_bytes=max_bytes)
        listed = names(page.rows)
        while page.more and len(listed) < 5:
            page = await store.list(
                bucket, limit=limit, max_bytes=max_bytes, after=page.last, revision=page.revision
            )
            listed += names(page.rows)
        assert listed == "ac"


@each_harm
async def test_a_damaged_row_is_reported_and_neither_read_nor_overwritten(
    disk: Disk, bucket: str, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with damaged(disk, bucket, part) as store:
        where = key(bucket, "b")
        for _ in range(2):
            for read in (store.get, store.latest):
                with pytest.raises(DamagedRow, match=f"ns/b of {bucket} cannot be read"):
                    await read(where)
        with pytest.raises(DamagedRow):
            await store.put(where, saying("good"))
        with pytest.raises(DamagedRow):
            await store.delete(where)
        assert caplog.text.count("cannot be read") == 1
        assert (await store.put(key(bucket, "a"), saying("good"))).revision


@each_harm
async def test_a_damaged_row_can_be_discarded(disk: Disk, bucket: str, part: str) -> None:
    async with damaged(disk, bucket, part) as store:
        watch = store.watch(bucket, after=store.revision)
        await store.list(bucket)
        gone = await store.discard(key(bucket, "b"), saying("last words"))
        [event] = await watch.next() or []
        assert (event.deleted, event.row, event.revision) == (True, gone, gone.revision)
        assert await store.get(key(bucket, "b")) is None
        assert not len(store.damage)
        with pytest.raises(Missing):
            await store.discard(key(bucket, "b"), saying(""))
        with pytest.raises(Changed):
            await store.discard(key(bucket, "a"), saying(""))
        assert (await store.put(key(bucket, "b"), saying("good again"), expect=0)).revision > gone.revision
    store = await disk.open()
    assert names((await store.list(bucket)).rows) == "abc"
    await store.close()


@pytest.mark.parametrize("part", [META, BODY])
async def test_a_rotation_gets_past_a_damaged_row_and_counts_it(disk: Disk, part: str) -> None:
    async with damaged(disk, SECRETS, part) as store:
        assert isinstance(store, Sealed)
        assert store.rotation is not None
        await store.rotation.rotate()
        await store.rotation.finished()
        progress = await store.rotation.progress()
        assert (progress.unreadable, progress.done, progress.total) == (1, 2, 3)
        assert not progress.settled
        assert names((await store.list(SECRETS)).rows) == "ac"


async def test_the_progress_of_a_rotation_is_right_while_others_write(disk: Disk) -> None:
    store = await disk.open()
    assert isinstance(store, Sealed)
    rotation = store.rotation
    assert rotation is not None
    for number in range(150):
        await store.put(key(SECRETS, f"m{number}"), saying("good"))
    await rotation.rotate()
    seen = [await rotation.progress()]
    for number in range(60):
        # Before and behind the place that the rotation has reached.
        await store.put(key(SECRETS, f"{'az'[number % 2]}{number}"), saying("good"))
        seen.append(await rotation.progress())
    await rotation.finished()
    seen.append(await rotation.progress())
    assert all(0 <= progress.done <= progress.total for progress in seen)
    assert [progress.total for progress in seen] == [150, *range(151, 211), 210]
    assert seen[-1].settled
    assert seen[-1].done == 210
    await store.close()


@each_harm
async def test_a_dump_leaves_a_damaged_row_out_and_names_it(disk: Disk, bucket: str, part: str) -> None:
    async with damaged(disk, bucket, part):
        pass
    async with disk.dump() as dump:
        rows = [row async for page in dump.rows for row in page]
        assert names(rows) == "ac"
        assert [row.key for row in dump.damage] == [key(bucket, "b")]
