"""Backup and restore for etcd: all rows below a prefix at one revision, and a prefix filled from a backup."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from certwright.kube.store.contract import Row, Unavailable
from certwright.kube.store.damage import Check
from certwright.kube.store.dump import Dump
from certwright.kube.store.envelope import Seal
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.listing import Reader
from certwright.kube.store.etcd.messages import RANGE, TXN, RangeRequest, TxnRequest, delete_op, put_op
from certwright.kube.store.etcd.owner import owner_key
from certwright.kube.store.etcd.rows import FORMAT, UNFINISHED, Layout
from certwright.kube.store.etcd.store import EtcdStore, open_etcd
from certwright.kube.store.etcd_identity import read_id
from certwright.kube.store.pages import Wanted

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
        answer = await client.call(RANGE, RangeRequest(key=layout.ring))
        ring = answer.kvs[0].value if answer.kvs else None
        if ring is not None:
            seal.adopt(ring)
        revision = answer.header.revision
        yield Dump(revision, ring, _rows(client, layout, revision), layout.damage)
    finally:
        await client.close()


async def _rows(client: EtcdClient, layout: Layout, revision: int) -> AsyncIterator[list[Row]]:
    async def nothing_newer() -> None:
        """Do nothing: everything is read at the ring's revision."""

    reader = Reader(client, layout, nothing_newer)
    begin = layout.meta
    while (first := await _first(client, layout, begin, revision)) is not None:
        bucket = layout.key_of(first.key).bucket
        page = await reader.page(Wanted(bucket, max_bytes=_PAGE_BYTES), revision)
        yield page.rows
        while page.more:
            wanted = Wanted(bucket, after=page.last, max_bytes=_PAGE_BYTES)
            page = await reader.page(wanted, revision)
            yield page.rows
        begin = layout.spans(bucket, None, None)[0].end


async def _first(client: EtcdClient, layout: Layout, begin: bytes, revision: int) -> Any | None:
    end = layout.meta[:-1] + b"0"  # "0" follows "/"
    request = RangeRequest(key=begin, range_end=end, limit=1, revision=revision, keys_only=True)
    found = (await client.call(RANGE, request)).kvs
    return found[0] if found else None


@asynccontextmanager
async def refilling(access: Access, prefix: str, seal: Seal, *, force: bool) -> AsyncIterator[EtcdStore]:
    """A store below the emptied prefix, to be filled inside the block. No server starts on it before the
    block has ended without an error.

    Raises `Unavailable` if the prefix is in use and `force` was not given.
    """
    client, layout = EtcdClient(access), Layout(prefix)
    try:
        if not force and await _first(client, layout, layout.meta, 0) is not None:
            raise Unavailable(
                f"etcd at {access} holds a store below {prefix}; --force replaces it, once no server uses it"
            )
        root = layout.root
        known, _ = await read_id(client, layout)
        owners = (await client.call(RANGE, RangeRequest(key=owner_key(layout)))).kvs
        await client.call(TXN, TxnRequest(success=[delete_op(root.begin, root.end)]))
        # The id stays, because it is still the same store to the marks of all its servers.
        kept = [put_op(layout.store, known.encode())] if known is not None else []
        kept += [put_op(owner.key, owner.value) for owner in owners]
        await client.call(TXN, TxnRequest(success=[put_op(layout.format, UNFINISHED), *kept]))
        store = await open_etcd(access, seal=seal, prefix=prefix, compact_every_s=0, unfinished=True)
        try:
            yield store
        finally:
            await store.close()
        await client.call(TXN, TxnRequest(success=[put_op(layout.format, FORMAT)]))
    finally:
        await client.close()
