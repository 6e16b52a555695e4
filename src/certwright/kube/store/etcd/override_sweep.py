"""Sweep of unused bodies on other etcds (`overrides`): one of the servers at a time, every few minutes.

A turn reads the revision *b* of each other etcd, and then writes `epoch` on the main etcd, with these
revisions, at a revision *R*. Once the main etcd is compacted at *C* >= *R*, the queue is swept: of each
queued name, the bodies that were put up to *b* and that the `m/` key at *C* does not refer to are deleted.

Why they are not used any more: a write whose body was put up to *b* knew an epoch from before *R*, so it
cannot commit after *R*, and no later write refers to its body; what is not referred to at *C* never will be.
Revisions before *C*, which may have referred to it, can no longer be read.

A queue entry is removed on the condition that it did not change, if it was put up to *b* and no unused body
is left: the write that it announced has then happened before *R*, or never will.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from certwright.kube.store.contract import Compacted, DamagedRow, StoreError
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.compaction import compacted
from certwright.kube.store.etcd.messages import (
    COMPACT,
    MOST_OPERATIONS,
    RANGE,
    TXN,
    CompactionRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    at_revision,
    delete_op,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.override_identity import decode_epoch, encode_epoch
from certwright.kube.store.etcd.overrides import Overrides, Place
from certwright.kube.store.etcd.rows import Layout

_log = logging.getLogger(__name__)

_PATIENCE_S = 20.0


class OverrideSweep:
    """Takes part in the turns. `compacts`: whether the other etcds are compacted here, too."""

    def __init__(self, client: EtcdClient, layout: Layout, overrides: Overrides, *, compacts: bool) -> None:
        self._client = client
        self._layout = layout
        self._overrides = overrides
        self._compacts = compacts
        self._seen = 0  # revision of the epoch at the last check
        self._compacted = 0  # the oldest revision that the main etcd still has

    async def run(self, every_s: float) -> None:
        """Check periodically, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.look()
            except (StoreError, TimeoutError) as error:
                _log.warning("unused contents were not removed: %s", str(error) or "etcd does not answer")

    async def look(self) -> int:
        """Take the turn, unless another server has since the last check, or the main etcd is not compacted
        yet. Returns the number of bodies that were deleted. Raises `Unavailable`."""
        answer = await self._client.call(RANGE, RangeRequest(key=self._layout.epoch))
        epoch, before = decode_epoch(answer.kvs)
        if epoch != self._seen:
            self._seen = epoch
            return 0
        if epoch and not await self._is_compacted(epoch):
            return 0
        self._compacted = deleted = 0
        for place in self._overrides.places:
            up_to = before.get(place.name, 0)
            deleted += await self._sweep(place, up_to)
            if self._compacts and up_to:
                with suppress(Compacted):  # by another client, and further
                    await place.client.call(COMPACT, CompactionRequest(revision=up_to))
        await self._begin(epoch)
        return deleted

    async def _is_compacted(self, epoch: int) -> bool:
        """Whether the main etcd, which others may compact, has dropped all revisions before the epoch's."""
        try:
            await self._client.call(RANGE, RangeRequest(key=self._layout.epoch, revision=epoch - 1))
        except Compacted:
            return True
        return False

    async def _begin(self, epoch: int) -> None:
        """Begin the next epoch, unless another server has."""
        reached = {}
        for place in self._overrides.places:
            answer = await place.client.call(RANGE, RangeRequest(key=self._layout.contents))
            reached[place.name] = answer.header.revision
        # AFTER these revisions were read: bodies put later belong to the next epoch.
        request = TxnRequest(
            compare=[at_revision(self._layout.epoch, epoch)],
            success=[put_op(self._layout.epoch, encode_epoch(reached))],
        )
        answer = await self._client.call(TXN, request)
        if answer.succeeded:
            # Other servers learn it from their feeds.
            self._seen = self._layout.epoch_revision = answer.header.revision

    async def _sweep(self, place: Place, up_to: int) -> int:
        """Delete the unused bodies of a place that were put up to a revision."""
        queue, deleted = self._layout.queue, 0
        begin, end = queue, queue[:-1] + b"0"  # "0" follows "/"
        while True:
            request = RangeRequest(key=begin, range_end=end, limit=MOST_OPERATIONS)
            entries = (await place.client.call(RANGE, request)).kvs
            if not entries:
                return deleted
            deleted += await self._sweep_some(place, entries, up_to)
            begin = entries[-1].key + b"\0"

    async def _sweep_some(self, place: Place, entries: Sequence[Any], up_to: int) -> int:
        names = [entry.key[len(self._layout.queue) :] for entry in entries]
        spans = [self._layout.content_span(name) for name in names]
        answer = await place.client.call(
            TXN, TxnRequest(success=[_keys_op(span.begin, span.end) for span in spans])
        )
        used, unused, settled = await self._used(names), list[bytes](), list[Any]()
        for entry, name, response in zip(entries, names, answer.responses, strict=True):
            if name not in used:
                continue
            others = [kv for kv in response.response_range.kvs if kv.key != used[name]]
            old = [kv.key for kv in others if kv.mod_revision <= up_to]
            unused += old
            if entry.mod_revision <= up_to and len(old) == len(others):
                settled.append(entry)
        for begin in range(0, len(unused), MOST_OPERATIONS):
            deletions = [delete_op(key) for key in unused[begin : begin + MOST_OPERATIONS]]
            await place.client.call(TXN, TxnRequest(success=deletions))
        if settled:
            # If one of them was put again meanwhile, all stay until the next turn.
            conditions = [at_revision(entry.key, entry.mod_revision) for entry in settled]
            deletions = [delete_op(entry.key) for entry in settled]
            await place.client.call(TXN, TxnRequest(compare=conditions, success=deletions))
        return len(unused)

    async def _used(self, names: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """For each name the key of the body that its row refers to, at the oldest revision that the main etcd
        still has; None: there is no row. Names whose row cannot be read are left out."""
        layout = self._layout
        while True:
            reads = [read_op(layout.meta + name, revision=self._compacted) for name in names]
            try:
                if not self._compacted:
                    raise Compacted(0)
                answers = (await self._client.call(TXN, TxnRequest(success=reads))).responses
            except Compacted:
                async with asyncio.timeout(_PATIENCE_S):
                    self._compacted = (await compacted(self._client, layout)).oldest
            else:
                break
        body_keys = dict[bytes, bytes | None]()
        for name, response in zip(names, answers, strict=True):
            kvs = response.response_range.kvs
            with suppress(DamagedRow):
                key = layout.content_key(layout.key_of(kvs[0].key), layout.writer_of(kvs[0])) if kvs else None
                body_keys[name] = key
        return body_keys


def _keys_op(begin: bytes, end: bytes) -> Any:
    return RequestOp(request_range=RangeRequest(key=begin, range_end=end, keys_only=True))
