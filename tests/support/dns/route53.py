"""A proxy before ministack that is as strict as Route 53, written from the API reference: a simple record and
one with a routing policy exclude each other at a name, and a name lies within its zone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from xml.etree import ElementTree

import aiohttp
from aiohttp import web

from support.dns.fake import FakeHost, FakeZone
from support.ministack import Aws

_NAMESPACE = "https://route53.amazonaws.com/doc/2013-04-01/"


class StrictRoute53(FakeHost):
    """Zones of ministack. What ministack answers is passed on; `zones` has the records that it accepted, by
    their set identifiers. `publish` is called with the values of each name that was changed."""

    publish: Callable[[str, Sequence[str]], Awaitable[None]] | None = None

    def __init__(self, aws: Aws, *zones: str) -> None:
        super().__init__()
        self.aws = aws
        self.zones = {name: FakeZone(aws.make_zone(name), name) for name in zones}

    def routes(self) -> list[web.RouteDef]:
        zones = "/2013-04-01/hostedzone"
        return [
            web.get(f"{zones}sbyname", self._pass_on),
            web.get(zones + "/{zone}/rrset", self._pass_on),
            web.post(zones + "/{zone}/rrset/", self._change),
            web.get("/2013-04-01/change/{change}", self._pass_on),
            web.post("/", self._pass_on),
        ]

    def refusal(self, request: web.Request) -> web.Response | None:
        return None  # ministack checks signatures, with the host that was signed.

    async def _pass_on(self, request: web.Request) -> web.Response:
        # The path as it was sent, because it is signed.
        url = self.aws.url + request.raw_path
        async with (
            aiohttp.ClientSession(auto_decompress=False) as client,
            client.request(
                request.method, url, data=await request.read() or None, headers=_headers(request.headers)
            ) as answer,
        ):
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                content_type=answer.content_type,
            )

    async def _change(self, request: web.Request) -> web.Response:
        zone = next((zone for zone in self.zones.values() if zone.id == request.match_info["zone"]), None)
        if zone is None:
            return await self._pass_on(request)
        records = {name: dict(values) for name, values in zone.records.items()}
        for change in ElementTree.fromstring(await request.read()).iterfind(".//{*}Change"):  # noqa: S314
            name = (change.findtext("{*}ResourceRecordSet/{*}Name") or "").rstrip(".")
            identifier = change.findtext("{*}ResourceRecordSet/{*}SetIdentifier") or ""
            there = records.setdefault(name, {})
            if change.findtext("{*}Action") == "DELETE":
                there.pop(identifier, None)
                continue
            if not f".{name}".endswith(f".{zone.name}"):
                return _invalid(f"RRSet with DNS name {name}. is not permitted in zone {zone.name}.")
            if any(bool(identifier) != bool(other) for other in there):
                kind = "multivalue answer" if identifier else "simple"
                return _invalid(f"{name}. TXT cannot be {kind}: a record of another kind exists")
            values = change.iterfind("{*}ResourceRecordSet/{*}ResourceRecords/{*}ResourceRecord/{*}Value")
            there[identifier] = " ".join((value.text or "") for value in values)
        answer = await self._pass_on(request)
        if answer.status == 200:
            before, zone.records = zone.records, records
            for name in [key for key in records if records[key] != before.get(key)]:
                if self.publish is not None:
                    await self.publish(name, list(records[name].values()))
        return answer

    def values(self, name: str) -> set[str]:
        """The TXT values in ministack."""
        texts: set[str] = set()
        for zone in self.zones.values():
            path = f"/2013-04-01/hostedzone/{zone.id}/rrset?name={name}.&type=TXT"
            for record in self.aws.call("route53", "GET", path).iterfind(".//{*}ResourceRecordSet"):
                if record.findtext("{*}Name") == f"{name}." and record.findtext("{*}Type") == "TXT":
                    texts |= {(value.text or "").strip('"') for value in record.iterfind(".//{*}Value")}
        return texts

    def write(self, zone: str, name: str, *values: str, action: str = "CREATE", policy: str = "") -> None:
        """A record of another client, simple unless its elements of a routing policy are given."""
        owner = self.zones[zone]
        content = "".join(f'<ResourceRecord><Value>"{value}"</Value></ResourceRecord>' for value in values)
        body = (
            f'<ChangeResourceRecordSetsRequest xmlns="{_NAMESPACE}"><ChangeBatch><Changes><Change>'
            f"<Action>{action}</Action><ResourceRecordSet><Name>{name}.</Name><Type>TXT</Type>{policy}"
            f"<TTL>300</TTL><ResourceRecords>{content}</ResourceRecords></ResourceRecordSet></Change>"
            "</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
        )
        self.aws.call("route53", "POST", f"/2013-04-01/hostedzone/{owner.id}/rrset/", body.encode())
        owner.records.setdefault(name, {})["policy" if policy else ""] = " ".join(values)


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in ("content-length", "accept-encoding")
    }


def _invalid(text: str) -> web.Response:
    body = (
        f'<?xml version="1.0"?><InvalidChangeBatch xmlns="{_NAMESPACE}"><Messages><Message>{text}</Message>'
        "</Messages><RequestId>1</RequestId></InvalidChangeBatch>"
    )
    return web.Response(status=400, text=body, content_type="text/xml")
