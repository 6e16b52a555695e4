"""An etcd that was emptied, replaced or went back in time is refused, at the start and while it is in use."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from certwright.kube.store.contract import Damaged, Lost, StoreError
from certwright.kube.store.etcd.backup import refilling
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.messages import TXN, TxnRequest, delete_op
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.etcd.store import EtcdStore, open_etcd
from certwright.kube.store.mark import MarkFile
from conformance.store_words import A, B, saying
from kube.store.opening import asking
from support.etcd import Etcd
from support.sealed import Keys, seal_with

PREFIX = "/lost"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd that a test may replace."""
    etcd = Etcd(tmp_path)
    etcd.start()
    yield etcd
    etcd.close()


@pytest.fixture
def marks(tmp_path: Path) -> MarkFile:
    """The mark in a data directory."""
    return MarkFile(tmp_path / "etcd.mark", "etcd")


async def opened(etcd: Etcd, marks: MarkFile) -> EtcdStore:
    """The store of a server."""
    access = Access((etcd.member,), patience_s=60.0)
    return await open_etcd(access, prefix=PREFIX, compact_every_s=0, marks=marks)


@pytest.fixture
async def store(own: Etcd, marks: MarkFile) -> AsyncIterator[EtcdStore]:
    """A store of one row."""
    opened_store = await opened(own, marks)
    await opened_store.put(A, saying("x"))
    yield opened_store
    await opened_store.close()


async def wipe(etcd: Etcd) -> None:
    """Delete all keys of the store, as `etcdctl del --prefix` does."""
    async with asking(Access((etcd.member,))) as client:
        root = Layout(PREFIX).root
        await client.call(TXN, TxnRequest(success=[delete_op(root.begin, root.end)]))


def replace(etcd: Etcd, folder: Path) -> None:
    """Start it again without its data."""
    etcd.kill()
    shutil.rmtree(folder / "one")
    etcd.start()


async def check_refused(store: EtcdStore) -> None:
    """Neither reads nor writes are served."""
    for request in (
        lambda: store.get(A),
        lambda: store.list("things"),
        lambda: store.count("things"),
        lambda: store.put(B, saying("y")),
        store.check,
    ):
        with pytest.raises(Lost, match="nothing is read or written any more"):
            await request()
    assert isinstance(await store.wait_lost(), StoreError)


async def test_a_prefix_that_is_emptied_is_noticed_by_its_events(own: Etcd, store: EtcdStore) -> None:
    await wipe(own)
    assert "was emptied below /lost" in str(await store.wait_lost())
    await check_refused(store)


async def test_an_etcd_that_lost_its_data_is_noticed_by_the_next_request(
    own: Etcd, store: EtcdStore, tmp_path: Path
) -> None:
    replace(own, tmp_path)
    with pytest.raises(Lost, match="went back from revision"):
        await store.get(A)
    await check_refused(store)


async def test_a_start_on_an_emptied_prefix_is_refused_until_the_mark_is_removed(
    own: Etcd, marks: MarkFile
) -> None:
    await (await opened(own, marks)).close()
    await wipe(own)
    with pytest.raises(Damaged, match=r"is not the store that was here before.*remove .*etcd\.mark"):
        await opened(own, marks)
    marks.remove()
    await (await opened(own, marks)).close()
    await (await opened(own, marks)).close()


async def test_a_start_on_an_older_snapshot_is_refused(own: Etcd, marks: MarkFile, tmp_path: Path) -> None:
    await (await opened(own, marks)).close()
    own.kill()
    shutil.copytree(tmp_path / "one", tmp_path / "snapshot")
    own.start()
    store = await opened(own, marks)
    for _ in range(5):
        await store.put(A, saying("x"))
    await store.close()
    own.kill()
    shutil.rmtree(tmp_path / "one")
    shutil.copytree(tmp_path / "snapshot", tmp_path / "one")
    own.start()
    with pytest.raises(Damaged, match="an older copy was put in its place"):
        await opened(own, marks)


async def test_another_prefix_is_another_store(own: Etcd, marks: MarkFile) -> None:
    await (await opened(own, marks)).close()
    access = Access((own.member,))
    await (await open_etcd(access, prefix="/other", compact_every_s=0, marks=marks)).close()


async def test_a_restored_store_is_the_same_to_the_marks_of_all_servers(own: Etcd, marks: MarkFile) -> None:
    await (await opened(own, marks)).close()
    access, keys = Access((own.member,)), Keys()
    async with refilling(access, PREFIX, seal_with(keys), force=True) as new:
        await new.add([(A, saying("restored"))])
    store = await open_etcd(access, seal=seal_with(keys), prefix=PREFIX, compact_every_s=0, marks=marks)
    assert await store.get(A) is not None
    await store.close()
