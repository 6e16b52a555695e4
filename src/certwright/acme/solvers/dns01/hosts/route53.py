"""AWS Route 53: one record for each value, by multivalue answer routing.

A batch of changes is atomic. The batch is sent as if no name had other records; existing records are read
only if AWS refuses it. A simple record, with all values of a name, allows no record beside it: a record with
the changed values replaces it, on condition that it is unchanged.

Source: Amazon Route 53 API reference, version 2013-04-01; Developer Guide, "Multivalue answer routing".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlencode
from xml.sax.saxutils import escape

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.contract import (
    DEFAULT_PAUSE,
    CredentialsRejected,
    DnsHost,
    Edit,
    EditsConflict,
    EditsTogether,
    HostedZone,
    NotPermitted,
    Outside,
    Throttled,
    ZoneGone,
    edited,
    quoted,
    unquoted,
)
from certwright.kit.aws.errors import AwsDenied, AwsError, AwsRefused, AwsThrottled
from certwright.kit.aws.service import (
    DEFAULT_REGION,
    Answer,
    AwsEndpoint,
    AwsRequest,
    AwsService,
    AwsTools,
    CredentialCache,
    CredentialSource,
    domain_of,
    text_of,
)

_API: Final = "/2013-04-01"
_NAMESPACE: Final = "https://route53.amazonaws.com/doc/2013-04-01/"
_TTL_S: Final = 10
"""As cert-manager's, whose records may be at the same name."""
_MOST_EDITS: Final = 100
"""Route 53 takes 1000 records in a batch, of which an UPSERT counts twice."""
_NO_PERMISSION: Final = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
_FIRST_PAUSE: Final = timedelta(seconds=1)
"""Route 53 takes five requests in a second from an account. The pause doubles up to `DEFAULT_PAUSE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route53Settings:
    """`zone` has the ID of the hosted zone, and no name: Route 53 takes whole names."""

    source: CredentialSource
    endpoint: AwsEndpoint
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> Route53:
        return Route53(self, outside)


def endpoint_in(region: str) -> AwsEndpoint:
    """The endpoint of the partition of a region; a global service has one region in each."""
    if region.startswith("cn-"):
        return AwsEndpoint(f"https://route53.{domain_of(region)}", "cn-northwest-1")
    if region.startswith("us-gov-"):
        return AwsEndpoint("https://route53.us-gov.amazonaws.com", "us-gov-west-1")
    if domain_of(region) != "amazonaws.com":
        return AwsEndpoint(f"https://route53.{domain_of(region)}", region)
    return AwsEndpoint("https://route53.amazonaws.com", DEFAULT_REGION)


@dataclass(frozen=True, slots=True)
class _Record:
    """A record of the type TXT. `identifier` is empty for a simple one."""

    name: str
    values: tuple[str, ...]
    ttl: int = _TTL_S
    identifier: str = ""
    is_multivalue: bool = True


class _BatchRefused(SolverError):
    """The records are not what the changes expect, or do not allow them."""


@dataclass(frozen=True, slots=True)
class _Change:
    action: str
    record: _Record


class Route53(DnsHost):
    edits_together = EditsTogether(_MOST_EDITS)

    def __init__(self, settings: Route53Settings, outside: Outside) -> None:
        self._service = AwsService("route53", "Route 53", settings.endpoint)
        self._tools = AwsTools(outside.client, outside.now)
        self._credentials = CredentialCache(settings.source, self._tools)
        self._zone = settings.zone
        self._now = outside.now
        self._pause = _FIRST_PAUSE

    async def verify(self) -> None:
        # With the permission that is needed next.
        what, path = "list the hosted zones", "/hostedzonesbyname"
        if self._zone is not None:
            what, path = "list the records of the hosted zone", f"{_path(self._zone)}/rrset"
        await self._get(path, {"maxitems": "1"}, what)

    async def find_zone(self, name: str) -> HostedZone | None:
        """See `DnsHost`. A private zone is not visible to a CA."""
        what = f"find the hosted zone {name}"
        query = {"dnsname": name}
        while True:
            answer = await self._get("/hostedzonesbyname", query, what)
            for zone in answer.all("HostedZones/HostedZone"):
                is_public = text_of(zone, "Config/PrivateZone").lower() != "true"
                if is_public and _same(text_of(zone, "Name"), name):
                    return HostedZone(name, text_of(zone, "Id").rpartition("/")[2])
            # Zones are sorted by name, and a name may have many private ones.
            if not _is_truncated(answer) or not _same(answer.find("NextDNSName"), name):
                return None
            query = {"dnsname": name, "hostedzoneid": answer.find("NextHostedZoneId")}

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        """See `DnsHost`. Several changes have their IDs joined by commas."""
        edits = list({(edit.name, edit.value): edit for edit in edits}.values())
        changes = [_alone(edit) for edit in edits]
        try:
            return await self._send(zone, changes)
        except _BatchRefused as error:
            refused = error
        names = list(dict.fromkeys(edit.name for edit in edits))
        if len(names) > 1:
            # Most names are not to blame: fewer requests than reading the records of each.
            first = set(names[: len(names) // 2])
            parts = [
                [edit for edit in edits if (edit.name in first) == is_first] for is_first in (True, False)
            ]
            return ",".join(filter(None, [await self.apply(zone, part) for part in parts]))
        needed = _needed(await self._read(zone, names[0]), edits)
        if needed == changes:
            raise refused
        try:
            return await self._send(zone, needed) if needed else ""
        except _BatchRefused as error:
            raise EditsConflict(str(error)) from error

    async def is_pending(self, change: str) -> bool:
        for change_id in change.split(","):
            path, what = f"/change/{quote(change_id, safe='')}", "report the state of a change"
            answer = await self._get(path, {}, what, allowed=("NoSuchChange",))
            if answer.find("ChangeInfo/Status") == "PENDING":
                return True
        return False

    async def _read(self, zone: HostedZone, name: str) -> list[_Record]:
        what, records = f"read the TXT records of {name}", []
        query = {"name": f"{name}.", "type": "TXT"}
        while True:
            answer = await self._get(f"{_path(zone)}/rrset", query, what)
            for record_set in answer.all("ResourceRecordSets/ResourceRecordSet"):
                if _same(text_of(record_set, "Name"), name) and text_of(record_set, "Type") == "TXT":
                    ttl = text_of(record_set, "TTL")
                    values = record_set.findall("{*}ResourceRecords/{*}ResourceRecord")
                    records.append(
                        _Record(
                            name,
                            tuple(text_of(value, "Value") for value in values),
                            int(ttl) if ttl.isdecimal() else _TTL_S,
                            text_of(record_set, "SetIdentifier"),
                            text_of(record_set, "MultiValueAnswer").lower() == "true",
                        )
                    )
            is_more = _is_truncated(answer) and _same(answer.find("NextRecordName"), name)
            if not is_more or answer.find("NextRecordType") != "TXT":
                return records
            query["identifier"] = answer.find("NextRecordIdentifier")

    async def _send(self, zone: HostedZone, changes: Sequence[_Change]) -> str:
        """Send a batch. Returns its ID if it is pending. Raises `_BatchRefused`, `SolverError`."""
        names = sorted({change.record.name for change in changes})
        what = f"change the TXT records {', '.join(names[:5])}" + (", …" if len(names) > 5 else "")
        content = "".join(
            f"<Change><Action>{change.action}</Action>{_element(change.record)}</Change>"
            for change in changes
        )
        body = (
            f'<?xml version="1.0" encoding="UTF-8"?><ChangeResourceRecordSetsRequest xmlns="{_NAMESPACE}">'
            f"<ChangeBatch><Changes>{content}</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
        )
        headers = (("content-type", "text/xml"),)
        request = AwsRequest("POST", f"{_API}{_path(zone)}/rrset/", headers, body.encode())
        answer = await self._call(request, what, ("InvalidChangeBatch",))
        if answer.code:
            raise _BatchRefused(str(self._service.failure(answer, what)))
        is_pending = answer.find("ChangeInfo/Status") == "PENDING"
        return answer.find("ChangeInfo/Id").rpartition("/")[2] if is_pending else ""

    async def _get(
        self, path: str, query: dict[str, str], what: str, *, allowed: Collection[str] = ()
    ) -> Answer:
        url = f"{_API}{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        return await self._call(AwsRequest("GET", url), what, allowed)

    async def _call(self, request: AwsRequest, what: str, allowed: Collection[str]) -> Answer:
        try:
            answer = await self._send_signed(request, what, allowed)
        except AwsThrottled as error:
            pause, self._pause = self._pause, min(2 * self._pause, DEFAULT_PAUSE)
            raise Throttled(str(error), self._now() + pause) from error
        except AwsDenied as error:
            if error.code in _NO_PERMISSION:
                raise NotPermitted(f"{error}; give the identity that permission") from error
            raise CredentialsRejected(f"{error}; the credentials are wrong or have expired") from error
        except AwsRefused as error:
            kind = ZoneGone if error.code == "NoSuchHostedZone" else SolverError
            raise kind(str(error)) from error
        except AwsError as error:
            raise SolverError(str(error)) from error
        self._pause = _FIRST_PAUSE
        return answer

    async def _send_signed(self, request: AwsRequest, what: str, allowed: Collection[str]) -> Answer:
        credentials = await self._credentials.get()
        try:
            return await self._service.call(request, what, self._tools, credentials, allowed=allowed)
        except AwsDenied as error:
            # A session may be revoked before it expires.
            if not credentials.session_token or error.code in _NO_PERMISSION:
                raise
            self._credentials.forget(credentials)
        credentials = await self._credentials.get()
        return await self._service.call(request, what, self._tools, credentials, allowed=allowed)


def _alone(edit: Edit) -> _Change:
    """The change if no simple record is at the name."""
    value = quoted(edit.value)
    return _Change("UPSERT" if edit.adds else "DELETE", _Record(edit.name, (value,), identifier=value))


def _needed(records: Sequence[_Record], edits: Sequence[Edit]) -> list[_Change]:
    """The changes for the edits of a name with these records. Raises `SolverError`."""
    name = edits[0].name
    simple = next((record for record in records if not record.identifier and record.values), None)
    if simple is not None:
        values = tuple(edited(simple.values, name, edits, make=quoted, value_of=unquoted))
        if values == simple.values:
            return []
        # The deletion fails unless the record is still what was read.
        changes = [_Change("DELETE", simple)]
        if values:
            changes.append(_Change("CREATE", _Record(simple.name, values, simple.ttl)))
        return changes
    if not all(record.is_multivalue for record in records) and any(edit.adds for edit in edits):
        raise SolverError(
            f"the TXT records of {name} in Route 53 are an alias, or have a routing policy other than simple "
            "or multivalue answer; remove them"
        )
    changes = []
    for edit in edits:
        value = (quoted(edit.value),)
        there = [record for record in records if record.is_multivalue and record.values == value]
        if edit.adds and not there:
            changes.append(_alone(edit))
        elif not edit.adds:
            changes += [_Change("DELETE", record) for record in there]
    return changes


def _element(record: _Record) -> str:
    routing = ""
    if record.identifier:
        identifier = escape(record.identifier)
        routing = f"<SetIdentifier>{identifier}</SetIdentifier><MultiValueAnswer>true</MultiValueAnswer>"
    values = "".join(
        f"<ResourceRecord><Value>{escape(value)}</Value></ResourceRecord>" for value in record.values
    )
    return (
        f"<ResourceRecordSet><Name>{escape(record.name)}.</Name><Type>TXT</Type>{routing}"
        f"<TTL>{record.ttl}</TTL><ResourceRecords>{values}</ResourceRecords></ResourceRecordSet>"
    )


def _path(zone: HostedZone) -> str:
    return f"/hostedzone/{quote(zone.id, safe='')}"


def _same(shown: str, name: str) -> bool:
    return shown.rstrip(".").lower() == name.lower()


def _is_truncated(answer: Answer) -> bool:
    return answer.find("IsTruncated").lower() == "true"
