"""Backup and restore of etcd: all rows below a prefix at one revision, while servers write there; and a
prefix filled from a backup, many rows in one transaction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from certwright.kube.store.backup_file import Dump
from certwright.kube.store.contract import Encode, Key, Row, Unavailable
from certwright.kube.store.damage import Check
from certwright.kube.store.envelope import Seal
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.identity import identify, owner_key
from certwright.kube.store.etcd.listing import Reader
from certwright.kube.store.etcd.messages import RANGE, TXN, RangeRequest, TxnRequest, delete_op, put_op
from certwright.kube.store.etcd.row_format import check_format
from certwright.kube.store.etcd.rows import FORMAT, UNFINISHED, Layout, Meta, encode_apart, new_writer
from certwright.kube.store.etcd.sealing import load_ring
from certwright.kube.store.pages import Query

_PAGE_BYTES = 4 << 20
# etcd's limits for one transaction are 128 operations (`--max-txn-ops`) and 1.5 MiB (`--max-request-bytes`).
_MOST_OPERATIONS = 120
_MOST_BYTES = 1 << 20


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


class Filling:
    """A restore under way: writes rows into a prefix that no server uses. Rows of one transaction have the
    same revision."""

    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout

    async def add(self, rows: Sequence[tuple[Key, Encode]]) -> None:
        """Write rows that do not exist. Repeated by the client, a write has the same effect. Raises
        `Unavailable`, `TooLarge`."""
        writes, size = list[Any](), 0
        for key, encode in rows:
            content = encode_apart(encode)
            row = self._layout.put_ops(key, Meta(new_writer(), content.pieces), content.body)
            bytes_of_row = sum(write.ByteSize() for write in row)
            if writes and (len(writes) + len(row) > _MOST_OPERATIONS or size + bytes_of_row > _MOST_BYTES):
                await self._client.call(TXN, TxnRequest(success=writes))
                writes, size = [], 0
            writes += row
            size += bytes_of_row
        if writes:
            await self._client.call(TXN, TxnRequest(success=writes))


@asynccontextmanager
async def refilling(access: Access, prefix: str, seal: Seal, *, force: bool) -> AsyncIterator[Filling]:
    """The emptied prefix, to be filled inside the block. No server starts on it before the block has ended
    without an error, not even when this process is killed: the restore can then be repeated.

    Raises `Unavailable` if the prefix is in use and `force` was not given.
    """
    client, layout = EtcdClient(access), Layout(prefix, seal)
    try:
        if not force and await first_row(client, layout) is not None:
            raise Unavailable(
                f"etcd at {access} holds a store below {prefix}; --force replaces it, once no server uses it"
            )
        # In one transaction, because to a server an empty prefix without a mark is a new store. The store's
        # id and owner stay, because the marks of all its servers contain them.
        kept = sorted((layout.format, layout.store, owner_key(layout)))
        begins = [layout.root.begin, *(key + b"\0" for key in kept)]
        writes = [delete_op(*span) for span in zip(begins, [*kept, layout.root.end], strict=True)]
        await client.call(TXN, TxnRequest(success=[put_op(layout.format, UNFINISHED), *writes]))
        await load_ring(client, layout)
        await identify(client, layout)
        yield Filling(client, layout)
        await client.call(TXN, TxnRequest(success=[put_op(layout.format, FORMAT)]))
    finally:
        await client.close()
