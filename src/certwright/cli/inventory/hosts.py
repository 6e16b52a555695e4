"""The certificates that TLS servers present."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from certwright.cli.inventory.records import Record, Source
from certwright.kit.tls_scan import ScanFailed, TlsAddress, presented_certificate
from certwright.pki.certificates import read_der
from certwright.pki.errors import PkiError

_AT_A_TIME = 32


async def scan_hosts(addresses: Sequence[TlsAddress], *, timeout_s: float) -> list[Record]:
    """A record for each address in their order; where none could be read, its `problem` says why."""
    slots = asyncio.Semaphore(_AT_A_TIME)

    async def scan(address: TlsAddress) -> Record:
        async with slots:
            return await _scan(address, timeout_s)

    return list(await asyncio.gather(*map(scan, dict.fromkeys(addresses))))


async def _scan(address: TlsAddress, timeout_s: float) -> Record:
    record = Record(source=Source.HOST, name=str(address))
    try:
        der = await presented_certificate(address, timeout_s=timeout_s)
        return record.with_facts(read_der(der))
    except ScanFailed as error:
        return replace(record, problem=str(error))
    except PkiError as error:
        return replace(record, problem=f"{address} presents what cannot be read: {error}")
