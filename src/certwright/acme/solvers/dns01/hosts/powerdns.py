"""PowerDNS's HTTP API: all values of a name are one set.

The set has no version. Servers since 5.0 add and remove single values (`EXTEND`, `PRUNE`); for older ones the
set is read and replaced, which two processes must not do for one name at the same time.

Source: PowerDNS Authoritative Server, "HTTP API: Zones".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import msgspec

from certwright.acme.solvers.dns01.hosts.api import Endpoint, HostApi
from certwright.acme.solvers.dns01.hosts.contract import (
    DnsHost,
    Edit,
    EditsTogether,
    HostedZone,
    Outside,
    edited,
    quoted,
    unquoted,
)

_TTL_S: Final = 60
_MOST_EDITS: Final = 500
_EXTENDS_SINCE: Final = 5


class _Record(msgspec.Struct):
    content: str
    disabled: bool = False


class _RecordSet(msgspec.Struct):
    name: str
    type: str
    ttl: int = _TTL_S
    records: list[_Record] = msgspec.field(default_factory=list)


class _Zone(msgspec.Struct):
    id: str
    rrsets: list[_RecordSet] = msgspec.field(default_factory=list)


class _Server(msgspec.Struct):
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDnsSettings:
    """`endpoint` is the server's URL, without `/api/v1`; `server_id` is `localhost` unless a proxy serves
    several."""

    endpoint: Endpoint
    key: str = field(repr=False)
    server_id: str = "localhost"
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> PowerDns:
        return PowerDns(self, outside)


class PowerDns(DnsHost):
    edits_together = EditsTogether(_MOST_EDITS)

    def __init__(self, settings: PowerDnsSettings, outside: Outside) -> None:
        # An object names the endpoint: its answers are not quoted.
        base = f"/api/v1/servers/{quote(settings.server_id, safe='')}"
        headers = (("x-api-key", settings.key),)
        self._api = HostApi("PowerDNS", settings.endpoint, outside, base=base, headers=headers)
        self._extends: bool | None = None

    async def verify(self) -> None:
        await self._can_extend()

    async def find_zone(self, name: str) -> HostedZone | None:
        what = f"find the zone {name}"
        # A record set that cannot exist: without it the answer contains the whole zone.
        query = {"rrset_name": f"_.{name}.", "rrset_type": "TXT"}
        path = f"/zones/{quote(name, safe='')}."
        answer = await self._api.call("GET", path, what, query=query, allowed=(404, 422))
        if answer.status in (404, 422):
            return None
        return HostedZone(name, self._api.parse(answer, _Zone, what).id)

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        if await self._can_extend():
            sets = [
                _change(edit.name, "EXTEND" if edit.adds else "PRUNE", [_record(edit.value)])
                for edit in edits
            ]
        else:
            sets = await self._replaced(zone, edits)
        if sets:
            what = f"change the TXT records {', '.join(sorted({edit.name for edit in edits}))}"
            await self._api.call("PATCH", _path(zone), what, body={"rrsets": sets}, gone=(404,))
        return ""

    async def _can_extend(self) -> bool:
        if self._extends is None:
            what = "report its version"
            answer = await self._api.call("GET", "", what)
            major = self._api.parse(answer, _Server, what).version.partition(".")[0]
            self._extends = major.isdigit() and int(major) >= _EXTENDS_SINCE
        return self._extends

    async def _replaced(self, zone: HostedZone, edits: Sequence[Edit]) -> list[dict[str, Any]]:
        """The record sets as they are after the edits, without those that stay as they are."""
        sets = []
        for name in dict.fromkeys(edit.name for edit in edits):
            before = await self._read(zone, name)
            after = edited(before.records, name, edits, make=_record, value_of=_value_of)
            if after != before.records:
                sets.append(_change(name, "REPLACE" if after else "DELETE", after, before.ttl))
        return sets

    async def _read(self, zone: HostedZone, name: str) -> _RecordSet:
        what = f"read the TXT records {name}"
        query = {"rrset_name": f"{name}.", "rrset_type": "TXT"}
        answer = await self._api.call("GET", _path(zone), what, query=query, gone=(404,))
        for record_set in self._api.parse(answer, _Zone, what).rrsets:
            # Servers before 4.6 ignore the query and answer with the whole zone.
            if record_set.type == "TXT" and record_set.name.rstrip(".").lower() == name.lower():
                return record_set
        return _RecordSet(f"{name}.", "TXT")


def _change(name: str, change: str, records: Sequence[_Record], ttl: int = _TTL_S) -> dict[str, Any]:
    return {"name": f"{name}.", "type": "TXT", "ttl": ttl, "changetype": change, "records": records}


def _record(value: str) -> _Record:
    return _Record(quoted(value))


def _value_of(record: _Record) -> str:
    return unquoted(record.content)


def _path(zone: HostedZone) -> str:
    return f"/zones/{quote(zone.id, safe='')}"
