"""Previous rows: the rows that events replace, read from etcd where they are not in memory any more.

etcd's watch can send them with the events (`prev_kv`), and looks them up for each of its watches: for three
servers that is more processor time of etcd than the write itself takes. Nearly always the row is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from certwright.kube.store.contract import Compacted, DamagedRow, Key, Row
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import MOST_OPERATIONS, RANGE, TXN, RangeRequest, TxnRequest, read_op
from certwright.kube.store.etcd.overrides import Overrides, Reference
from certwright.kube.store.etcd.rows import Layout

_MOST_ROWS = MOST_OPERATIONS // 2
"""Rows of one transaction: two reads each."""


async def read_before(
    client: EtcdClient, layout: Layout, overrides: Overrides, revisions: Mapping[Key, int]
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
        apart = list[Any]()
        for at, (key, _) in enumerate(some):
            metas, bodies = (response.response_range.kvs for response in responses[2 * at : 2 * at + 2])
            if metas and key.bucket in overrides:
                apart.append(metas[0])
            elif metas:
                rows[key] = _row(layout, metas[0], bodies[0].value if bodies else b"")
        for meta, body in zip(apart, await read_bodies(client, overrides, layout, apart), strict=True):
            rows[layout.key_of(meta.key)] = _row(layout, meta, body)
    return rows


def _row(layout: Layout, meta: Any, body: bytes | None) -> Row | None:
    try:
        return None if body is None else layout.row(meta, body)
    except DamagedRow:
        return None


async def read_bodies(
    client: EtcdClient, overrides: Overrides, layout: Layout, metas: Sequence[Any]
) -> list[bytes | None]:
    """The bodies, as stored, of `m/` keys and values of overridden buckets; None: it cannot be read. Raises
    `Unavailable`."""
    references = dict[int, Reference]()
    for at, meta in enumerate(metas):
        with suppress(DamagedRow):
            references[at] = Reference(layout.key_of(meta.key), layout.writer_of(meta))
    bodies = dict(zip(references, await overrides.read(list(references.values())), strict=True))
    if any(body is not None and layout.is_unknown(references[at].key, body) for at, body in bodies.items()):
        # Bodies of the past are re-sealed, too, with a data key that this server's feed may not have yet.
        await adopt_ring(client, layout)
    return [bodies.get(at) for at in range(len(metas))]


async def adopt_ring(client: EtcdClient, layout: Layout) -> None:
    """Use the ring as it is now. Raises `Unavailable`, `Damaged`."""
    rings = (await client.call(RANGE, RangeRequest(key=layout.ring))).kvs
    if layout.seal is not None and rings:
        layout.seal.adopt(rings[0].value, version=rings[0].mod_revision)
