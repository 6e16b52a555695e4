"""Sparse index of the rows in etcd: every 128th key of a bucket, on average, so that ranges can end at one.

etcd counts all keys of a range, whatever its limit (`treeIndex.Revisions`, 3.4 to 3.6: some 0.9 µs each). If
every page of a list ran to the end of the bucket, a list would take time with the square of its length.

A row is indexed if a hash of its key says so. The transaction that writes or deletes the row writes or
deletes its index key, which is empty. The index bounds ranges and nothing else: if it lacks keys or has too
many, a list takes longer and contains the same rows.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from certwright.kube.store.contract import StoreError
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import RANGE, TXN, RangeRequest, TxnRequest, exists, put_op
from certwright.kube.store.etcd.rows import INDEX_EVERY, Layout, is_indexed

_log = logging.getLogger(__name__)

MANY = 2_000
"""Rows after a page from which on the index is read: below that, counting them takes at most 2 ms."""
_SPARE = 2
"""Keys beyond those that a page's rows are expected to have, so that few pages need a second range."""


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """The index of one bucket: sorted keys, without their prefix, at `revision` or later."""

    names: list[bytes]
    revision: int

    def end_of(self, begin: bytes, rows: int) -> bytes | None:
        """The last key of a range that has about so many rows, or more; None: the range has no end."""
        position = bisect_right(self.names, begin) + rows // INDEX_EVERY + _SPARE
        return self.names[position] if position < len(self.names) else None

    def missing(self, names: Iterable[bytes]) -> list[bytes]:
        """Those of these keys that belong into the index and are not in it."""
        return [name for name in names if is_indexed(name) and not self._has(name)]

    def _has(self, name: bytes) -> bool:
        position = bisect_right(self.names, name)
        return position > 0 and self.names[position - 1] == name


class SparseIndex:
    """The indexes of the buckets of which long lists were read here."""

    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._buckets: dict[str, BucketIndex] = {}
        self._missing = set[bytes]()
        self._adding: asyncio.Task[None] | None = None

    async def current(self, bucket: str, revision: int) -> BucketIndex | None:
        """The index of a bucket, at a revision or later (0: now); None: it has not been read, because the
        bucket was not large. Raises `Unavailable`."""
        index = self._buckets.get(bucket)
        return index if index is None or 0 < revision <= index.revision else await self.read(bucket)

    async def read(self, bucket: str) -> BucketIndex:
        """The index of a bucket as it is now. Raises `Unavailable`."""
        span = self._layout.index_span(bucket)
        answer = await self._client.call(
            RANGE, RangeRequest(key=span.begin, range_end=span.end, keys_only=True)
        )
        skip = len(self._layout.index)
        index = BucketIndex([kv.key[skip:] for kv in answer.kvs], answer.header.revision)
        self._buckets[bucket] = index
        return index

    def add(self, names: Iterable[bytes]) -> None:
        """Add keys of rows that an earlier version of certwright has written, in the background."""
        self._missing.update(names)
        if self._missing and (self._adding is None or self._adding.done()):
            self._adding = asyncio.create_task(self._add(), name="sparse index")

    async def _add(self) -> None:
        try:
            while self._missing:
                name = self._missing.pop()
                row, write = exists(self._layout.meta + name), put_op(self._layout.index + name, b"")
                await self._client.call(TXN, TxnRequest(compare=[row], success=[write]))
        except StoreError as error:
            self._missing.clear()
            _log.debug("the index of the rows in etcd was not completed: %s", error)

    async def close(self) -> None:
        """Stop adding keys."""
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
