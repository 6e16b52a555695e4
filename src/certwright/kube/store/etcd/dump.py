"""Source of a backup: all rows below a prefix of etcd at one revision, while servers write there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from certwright.kube.store.contract import Row
from certwright.kube.store.damage import Check
from certwright.kube.store.dump import Dump
from certwright.kube.store.envelope import Seal
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.listing import Reader
from certwright.kube.store.etcd.messages import RANGE, RangeRequest
from certwright.kube.store.etcd.row_format import check_format
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.pages import Query

_PAGE_BYTES = 4 << 20


@asynccontextmanager
async def dump_etcd(
    access: Access, prefix: str, seal: Seal, check: Check | None = None
) -> AsyncIterator[Dump]:
    """Read all rows below the prefix, while servers keep running. `check`: the test that readable rows pass.

    Raises `Unavailable` and `Damaged` (`WrongKey`).
    """
    client, layout = EtcdClient(access), Layout(prefix, seal, check)
    try:
        await check_format(client, layout)
        answer = await client.call(RANGE, RangeRequest(key=layout.ring))
        ring = answer.kvs[0].value if answer.kvs else None
        if ring is not None:
            seal.adopt(ring)
        revision = answer.header.revision
        reader = Reader(client, layout)
        yield Dump(revision, ring, _rows(client, layout, reader, revision), layout.damage)
    finally:
        await client.close()


async def _rows(
    client: EtcdClient, layout: Layout, reader: Reader, revision: int
) -> AsyncGenerator[list[Row], None]:
    begin = layout.meta
    while (first := await first_row(client, layout, begin, revision)) is not None:
        bucket = layout.key_of(first.key).bucket
        page = await reader.page(Query(bucket, max_bytes=_PAGE_BYTES), revision)
        yield page.rows
        while page.more:
            query = Query(bucket, after=page.last, max_bytes=_PAGE_BYTES)
            page = await reader.page(query, revision)
            yield page.rows
        begin = layout.spans(bucket, None, None)[0].end


async def first_row(
    client: EtcdClient, layout: Layout, begin: bytes | None = None, revision: int = 0
) -> Any | None:
    """The first `m/` key and value from `begin` on (None: of all), at a revision (0: now); None: no row."""
    end = layout.meta[:-1] + b"0"  # "0" follows "/"
    request = RangeRequest(
        key=begin or layout.meta, range_end=end, limit=1, revision=revision, keys_only=True
    )
    kvs = (await client.call(RANGE, request)).kvs
    return kvs[0] if kvs else None
