"""Maintenance of etcd: its size against its quota, and the compaction of old revisions.

etcd refuses writes once the file of its database has reached the quota. Pages freed by a compaction are
reused, and the file shrinks only when it is defragmented. etcd 3.6 reports its quota; for earlier versions
the quota is a setting here, which must equal etcd's `--quota-backend-bytes`.

Source: etcd documentation, "Maintenance", space quota; `api/etcdserverpb/rpc.proto`, `StatusResponse`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import Any

from certwright.kube.store.contract import Compacted, Full, StoreError, Usage
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import (
    COMPACT,
    RANGE,
    STATUS,
    TXN,
    CompactionRequest,
    RangeRequest,
    StatusRequest,
    TxnRequest,
    WatchCreateRequest,
    at_version,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import Layout

_log = logging.getLogger(__name__)

DEFAULT_QUOTA_BYTES = 2 << 30
"""etcd's own default."""
_EVERY_S = 60.0
_TIMEOUT_S = 5.0
_WARN_FROM = 0.8
_MB = 1e6
_ALARM = (
    "etcd's NOSPACE alarm is active, and all writes are refused: compact and defragment each member, or raise"
    " etcd's --quota-backend-bytes; then run `etcdctl alarm disarm`"
)


class QuotaWatch:
    """The usage of the member that is nearest to its quota. Every member has a file of its own: their sizes
    differ once a member was defragmented, and all members refuse writes as soon as one is full."""

    def __init__(self, client: EtcdClient, quota_bytes: int) -> None:
        self._client = client
        self._quota_bytes = quota_bytes
        self._warned = False
        self._is_full = False
        client.on_full = self._report_full
        self.usage: Usage | None = None
        """The last measurement."""

    async def run(self) -> None:
        """Measure periodically, until cancelled."""
        while True:
            try:
                await self.measure()
            except StoreError as error:
                _log.debug("the size of etcd's database was not measured: %s", error)
            await asyncio.sleep(_EVERY_S)

    def _report_full(self) -> None:
        """A write was refused: show the alarm before the next measurement."""
        if not self._is_full:
            self._is_full = True
            _log.warning("%s", _ALARM)
            if self.usage is not None:
                self.usage = self.usage._replace(warning=_ALARM)

    async def measure(self) -> None:
        """Measure now; one log line reports that the quota is nearly used up. Raises `Unavailable`."""
        statuses = await self._client.call_each(STATUS, StatusRequest(), _TIMEOUT_S)
        self._is_full = any("NOSPACE" in alarm for _, status in statuses for alarm in status.errors)
        usages = [self._usage(member, status) for member, status in statuses]
        self.usage = usage = max(usages, key=lambda member_usage: member_usage.size / member_usage.quota)
        if usage.warning and not self._warned:
            _log.warning("%s", usage.warning)
        self._warned = bool(usage.warning)

    def _usage(self, member: str, status: Any) -> Usage:
        quota, size, in_use = status.db_size_quota or self._quota_bytes, status.db_size, status.db_size_in_use
        warnings = []
        if self._is_full:
            warnings.append(_ALARM)
        if self._is_full or size >= _WARN_FROM * quota:
            warnings.append(
                f"etcd's database at {member} has {size / _MB:,.0f} MB ({in_use / _MB:,.0f} MB in use) of the"
                f" {quota / _MB:,.0f} MB that its quota allows; at the quota of one member all refuse writes:"
                " defragment each member, or raise etcd's --quota-backend-bytes (and"
                " --etcd-quota-backend-bytes here)"
            )
        if self._is_full and size < _WARN_FROM * quota and not status.db_size_quota:
            warnings.append(
                "if etcd's --quota-backend-bytes is another quota than that, --etcd-quota-backend-bytes here"
                " is wrong"
            )
        return Usage(size, in_use, quota, "; ".join(warnings))


class Compaction:
    """Compaction of etcd: one server at a time drops old revisions.

    `key` counts the turns. A server that finds the count unchanged since its last check takes the turn, and
    drops the revisions older than that check; the others see that another server was faster. So one to two
    intervals of history are kept, independent of the servers' clocks. A full etcd accepts no turns, but
    compactions, which make room: then every server drops the revisions older than its own last check.
    """

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
        """Take the turn, unless another server has; returns the revision up to which etcd was compacted, 0:
        none. Raises `Unavailable`."""
        try:
            answer = await self._client.call(
                TXN,
                TxnRequest(
                    compare=[at_version(self._key, self._version)],
                    success=[put_op(self._key, b"%d" % self._revision)],
                    failure=[read_op(self._key)],
                ),
            )
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

    async def compact(self, revision: int) -> None:
        """Drop older revisions. Raises `Compacted`, `Unavailable`."""
        await self._client.call(COMPACT, CompactionRequest(revision=revision))


async def compacted(client: EtcdClient, layout: Layout) -> Compacted:
    """`Compacted` with the oldest revision that etcd has; called after etcd refused a revision."""
    create = WatchCreateRequest(key=layout.format, start_revision=1)
    async with aclosing(client.watch(create)) as answers:
        async for batch in answers:
            if batch[-1].canceled:
                return Compacted(batch[-1].compact_revision)
    return Compacted(0)
