"""Google Cloud DNS: changes are atomic, and name the exact record sets that they replace.

Most names have no other values. So a batch is sent as if the record sets were ours alone, and only after a
conflict the sets are read.

Source: API reference of Cloud DNS, version 1: `managedZones`, `resourceRecordSets`, `changes`; for tokens
"Using OAuth 2.0 for Server to Server Applications", RFC 7523 (JWT bearer), "About VM metadata".
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.api import (
    AccessToken,
    Endpoint,
    HostApi,
    Login,
    oauth_reason,
    reason_at,
)
from certwright.acme.solvers.dns01.hosts.contract import (
    DnsHost,
    Edit,
    EditsConflict,
    EditsTogether,
    HostedZone,
    Outside,
    ZoneGone,
    edited,
    quoted,
    unquoted,
)
from certwright.kit.outgoing import ServerRules
from certwright.pki.errors import BadKey
from certwright.pki.keys import load_private_key

TOKENS: Final = Endpoint("https://oauth2.googleapis.com/token")
"""Where keys are exchanged for tokens, whatever a key file says: its `token_uri` is a tenant's text."""
METADATA: Final = Endpoint("http://metadata.google.internal", ServerRules(allow_http=True))
_SCOPE: Final = "https://www.googleapis.com/auth/ndev.clouddns.readwrite"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFETIME: Final = timedelta(hours=1)
ENDPOINT: Final = Endpoint("https://dns.googleapis.com")
_TTL_S: Final = 60
# Cloud DNS takes 1000 record sets in a change; reading each after a conflict should not take minutes.
_MOST_EDITS: Final = 100
_CONFLICTS: Final = (404, 409, 412)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountKey:
    """The key of a service account, in PEM. `audience` is what the token request is for: Google's token URL,
    also where `tokens` replaces it."""

    email: str
    key_id: str
    key_pem: str = field(repr=False)
    tokens: Endpoint = TOKENS

    async def fetch(self, outside: Outside) -> AccessToken:
        now = int(outside.now().timestamp())
        header = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        claims = {
            "iss": self.email,
            "scope": _SCOPE,
            "aud": TOKENS.url,
            "iat": now,
            "exp": now + int(_LIFETIME.total_seconds()),
        }
        signed = f"{_encoded(msgspec.json.encode(header))}.{_encoded(msgspec.json.encode(claims))}"
        what = "the private_key in the service account's key file"
        try:
            key = load_private_key(self.key_pem.encode())
        except BadKey as error:
            raise SolverError(f"{what} cannot be used: {error}") from error
        if not isinstance(key, rsa.RSAPrivateKey):
            raise SolverError(f"{what} is not an RSA key")
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        form = {"grant_type": _GRANT, "assertion": f"{signed}.{_encoded(signature)}"}
        api = HostApi("Google's token service", self.tokens, outside, explain=oauth_reason)
        fix = "put a valid key of the service account into the Secret"
        return await api.log_in("", form, who=self.email, fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataServer:
    """The service account of the machine or pod (also by workload identity on GKE)."""

    metadata: Endpoint = METADATA

    async def fetch(self, outside: Outside) -> AccessToken:
        api = HostApi("Google's metadata server", self.metadata, outside, explain=oauth_reason)
        what = "get a token of the service account"
        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        headers = (("metadata-flavor", "Google"),)
        answer = await api.call("GET", path, what, query={"scopes": _SCOPE}, headers=headers)
        return api.token(answer, what)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


_reason: Final = reason_at("error", "message")


class _Zone(msgspec.Struct, rename="camel"):
    name: str
    dns_name: str = ""
    visibility: str = "public"


class _Zones(msgspec.Struct, rename="camel"):
    managed_zones: list[_Zone] = msgspec.field(default_factory=list)


class _RecordSet(msgspec.Struct):
    name: str
    type: str = "TXT"
    ttl: int = _TTL_S
    rrdatas: list[str] = msgspec.field(default_factory=list)


class _RecordSets(msgspec.Struct):
    rrsets: list[_RecordSet] = msgspec.field(default_factory=list)


class _Change(msgspec.Struct):
    id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudDnsSettings:
    """`zone` has the name of the managed zone as its ID."""

    project: str
    login: Login
    endpoint: Endpoint = ENDPOINT
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> CloudDns:
        return CloudDns(self, outside)


class CloudDns(DnsHost):
    edits_together = EditsTogether(_MOST_EDITS)

    def __init__(self, settings: CloudDnsSettings, outside: Outside) -> None:
        zones = f"/dns/v1/projects/{quote(settings.project, safe='')}/managedZones"
        self._api = HostApi(
            "Cloud DNS", settings.endpoint, outside, base=zones, login=settings.login, explain=_reason
        )

    async def verify(self) -> None:
        await self._api.call("GET", "", "list the managed zones", query={"maxResults": "1"})

    async def find_zone(self, name: str) -> HostedZone | None:
        """See `DnsHost`. A private zone is not visible to a CA."""
        what = f"find the zone {name}"
        answer = await self._api.call("GET", "", what, query={"dnsName": f"{name}."})
        zones = self._api.parse(answer, _Zones, what).managed_zones
        public = [zone for zone in zones if zone.visibility == "public" and zone.dns_name == f"{name}."]
        return HostedZone(name, public[0].name) if public else None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        additions, removals = _alone(edits)
        change = await self._send(zone, additions, removals)
        if change is None:
            additions, removals = await self._read(zone, edits)
            if not additions and not removals:
                return ""
            change = await self._send(zone, additions, removals)
        if change is None:
            raise EditsConflict("Cloud DNS: another client has changed the same TXT records")
        return "" if change.status == "done" else f"{zone.id}/{change.id}"

    async def is_pending(self, change: str) -> bool:
        zone, _, number = change.rpartition("/")
        what = "report the state of a change"
        answer = await self._api.call(
            "GET", f"/{quote(zone, safe='')}/changes/{quote(number, safe='')}", what
        )
        return self._api.parse(answer, _Change, what).status != "done"

    async def _send(
        self, zone: HostedZone, additions: Sequence[_RecordSet], removals: Sequence[_RecordSet]
    ) -> _Change | None:
        """Send a change; None: the record sets are not what it expects."""
        names = sorted({record_set.name.rstrip(".") for record_set in (*additions, *removals)})
        what = f"change the TXT records {', '.join(names)}"
        body: dict[str, Any] = {"additions": additions, "deletions": removals}
        path = f"/{quote(zone.id, safe='')}/changes"
        answer = await self._api.call("POST", path, what, body=body, allowed=_CONFLICTS)
        if answer.status < 300:
            return self._api.parse(answer, _Change, what)
        if answer.status == 404 and "managedZone" in _reason(answer):
            raise ZoneGone(str(self._api.failure(answer, what)))
        return None

    async def _read(
        self, zone: HostedZone, edits: Sequence[Edit]
    ) -> tuple[list[_RecordSet], list[_RecordSet]]:
        """Additions and removals for the record sets as they are now."""
        additions, removals = [], []
        for name in dict.fromkeys(edit.name for edit in edits):
            what = f"read the TXT record {name}"
            path = f"/{quote(zone.id, safe='')}/rrsets"
            query = {"name": f"{name}.", "type": "TXT"}
            answer = await self._api.call("GET", path, what, query=query, gone=(404,))
            record_sets = self._api.parse(answer, _RecordSets, what).rrsets
            there = next(
                (record for record in record_sets if record.type == "TXT" and record.name == f"{name}."), None
            )
            before = there.rrdatas if there is not None else []
            values = edited(before, name, edits, make=quoted, value_of=unquoted)
            if values == before:
                continue
            if there is not None:
                removals.append(there)
            if values:
                ttl = there.ttl if there is not None else _TTL_S
                additions.append(_RecordSet(f"{name}.", ttl=ttl, rrdatas=values))
        return additions, removals


def _alone(edits: Sequence[Edit]) -> tuple[list[_RecordSet], list[_RecordSet]]:
    """Additions and removals if the record sets contain nothing but these values."""
    additions: dict[str, list[str]] = {}
    removals: dict[str, list[str]] = {}
    for edit in edits:
        values = (additions if edit.adds else removals).setdefault(edit.name, [])
        if quoted(edit.value) not in values:
            values.append(quoted(edit.value))
    return (
        [_RecordSet(f"{name}.", rrdatas=values) for name, values in additions.items()],
        [_RecordSet(f"{name}.", rrdatas=values) for name, values in removals.items()],
    )
