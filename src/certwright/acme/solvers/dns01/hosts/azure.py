"""Azure DNS, public and private zones: all values of a name are one record set, with an ETag.

Source: REST API reference of "Azure DNS" (2018-05-01) and "Private DNS" (2020-06-01).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from certwright.acme.solvers.dns01.hosts.api import Endpoint, HostApi
from certwright.acme.solvers.dns01.hosts.azure_login import AzureLogin
from certwright.acme.solvers.dns01.hosts.contract import (
    DnsHost,
    Edit,
    EditsConflict,
    EditsTogether,
    HostedZone,
    Outside,
    ZoneGone,
)
from certwright.acme.solvers.dns01.hosts.tokens import TokenCache
from certwright.kit.outgoing import HttpAnswer
from certwright.kube.util.decoders import UNDECODABLE, json_decoder

_TTL_S: Final = 60
# Azure's limit of records in a set.
_MOST_EDITS: Final = 20
_JUDGED: Final = (404, 409, 412)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How the two services differ: the type of a zone, the version of the API, the names of properties."""

    zones: str
    version: str
    ttl: str
    records: str


_PUBLIC: Final = _Kind("dnsZones", "2018-05-01", "TTL", "TXTRecords")
_PRIVATE: Final = _Kind("privateDnsZones", "2020-06-01", "ttl", "txtRecords")


class _Failure(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Answer(msgspec.Struct):
    error: _Failure = msgspec.field(default_factory=_Failure)
    code: str = ""
    message: str = ""


class _RecordSet(msgspec.Struct):
    etag: str = ""
    properties: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """`endpoint` is the resource manager of the cloud. `zone` has the zone's name as its ID."""

    subscription: str
    resource_group: str
    login: AzureLogin
    endpoint: Endpoint
    is_private: bool = False
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> Azure:
        """See `HostSettings`."""
        return Azure(self, outside)


class Azure(DnsHost):
    """See `DnsHost`."""

    edits_together = EditsTogether(_MOST_EDITS, of_one_name=True)

    def __init__(self, settings: AzureSettings, outside: Outside) -> None:
        self._api = HostApi("Azure DNS", settings.endpoint, outside, explain=_reason)
        self._tokens = TokenCache(lambda: settings.login.fetch(outside), outside.now)
        self._kind = _PRIVATE if settings.is_private else _PUBLIC
        self._group = (
            f"/subscriptions/{quote(settings.subscription, safe='')}"
            f"/resourceGroups/{quote(settings.resource_group, safe='')}"
            "/providers/Microsoft.Network"
        )

    async def verify(self) -> None:
        """See `DnsHost`."""
        await self._call("GET", f"/{self._kind.zones}", "list the zones", query={"$top": "1"})

    async def find_zone(self, name: str) -> HostedZone | None:
        """See `DnsHost`."""
        path = f"/{self._kind.zones}/{quote(name, safe='')}"
        answer = await self._call("GET", path, f"find the zone {name}", allowed=(404,))
        if answer.status != 404:
            return HostedZone(name, name)
        if _code(answer) in ("ResourceGroupNotFound", "SubscriptionNotFound"):
            raise self._api.failure(answer, f"find the zone {name}")
        return None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        """See `DnsHost`."""
        name = edits[0].name
        what = f"change the TXT record {name}"
        relative = name.removesuffix(f".{zone.name}") if name != zone.name else "@"
        path = f"/{self._kind.zones}/{quote(zone.id, safe='')}/TXT/{quote(relative, safe='')}"
        there = await self._read(path, what)
        before: list[dict[str, Any]] = there.properties.get(self._kind.records, []) if there else []
        after = {"".join(record.get("value", ())): record for record in before}
        for edit in edits:
            if edit.adds:
                after.setdefault(edit.value, {"value": [edit.value]})
            else:
                after.pop(edit.value, None)
        if len(after) == len(before) and list(after.values()) == before:
            return ""
        condition = (("if-match", there.etag),) if there else (("if-none-match", "*"),)
        if after:
            # Properties that are not changed, e.g. metadata, are kept.
            kept = there.properties if there else {self._kind.ttl: _TTL_S}
            writable = {key: kept[key] for key in (self._kind.ttl, "metadata") if key in kept}
            body = {"properties": {**writable, self._kind.records: list(after.values())}}
            answer = await self._call("PUT", path, what, body=body, headers=condition, allowed=_JUDGED)
        else:
            answer = await self._call("DELETE", path, what, headers=condition, allowed=_JUDGED)
        if answer.status == 412 or (answer.status == 409 and _code(answer) == "Conflict"):
            raise EditsConflict(str(self._api.failure(answer, what)))
        if answer.status == 404:
            raise ZoneGone(str(self._api.failure(answer, what)))
        if answer.status == 409:
            raise self._api.failure(answer, what)
        return ""

    async def _read(self, path: str, what: str) -> _RecordSet | None:
        answer = await self._call("GET", path, what, allowed=(404,))
        if answer.status == 404 and _code(answer) not in ("NotFound", "ResourceNotFound", ""):
            raise ZoneGone(str(self._api.failure(answer, what)))
        return self._api.parse(answer, _RecordSet, what) if answer.status != 404 else None

    async def _call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: dict[str, str] | None = None,
        body: object = None,
        headers: tuple[tuple[str, str], ...] = (),
        allowed: Sequence[int] = (),
    ) -> HttpAnswer:
        async def send(token: str) -> HttpAnswer:
            return await self._api.call(
                method,
                f"{self._group}{path}",
                what=what,
                query={"api-version": self._kind.version, **(query or {})},
                body=body,
                headers=(("authorization", f"Bearer {token}"), *headers),
                allowed=allowed,
            )

        return await self._tokens.use(send)


def _answer(answer: HttpAnswer) -> _Failure:
    try:
        body = json_decoder(_Answer).decode(answer.body)
    except UNDECODABLE:
        return _Failure()
    return body.error if body.error.code else _Failure(body.code, body.message)


def _code(answer: HttpAnswer) -> str:
    return _answer(answer).code


def _reason(answer: HttpAnswer) -> str:
    failure = _answer(answer)
    return f"{failure.code}: {failure.message}" if failure.code else ""
