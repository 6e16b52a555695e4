"""Size of etcd's database against its quota, measured periodically.

etcd refuses writes once the file of its database has reached the quota. Pages that a compaction has freed are
used again, and the file shrinks only when it is defragmented. etcd 3.6 reports its quota; earlier versions do
not, so it is a setting here, which must be the same as etcd's `--quota-backend-bytes`.

Source: etcd documentation, "Maintenance", space quota; `api/etcdserverpb/rpc.proto`, `StatusResponse`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from certwright.kube.store.contract import StoreError, Usage
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import STATUS, StatusRequest

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
    """The usage of the member that is nearest to its quota. Every member has its own file: their sizes differ
    once one of them was defragmented, and all refuse writes as soon as one of them is full."""

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
