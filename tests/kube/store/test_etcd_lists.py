"""Long lists on etcd: each page's ranges end soon, and the pages together are the list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from certwright.kube.store.contract import Key
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import TXN, TxnRequest, delete_op
from certwright.kube.store.etcd.rows import Layout, Meta
from certwright.kube.store.etcd.store import EtcdStore
from conformance.store_words import BUCKET, all_pages, saying
from kube.store.opening import opened
from kube.store.test_etcd import at
from support.etcd import Etcd

ROWS = 6_000
WRITES = 120
"""Writes in one transaction; etcd allows 128."""
META = Meta(b"test", [b"", b""])
PLACES = sorted((f"ns-{number % 3}", f"n-{number * 2_654_435_761 % 2**32:08x}") for number in range(ROWS))


@pytest.fixture
async def store(etcd: Etcd, request: pytest.FixtureRequest) -> AsyncIterator[EtcdStore]:
    """A store of 6,000 rows in three namespaces."""
    prefix = f"/lists/{request.node.name}"
    client, layout = EtcdClient(at(etcd.member)), Layout(prefix)
    async with opened(at(etcd.member), prefix=prefix) as store:
        writes = [write for place in PLACES for write in layout.put_ops(Key(BUCKET, *place), META, b"old")]
        groups = (writes[begin : begin + WRITES] for begin in range(0, len(writes), WRITES))
        await asyncio.gather(*(client.call(TXN, TxnRequest(success=group)) for group in groups))
        yield store
    await client.close()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of keys that etcd counted for each range that was requested from now on."""
    counts: list[int] = []
    ask = EtcdClient._call_member

    async def noting(client: EtcdClient, member: str, method: Any, *rest: Any) -> Any:
        answer = await ask(client, member, method, *rest)
        if method is TXN:
            ranges = [
                response.response_range
                for response in answer.responses
                if response.HasField("response_range")
            ]
            counts.extend(part.count for part in ranges)
        return answer

    monkeypatch.setattr(EtcdClient, "_call_member", noting)
    return counts


async def test_the_time_of_a_list_grows_with_its_length_only(store: EtcdStore, counted: list[int]) -> None:
    pages = await all_pages(store, limit=500)
    assert [row.key[1:] for page in pages for row in page.rows] == PLACES
    # Metadata and bodies, up to twice as many as are returned, and all of them once, for the first page.
    assert sum(counted) < 2 * ROWS + 2 * 2 * ROWS


@pytest.mark.parametrize("namespace", [None, "ns-1"])
@pytest.mark.parametrize("limit", [1_999, 6_000])
async def test_pages_of_long_lists_are_the_list(store: EtcdStore, namespace: str | None, limit: int) -> None:
    await all_pages(store, limit=2_000)
    expected = [place for place in PLACES if namespace in (None, place[0])]
    pages = await all_pages(store, limit=limit, namespace=namespace, counted=True)
    assert [row.key[1:] for page in pages for row in page.rows] == expected
    assert [len(page.rows) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    left = len(expected)
    for page in pages:
        left -= len(page.rows)
        assert page.remaining == (left or None)
        assert page.more == bool(left)


async def test_a_list_that_ends_where_its_index_does_has_no_empty_page(store: EtcdStore) -> None:
    first = (await all_pages(store, limit=500))[0]
    index = await store._reader._index.read(BUCKET)
    place = Key(*index.names[-1].decode().split("\0"))[1:]
    await asyncio.gather(*(store.delete(row.key) for row in (await store.list(BUCKET, after=place)).rows))
    left = [row.key[1:] for row in (await store.list(BUCKET)).rows]
    for limit in (len(left), len(left) - 1, 1):
        page = await store.list(BUCKET, limit=limit, after=left[-limit - 1] if limit < len(left) else None)
        assert ([row.key[1:] for row in page.rows], page.more) == (left[-limit:], False)
    assert (await store.list(BUCKET, limit=500, revision=first.revision)).rows == first.rows


async def test_rows_of_an_earlier_version_are_indexed_when_they_are_listed(
    store: EtcdStore, counted: list[int]
) -> None:
    span = store._layout.index_span(BUCKET)
    await store._client.call(TXN, TxnRequest(success=[delete_op(span.begin, span.end)]))
    await all_pages(store, limit=500)
    assert sum(counted) > 5 * 2 * ROWS
    adding = store._reader._index._adding
    assert adding is not None
    await adding
    counted.clear()
    await all_pages(store, limit=500)
    assert sum(counted) < 3 * 2 * ROWS


async def test_deleted_rows_leave_nothing_in_the_index(store: EtcdStore) -> None:
    before = (await store._reader._index.read(BUCKET)).names
    gone = Key(*before[0].decode().split("\0"))
    await store.delete(gone)
    assert (await store._reader._index.read(BUCKET)).names == before[1:]
    await store.put(gone, saying("again"))
    assert (await store._reader._index.read(BUCKET)).names == before
