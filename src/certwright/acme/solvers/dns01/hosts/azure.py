"""Azure DNS, public and private zones: all values of a name are one record set, with an ETag.

Source: REST API reference of "Azure DNS" (2018-05-01) and "Private DNS" (2020-06-01); for tokens
"OAuth 2.0 client credentials flow" of the Microsoft identity platform, "How managed identities work".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import msgspec

from certwright.acme.solvers.dns01.hosts.api import (
    AccessToken,
    Endpoint,
    Headers,
    HostApi,
    Login,
    failure_in,
    oauth_reason,
)
from certwright.acme.solvers.dns01.hosts.contract import (
    CredentialsRejected,
    DnsHost,
    Edit,
    EditsConflict,
    EditsTogether,
    HostedZone,
    Outside,
    ZoneGone,
    edited,
)
from certwright.kit.outgoing import HttpAnswer, ServerRules

METADATA: Final = Endpoint("http://169.254.169.254", ServerRules(allow_http=True))
"""The instance metadata service, a link-local address of each machine in Azure."""
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TTL_S: Final = 60
# Azure's limit of records in a set.
_MOST_EDITS: Final = 20
_JUDGED: Final = (404, 409, 412)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePrincipal:
    """A client with a `secret`, or with the `assertion` of a federated identity (a ServiceAccount's token).

    `authority` is the identity service of the cloud, `resource` the URL of its resource manager.
    """

    authority: Endpoint
    tenant: str
    client_id: str
    resource: str
    secret: str = field(default="", repr=False)
    assertion: str = field(default="", repr=False)

    async def fetch(self, outside: Outside) -> AccessToken:
        if self.assertion:
            proof = {"client_assertion_type": _ASSERTION, "client_assertion": self.assertion}
        else:
            proof = {"client_secret": self.secret}
        form = {
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "scope": f"{self.resource.rstrip('/')}/.default",
            **proof,
        }
        api = HostApi("Azure's identity service", self.authority, outside, explain=oauth_reason)
        path = f"/{quote(self.tenant, safe='')}/oauth2/v2.0/token"
        fix = "correct clientID, tenantID or the client secret"
        return await api.log_in(path, form, who=f"the client {self.client_id}", fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedIdentity:
    """The identity of the machine or pod: the one with this client or resource ID, or the only one."""

    resource: str
    client_id: str = ""
    resource_id: str = ""
    metadata: Endpoint = METADATA

    async def fetch(self, outside: Outside) -> AccessToken:
        query = {"api-version": "2018-02-01", "resource": self.resource}
        if self.client_id:
            query["client_id"] = self.client_id
        if self.resource_id:
            query["msi_res_id"] = self.resource_id
        api = HostApi("Azure's metadata service", self.metadata, outside, explain=oauth_reason)
        what = "get a token of the managed identity"
        path, headers = "/metadata/identity/oauth2/token", (("metadata", "true"),)
        answer = await api.call("GET", path, what, query=query, headers=headers, allowed=(400,))
        if answer.status == 400:
            raise CredentialsRejected(
                f"{api.failure(answer, what)}; assign the identity to this machine, or correct "
                "managedIdentity"
            )
        return api.token(answer, what)


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
    login: Login
    endpoint: Endpoint
    is_private: bool = False
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> Azure:
        return Azure(self, outside)


class Azure(DnsHost):
    edits_together = EditsTogether(_MOST_EDITS, of_one_name=True)

    def __init__(self, settings: AzureSettings, outside: Outside) -> None:
        self._kind = _PRIVATE if settings.is_private else _PUBLIC
        group = (
            f"/subscriptions/{quote(settings.subscription, safe='')}"
            f"/resourceGroups/{quote(settings.resource_group, safe='')}"
            f"/providers/Microsoft.Network/{self._kind.zones}"
        )
        self._api = HostApi(
            "Azure DNS", settings.endpoint, outside, base=group, login=settings.login, explain=_reason
        )

    async def verify(self) -> None:
        await self._call("GET", "", "list the zones", query={"$top": "1"})

    async def find_zone(self, name: str) -> HostedZone | None:
        path = f"/{quote(name, safe='')}"
        answer = await self._call("GET", path, f"find the zone {name}", allowed=(404,))
        if answer.status != 404:
            return HostedZone(name, name)
        if _code(answer) in ("ResourceGroupNotFound", "SubscriptionNotFound"):
            raise self._api.failure(answer, f"find the zone {name}")
        return None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        name = edits[0].name
        what = f"change the TXT record {name}"
        relative = name.removesuffix(f".{zone.name}") if name != zone.name else "@"
        path = f"/{quote(zone.id, safe='')}/TXT/{quote(relative, safe='')}"
        there = await self._read(path, what)
        before: list[dict[str, Any]] = there.properties.get(self._kind.records, []) if there else []
        after = edited(before, name, edits, make=_record, value_of=_value_of)
        if after == before:
            return ""
        condition = (("if-match", there.etag),) if there else (("if-none-match", "*"),)
        if after:
            # Properties that are not changed, e.g. metadata, are kept.
            kept = there.properties if there else {self._kind.ttl: _TTL_S}
            writable = {key: kept[key] for key in (self._kind.ttl, "metadata") if key in kept}
            body = {"properties": {**writable, self._kind.records: after}}
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
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Headers = (),
        allowed: Collection[int] = (),
    ) -> HttpAnswer:
        query = {"api-version": self._kind.version, **(query or {})}
        return await self._api.call(
            method, path, what, query=query, body=body, headers=headers, allowed=allowed
        )


def _record(value: str) -> dict[str, Any]:
    return {"value": [value]}


def _value_of(record: dict[str, Any]) -> str:
    return "".join(record.get("value", ()))


def _answer(answer: HttpAnswer) -> _Failure:
    body = failure_in(answer, _Answer)
    return body.error if body.error.code else _Failure(body.code, body.message)


def _code(answer: HttpAnswer) -> str:
    return _answer(answer).code


def _reason(answer: HttpAnswer) -> str:
    failure = _answer(answer)
    return f"{failure.code}: {failure.message}" if failure.code else ""
