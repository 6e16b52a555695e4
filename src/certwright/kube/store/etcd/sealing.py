"""Envelope encryption in etcd: stores the ring of data keys, and re-seals rows.

All servers seal with the same ring. Each write of a sealed row is on the condition that the ring is the one
that it was sealed with, so once the ring was rotated nothing is sealed with the old key any more. A server's
feed delivers a new ring before any row that was sealed with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from certwright.kube.store.contract import Damaged, Key, Unavailable
from certwright.kube.store.envelope import BODY, META, Seal
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import (
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    at_revision,
    delete_op,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.key_rotation import Swept
from certwright.kube.store.keyring import Ring, unwrap

_log = logging.getLogger(__name__)

_ROWS = 32


async def load_ring(client: EtcdClient, layout: Layout) -> None:
    """Load the stored ring, or store one. Raises `Damaged` (`WrongKey`), `Unavailable`."""
    seal = layout.seal
    while True:
        kvs = (await client.call(RANGE, RangeRequest(key=layout.ring))).kvs
        blob, version = (kvs[0].value, kvs[0].mod_revision) if kvs else (None, 0)
        if seal is None:
            if blob is not None:
                raise Damaged("rows in etcd are encrypted, and no encryption key is configured")
            return
        is_new = blob is None and not (await _count(client, layout, seal, None))[0]
        if blob is None and seal.enabled and not is_new and not seal.wrapping.load():
            # The other servers could not read rows that are encrypted with a new key.
            raise Damaged(
                f"the Secrets in etcd are not encrypted, and {seal.wrapping.source} has no key: give all"
                " servers the same --encryption-key-file, or this one --encrypt-secrets=false if they have it"
            )
        changed = seal.begin(blob, version=version, is_shared=True)
        if changed is None:
            return
        if is_new:
            changed = seal.wrapped(unwrap(changed, seal.wrapping).done())
        request = TxnRequest(
            compare=[at_revision(layout.ring, version)], success=[put_op(layout.ring, changed)]
        )
        answer = await client.call(TXN, request)
        if answer.succeeded:
            seal.adopt(changed, version=answer.header.revision)
            return


async def _count(client: EtcdClient, layout: Layout, seal: Seal, after: Key | None) -> tuple[int, int]:
    """The number of rows in the sealed buckets, and how many of them after a key, at one moment."""
    buckets = sorted(seal.buckets)
    rest = [bucket for bucket in buckets if after is None or bucket >= after.bucket]
    spans = [layout.spans(bucket, None, None)[0] for bucket in buckets]
    for bucket in rest:
        place = after[1:] if after is not None and bucket == after.bucket else None
        spans.append(layout.spans(bucket, None, place)[0])
    reads = [read_op(span.begin, span.end, limit=1) for span in spans]
    answer = await client.call(TXN, TxnRequest(success=reads))
    counts = [response.response_range.count for response in answer.responses]
    return sum(counts[: len(buckets)]), sum(counts[len(buckets) :])


class EtcdSweeping:
    """A `key_rotation.Sweepable`. `reach` returns when this server's feed has everything up to a revision."""

    def __init__(
        self,
        client: EtcdClient,
        layout: Layout,
        seal: Seal,
        reach: Callable[[int], Awaitable[None]],
    ) -> None:
        self._client = client
        self._layout = layout
        self._seal = seal
        self._reach = reach

    async def count_sealed(self, after: Key | None) -> tuple[int, int]:
        return await _count(self._client, self._layout, self._seal, after)

    async def keep(self, ring: Ring) -> None:
        key = self._layout.ring
        blob = self._seal.wrapped(ring) if ring.current or not ring.settled else None
        writes = [delete_op(key) if blob is None else put_op(key, blob)]
        if ring.settled:
            # The last state of the last deleted row may be sealed with a key that is dropped now.
            writes.append(delete_op(self._layout.last))
        request = TxnRequest(
            compare=[at_revision(key, self._seal.version)], success=writes, failure=[read_op(key)]
        )
        answer = await self._client.call(TXN, request)
        await self._reach(answer.header.revision)
        # If the ring is stored nevertheless, the response to an earlier attempt was lost.
        kept = None if answer.succeeded else answer.responses[0].response_range.kvs
        if kept is not None and (kept[0].value if kept else None) != blob:
            raise Unavailable("another server has changed the data keys concurrently")

    async def sweep(self, after: Key | None) -> Swept:
        buckets = sorted(self._seal.buckets)
        bucket, place = (after.bucket, after[1:]) if after is not None else (buckets[0], None)
        metas, bodies = self._layout.spans(bucket, None, place)
        reads = [read_op(span.begin, span.end, limit=_ROWS) for span in (metas, bodies)]
        answer = await self._client.call(TXN, TxnRequest(success=reads))
        response = answer.responses[0].response_range
        pairs = zip(response.kvs, answer.responses[1].response_range.kvs, strict=True)
        good = await asyncio.gather(*(self._rewrite(meta, body) for meta, body in pairs))
        if response.more:
            last: Key | None = self._layout.key_of(response.kvs[-1].key)
        else:
            last = next((Key(other, "", "") for other in buckets if other > bucket), None)
        return Swept(last, len(response.kvs), good.count(False))

    async def _rewrite(self, meta: Any, body: Any) -> bool:
        seal, layout = self._seal, self._layout
        if seal.is_current(meta.value, body.value):
            return True
        key = layout.key_of(meta.key)
        try:
            plain = seal.decrypt(key, META, meta.value), seal.decrypt(key, BODY, body.value)
        except Damaged as error:
            _log.error("%s", error)
            return False
        # On failure another server has written the row, and sealed it with the current key.
        request = TxnRequest(
            compare=[at_revision(meta.key, meta.mod_revision), at_revision(layout.ring, seal.version)],
            success=[
                put_op(meta.key, seal.encrypt(key, META, plain[0])),
                put_op(body.key, seal.encrypt(key, BODY, plain[1])),
            ],
        )
        await self._client.call(TXN, request)
        return True
