"""Size of etcd's database against its quota, measured periodically.

etcd refuses writes once the file of its database has reached the quota. Pages that a compaction has freed are
used again, and the file shrinks only when it is defragmented. etcd 3.6 reports its quota; earlier versions do
not, so it is a setting here, which must be the same as etcd's `--quota-backend-bytes`.

Source: etcd documentation, "Maintenance", space quota; `api/etcdserverpb/rpc.proto`, `StatusResponse`.
"""

from __future__ import annotations

import asyncio
import logging

from certwright.kube.store.contract import StoreError, Usage
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import STATUS, StatusRequest

_log = logging.getLogger(__name__)

DEFAULT_QUOTA_BYTES = 2 << 30
"""etcd's own default."""
_EVERY_S = 60.0
_WARN_FROM = 0.8
_MB = 1e6


class QuotaWatch:
    """The usage of the member that answers; every member has its own file, of about the same size."""

    def __init__(self, client: EtcdClient, quota_bytes: int) -> None:
        self._client = client
        self._quota_bytes = quota_bytes
        self._warned = False
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

    async def measure(self) -> None:
        """Measure now; one log line reports that the quota is nearly used up. Raises `Unavailable`."""
        status = await self._client.call(STATUS, StatusRequest())
        quota, size, in_use = status.db_size_quota or self._quota_bytes, status.db_size, status.db_size_in_use
        is_full = any("NOSPACE" in alarm for alarm in status.errors)
        warning = _warning(size, in_use, quota) if is_full or size >= _WARN_FROM * quota else ""
        self.usage = usage = Usage(size, in_use, quota, warning)
        if usage.warning and not self._warned:
            _log.warning("%s", usage.warning)
        self._warned = bool(usage.warning)


def _warning(size: int, in_use: int, quota: int) -> str:
    return (
        f"etcd's database has {size / _MB:,.0f} MB ({in_use / _MB:,.0f} MB in use) of the {quota / _MB:,.0f}"
        " MB that its quota allows; at the quota it refuses every write: defragment each member, or raise"
        " etcd's --quota-backend-bytes (and --etcd-quota-backend-bytes here)"
    )
