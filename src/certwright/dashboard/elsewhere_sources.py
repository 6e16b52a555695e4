"""Certificates in files and on hosts that the operator has named for the dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from certwright.diagnosis import inventory
from certwright.diagnosis.inventory import Record
from certwright.kit.tls_scan import TlsAddress

_AGAIN_S: Final = 600.0
"""Hosts and files are looked at this often at most."""
_TIMEOUT_S: Final = 5.0


class Found(msgspec.Struct, frozen=True):
    """The certificates on the operator's hosts and in their files, and the time of the scan."""

    at: float
    hosts: Sequence[Record]
    files: Sequence[Record]
    problems: Sequence[str]


class Elsewhere:
    """Hosts and files that the operator has named, looked at when the page is opened."""

    def __init__(self, hosts: Sequence[str], files: Sequence[str]) -> None:
        self._hosts = [TlsAddress.parse(host) for host in hosts]
        self._files = list(files)
        self._found: Found | None = None
        self._lock = asyncio.Lock()

    @property
    def is_named(self) -> bool:
        """Whether the operator has named any."""
        return bool(self._hosts or self._files)

    async def find(self, now: float) -> Found:
        """What is there, as of some minutes ago at most."""
        async with self._lock:
            if self._found is None or now - self._found.at >= _AGAIN_S:
                (records, problems), hosts = await asyncio.gather(
                    asyncio.to_thread(inventory.read_files, self._files),
                    inventory.scan_hosts(self._hosts, timeout_s=_TIMEOUT_S),
                )
                self._found = Found(now, hosts, records, problems)
            return self._found
