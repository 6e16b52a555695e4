"""Cloudflare's API, version 4: one record for each value.

Source: API reference of `zones` and `zones/{zone_id}/dns_records`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import msgspec

from certwright.acme.solvers.dns01.hosts.api import Endpoint, Headers, HostApi, failure_in
from certwright.acme.solvers.dns01.hosts.contract import (
    CredentialsRejected,
    DnsHost,
    Edit,
    EditsTogether,
    HostedZone,
    Outside,
    ZoneGone,
    quoted,
    unquoted,
)
from certwright.kit.outgoing import HttpAnswer
from certwright.kube.util.caches import Lru

ENDPOINT: Final = Endpoint("https://api.cloudflare.com/client/v4")
_TTL_S: Final = 60
_PAGE: Final = 100
_IDS_KEPT: Final = 10_000
# Codes in `errors`: an identical record exists; the record does not exist; the zone does not exist; the
# credentials are malformed or unknown.
_EXISTS: Final = frozenset({81057, 81058})
_NO_RECORD: Final = 81044
_NO_ZONE: Final = frozenset({7003, 1001})
_BAD_CREDENTIALS: Final = frozenset({6003, 9103, 9106, 9109, 10000})
_JUDGED_BY_CODE: Final = (400, 403, 404)
_MOST_PAGES: Final = 100
_FIX: Final = "correct the token or the key; a token needs the permissions Zone:Read and DNS:Edit"


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Zone(msgspec.Struct):
    id: str
    name: str


class _Record(msgspec.Struct):
    id: str
    content: str = ""


class _Failure(msgspec.Struct):
    errors: list[_Error] = msgspec.field(default_factory=list)


class _Zones(msgspec.Struct):
    result: list[_Zone]


class _Pages(msgspec.Struct):
    total_pages: int = 1


class _Made(msgspec.Struct):
    result: _Record


class _Records(msgspec.Struct):
    result: list[_Record]
    result_info: _Pages = msgspec.field(default_factory=_Pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudflareSettings:
    """Either an API token, or the global API key with the account's email address."""

    token: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    email: str = ""
    endpoint: Endpoint = ENDPOINT
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> Cloudflare:
        return Cloudflare(self, outside)


class Cloudflare(DnsHost):
    edits_together = EditsTogether(_PAGE, of_one_name=True)

    def __init__(self, settings: CloudflareSettings, outside: Outside) -> None:
        headers: Headers = (("authorization", f"Bearer {settings.token}"),)
        if not settings.token:
            headers = (("x-auth-email", settings.email), ("x-auth-key", settings.key))
        self._api = HostApi("Cloudflare", settings.endpoint, outside, headers=headers, explain=_reason)
        # The IDs of records that this process has added spare a request when they are removed.
        self._ids: Lru[tuple[str, str, str], str] = Lru(_IDS_KEPT)

    async def verify(self) -> None:
        await self._zones({"per_page": "5"}, "list the zones")

    async def find_zone(self, name: str) -> HostedZone | None:
        zones = await self._zones({"name": name}, f"find the zone {name}")
        return next((HostedZone(name, zone.id) for zone in zones if zone.name.lower() == name), None)

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        for edit in edits:
            if edit.adds:
                what = f"add the TXT record {edit.name}"
                record = {"type": "TXT", "name": edit.name, "content": quoted(edit.value), "ttl": _TTL_S}
                answer = await self._call("POST", _records(zone), what, body=record, expected=_EXISTS)
                if answer.status < 300:
                    made = self._api.parse(answer, _Made, what).result
                    self._ids.put((zone.id, edit.name, edit.value), made.id)
            else:
                what = f"remove the TXT record {edit.name}"
                known = self._ids.get((zone.id, edit.name, edit.value))
                for number in [known] if known is not None else await self._find(zone, edit, what):
                    await self._call("DELETE", f"{_records(zone)}/{number}", what, expected={_NO_RECORD})
                self._ids.drop((zone.id, edit.name, edit.value))
        return ""

    async def _zones(self, query: dict[str, str], what: str) -> list[_Zone]:
        answer = await self._call("GET", "/zones", what, query=query)
        return self._api.parse(answer, _Zones, what).result

    async def _find(self, zone: HostedZone, edit: Edit, what: str) -> list[str]:
        record_ids: list[str] = []
        page = pages = 1
        while page <= pages:
            query = {"type": "TXT", "name": edit.name, "per_page": str(_PAGE), "page": str(page)}
            answer = await self._call("GET", _records(zone), what, query=query)
            listed = self._api.parse(answer, _Records, what)
            record_ids += [record.id for record in listed.result if unquoted(record.content) == edit.value]
            page, pages = page + 1, min(listed.result_info.total_pages, _MOST_PAGES)
        return record_ids

    async def _call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: dict[str, str] | None = None,
        body: object = None,
        expected: Collection[int] = (),
    ) -> HttpAnswer:
        """As `HostApi.call`; an answer with a code in `expected` is returned, too."""
        answer = await self._api.call(method, path, what, query=query, body=body, allowed=_JUDGED_BY_CODE)
        if answer.status < 300:
            return answer
        codes = {error.code for error in _errors(answer)}
        if codes & set(expected):
            return answer
        if codes & _NO_ZONE:
            raise ZoneGone(str(self._api.failure(answer, what)))
        if codes & _BAD_CREDENTIALS:
            raise CredentialsRejected(f"{self._api.failure(answer, what)}; {_FIX}")
        raise self._api.failure(answer, what)


def _records(zone: HostedZone) -> str:
    return f"/zones/{quote(zone.id, safe='')}/dns_records"


def _errors(answer: HttpAnswer) -> list[_Error]:
    return failure_in(answer, _Failure).errors


def _reason(answer: HttpAnswer) -> str:
    return "; ".join(f"{error.message} (code {error.code})" for error in _errors(answer))
