"""Restore into etcd: a prefix filled from a backup, many rows in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from certwright.kube.store.contract import Encode, Key, Unavailable
from certwright.kube.store.envelope import Seal
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.dump import first_row
from certwright.kube.store.etcd.messages import TXN, TxnRequest, delete_op, put_op
from certwright.kube.store.etcd.owner import owner_key
from certwright.kube.store.etcd.revision_placeholder import encode_apart
from certwright.kube.store.etcd.rows import FORMAT, UNFINISHED, Layout, Meta, new_writer
from certwright.kube.store.etcd.sealing import load_ring
from certwright.kube.store.etcd_identity import identify

# etcd's limits for one transaction are 128 operations (`--max-txn-ops`) and 1.5 MiB (`--max-request-bytes`).
_MOST_OPERATIONS = 120
_MOST_BYTES = 1 << 20


class Filling:
    """Writes rows into a prefix that no server uses. Rows of one transaction have the same revision."""

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
        await _empty(client, layout)
        await load_ring(client, layout)
        await identify(client, layout)
        yield Filling(client, layout)
        await client.call(TXN, TxnRequest(success=[put_op(layout.format, FORMAT)]))
    finally:
        await client.close()


async def _empty(client: EtcdClient, layout: Layout) -> None:
    # In one transaction, because a prefix that is empty, without the mark, is a new store to a server. The
    # id stays, because it is still the same store to the marks of all its servers, and so does its owner.
    kept = sorted((layout.format, layout.store, owner_key(layout)))
    begins = [layout.root.begin, *(key + b"\0" for key in kept)]
    writes = [delete_op(*span) for span in zip(begins, [*kept, layout.root.end], strict=True)]
    await client.call(TXN, TxnRequest(success=[put_op(layout.format, UNFINISHED), *writes]))
