"""Akamai Edge DNS: all values of a name are one record set, without a version.

Source: API reference "Edge DNS Zone Management v2"; "EdgeGrid authentication" (EG1-HMAC-SHA256).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from certwright.acme.solvers.dns01.hosts.api import Endpoint, Headers, HostApi
from certwright.acme.solvers.dns01.hosts.contract import (
    DnsHost,
    Edit,
    EditsConflict,
    EditsTogether,
    HostedZone,
    Outside,
    edited,
    quoted,
    unquoted,
)

_TTL_S: Final = 300
_MOST_EDITS: Final = 50
# Of a body only so much is signed.
_SIGNED_BODY: Final = 131_072


class _RecordSet(msgspec.Struct):
    rdata: list[str] = msgspec.field(default_factory=list)
    ttl: int = _TTL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AkamaiSettings:
    """The three credentials of an API client. `endpoint` is `https://` and the client's host."""

    endpoint: Endpoint
    client_token: str = field(repr=False)
    access_token: str = field(repr=False)
    client_secret: str = field(repr=False)
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> Akamai:
        return Akamai(self, outside)


class Akamai(DnsHost):
    edits_together = EditsTogether(_MOST_EDITS, of_one_name=True)

    def __init__(self, settings: AkamaiSettings, outside: Outside) -> None:
        # An object names the endpoint: its answers are not quoted.
        self._api = HostApi("Akamai", settings.endpoint, outside, base="/config-dns/v2", sign=self._sign)
        self._settings = settings
        self._now = outside.now

    async def verify(self) -> None:
        await self._api.call("GET", "/zones?page=1&pageSize=1&showAll=false", "list the zones")

    async def find_zone(self, name: str) -> HostedZone | None:
        path = f"/zones/{quote(name, safe='')}"
        answer = await self._api.call("GET", path, f"find the zone {name}", allowed=(404,))
        return HostedZone(name, name) if answer.status != 404 else None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        name = edits[0].name
        what = f"change the TXT record {name}"
        path = f"/zones/{quote(zone.id, safe='')}/names/{quote(name, safe='')}/types/TXT"
        answer = await self._api.call("GET", path, what, allowed=(404,))
        there = self._api.parse(answer, _RecordSet, what) if answer.status != 404 else None
        before = there.rdata if there is not None else []
        values = edited(before, name, edits, make=quoted, value_of=unquoted)
        if values == before:
            return ""
        if not values:
            await self._api.call("DELETE", path, what, allowed=(404,))
            return ""
        ttl = there.ttl if there is not None else _TTL_S
        body: dict[str, Any] = {"name": name, "type": "TXT", "ttl": ttl, "rdata": values}
        method = "POST" if there is None else "PUT"
        answer = await self._api.call(method, path, what, body=body, allowed=(404, 409))
        if answer.status >= 400:
            # The set was created, or deleted, since it was read.
            raise EditsConflict(str(self._api.failure(answer, what)))
        return ""

    def _sign(self, method: str, url: str, body: bytes) -> Headers:
        settings = self._settings
        timestamp = self._now().astimezone(UTC).strftime("%Y%m%dT%H:%M:%S+0000")
        unsigned = (
            f"EG1-HMAC-SHA256 client_token={settings.client_token};access_token={settings.access_token};"
            f"timestamp={timestamp};nonce={uuid.uuid4()};"
        )
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        content = ""
        if method == "POST":
            content = base64.b64encode(hashlib.sha256(body[:_SIGNED_BODY]).digest()).decode()
        signed = "\t".join((method, parts.scheme, parts.netloc, target, "", content, unsigned))
        key = _hmac(settings.client_secret, timestamp)
        return (("authorization", f"{unsigned}signature={_hmac(key, signed)}"),)


def _hmac(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()
