"""Compaction of etcd: one of the servers at a time drops old revisions.

A key counts the turns. A server that finds it unchanged since its last check takes the turn, and drops the
revisions older than that check; the others see that another server was faster. So history of one to two
intervals is kept, independent of the servers' clocks. While etcd is full it takes no turns, but compactions,
which make room: then every server drops what is older than its own last check.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import Any

from certwright.kube.store.contract import Compacted, Full, StoreError
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import (
    COMPACT,
    RANGE,
    TXN,
    CompactionRequest,
    RangeRequest,
    TxnRequest,
    WatchCreateRequest,
    at_version,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import Layout

_log = logging.getLogger(__name__)


class Compaction:
    """Takes part in the turns that `key` counts."""

    def __init__(self, client: EtcdClient, key: bytes) -> None:
        self._client = client
        self._key = key
        self._version = 0
        self._revision = 0  # at the last check

    async def run(self, every_s: float) -> None:
        """Check periodically, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.look()
            except StoreError as error:
                _log.warning("etcd was not compacted: %s", error)

    async def look(self) -> int:
        """Take the turn, or see that another server has; returns the revision up to which etcd was compacted,
        0: it was not. Raises `Unavailable`."""
        try:
            answer = await self._claim_turn()
        except Full:
            answer = await self._client.call(RANGE, RangeRequest(key=self._key))
        else:
            if not answer.succeeded:
                kvs = answer.responses[0].response_range.kvs
                self._version = kvs[0].version if kvs else 0
                self._revision = answer.header.revision
                return 0
            self._version += 1
        revision, self._revision = self._revision, answer.header.revision
        if revision:
            with suppress(Compacted):  # by another client, and further
                await self.compact(revision)
        return revision

    async def _claim_turn(self) -> Any:
        return await self._client.call(
            TXN,
            TxnRequest(
                compare=[at_version(self._key, self._version)],
                success=[put_op(self._key, b"%d" % self._revision)],
                failure=[read_op(self._key)],
            ),
        )

    async def compact(self, revision: int) -> None:
        """Drop older revisions. Raises `Compacted`, `Unavailable`."""
        await self._client.call(COMPACT, CompactionRequest(revision=revision))


async def compacted(client: EtcdClient, layout: Layout) -> Compacted:
    """`Compacted`, with the oldest revision that etcd still has; called after it refused one."""
    create = WatchCreateRequest(key=layout.format, start_revision=1)
    async with aclosing(client.watch(create)) as answers:
        async for batch in answers:
            if batch[-1].canceled:
                return Compacted(batch[-1].compact_revision)
    return Compacted(0)
