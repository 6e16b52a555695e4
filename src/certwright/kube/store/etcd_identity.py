"""Identity check: whether an etcd prefix still holds the store recorded earlier.

A key holds the store's id, and the mark in the data directory of each server records it. An etcd that was
emptied, replaced, or restored from an older snapshot is refused instead of being served as an empty store.
"""

from __future__ import annotations

from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import (
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    at_version,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.mark import Mark, MarkFile, new_id


async def read_id(client: EtcdClient, layout: Layout) -> tuple[str | None, int]:
    """The id of the store, None if it has none; and etcd's revision."""
    answer = await client.call(RANGE, RangeRequest(key=layout.store))
    return (answer.kvs[0].value.decode() if answer.kvs else None), answer.header.revision


async def check_mark(client: EtcdClient, layout: Layout, marks: MarkFile) -> None:
    """Raise `Damaged` if the mark is for this prefix, and the store is another or an older one. Performs file
    I/O."""
    mark = marks.read()
    if mark is not None and mark.place == layout.prefix:
        marks.check(mark, *await read_id(client, layout))


async def identify(client: EtcdClient, layout: Layout) -> Mark:
    """The mark of the store as it is now; a store without an id gets one."""
    request = TxnRequest(
        compare=[at_version(layout.store, 0)],
        success=[put_op(layout.store, new_id().encode())],
        failure=[read_op(layout.store)],
    )
    await client.call(TXN, request)
    store, revision = await read_id(client, layout)
    return Mark(store or "", revision, layout.prefix)
