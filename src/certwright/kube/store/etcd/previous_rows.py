"""Previous rows: the rows that events replace, read from etcd where they are not in memory any more.

etcd's watch can send them with the events (`prev_kv`), and looks them up for each of its watches: for three
servers that is more processor time of etcd than the write itself takes. Nearly always the row is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from certwright.kube.store.contract import Compacted, DamagedRow, Key, Row
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import MOST_OPERATIONS, TXN, TxnRequest, read_op
from certwright.kube.store.etcd.rows import Layout

_MOST_ROWS = MOST_OPERATIONS // 2
"""Rows of one transaction: two reads each."""


async def read_before(
    client: EtcdClient, layout: Layout, revisions: Mapping[Key, int]
) -> dict[Key, Row | None]:
    """The rows that keys had just before a revision each. None: it cannot be read. A row that was compacted
    is left out. Raises `Unavailable`."""
    rows, pairs = dict[Key, Row | None](), list(revisions.items())
    for begin in range(0, len(pairs), _MOST_ROWS):
        some = pairs[begin : begin + _MOST_ROWS]
        reads = [read_op(part, revision=revision - 1) for key, revision in some for part in layout.keys(key)]
        try:
            responses = (await client.call(TXN, TxnRequest(success=reads))).responses
        except Compacted:
            continue
        for at, (key, _) in enumerate(some):
            metas, bodies = (response.response_range.kvs for response in responses[2 * at : 2 * at + 2])
            if metas:
                try:
                    rows[key] = layout.row(metas[0], bodies[0].value if bodies else b"")
                except DamagedRow:
                    rows[key] = None
    return rows
