"""DigitalOcean's API, version 2: one record for each value.

Source: API reference of domains and domain records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from certwright.acme.solvers.dns01.hosts.api import Endpoint, HostApi, reason_at
from certwright.acme.solvers.dns01.hosts.contract import (
    DnsHost,
    Edit,
    EditsTogether,
    HostedZone,
    Outside,
)

ENDPOINT: Final = Endpoint("https://api.digitalocean.com/v2")
_TTL_S: Final = 30
_PAGE: Final = 200
_MOST_PAGES: Final = 100


class _Record(msgspec.Struct):
    id: int
    data: str = ""


class _Pages(msgspec.Struct):
    next: str = ""


class _Links(msgspec.Struct):
    pages: _Pages = msgspec.field(default_factory=_Pages)


class _Records(msgspec.Struct):
    domain_records: list[_Record]
    links: _Links = msgspec.field(default_factory=_Links)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitalOceanSettings:
    """A personal access token with the scopes for domains."""

    token: str = field(repr=False)
    endpoint: Endpoint = ENDPOINT
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> DigitalOcean:
        return DigitalOcean(self, outside)


class DigitalOcean(DnsHost):
    edits_together = EditsTogether(_PAGE, of_one_name=True)

    def __init__(self, settings: DigitalOceanSettings, outside: Outside) -> None:
        headers = (("authorization", f"Bearer {settings.token}"),)
        explain = reason_at("message")
        self._api = HostApi("DigitalOcean", settings.endpoint, outside, headers=headers, explain=explain)

    async def verify(self) -> None:
        await self._api.call("GET", "/domains", "list the domains", query={"per_page": "1"})

    async def find_zone(self, name: str) -> HostedZone | None:
        path = f"/domains/{quote(name, safe='')}"
        answer = await self._api.call("GET", path, f"find the domain {name}", allowed=(404,))
        return HostedZone(name, name) if answer.status != 404 else None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        name = edits[0].name
        there = await self._list(zone, name)
        for edit in edits:
            numbers = [record.id for record in there if record.data == edit.value]
            if edit.adds and not numbers:
                relative = name[: -len(zone.name) - 1] if name != zone.name else "@"
                record = {"type": "TXT", "name": relative, "data": edit.value, "ttl": _TTL_S}
                await self._api.call("POST", _records(zone), f"add the TXT record {name}", body=record)
            elif not edit.adds:
                for number in numbers:
                    what = f"remove the TXT record {name}"
                    await self._api.call("DELETE", f"{_records(zone)}/{number}", what, allowed=(404,))
        return ""

    async def _list(self, zone: HostedZone, name: str) -> list[_Record]:
        """All TXT records of a name: only the filtered list is complete, and it may have several pages."""
        what = f"list the TXT records {name}"
        records: list[_Record] = []
        page = "1"
        for _ in range(_MOST_PAGES):
            query = {"type": "TXT", "name": name, "per_page": str(_PAGE), "page": page}
            answer = await self._api.call("GET", _records(zone), what, query=query, gone=(404,))
            listed = self._api.parse(answer, _Records, what)
            records += listed.domain_records
            # Only the number: the URL as such would be followed with the token.
            following = parse_qs(urlsplit(listed.links.pages.next).query).get("page", [""])[0]
            if not following or following == page:
                break
            page = following
        return records


def _records(zone: HostedZone) -> str:
    return f"/domains/{quote(zone.id, safe='')}/records"
