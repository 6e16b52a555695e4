"""A fake of Cloudflare's API, written from its API reference (zones, dns_records, error codes) and from the
error bodies that its users publish."""

from __future__ import annotations

import json

from aiohttp import web

from support.dns.fake import FakeHost, FakeZone

TOKEN = "cloudflare-token"
EMAIL, KEY = "owner@example.org", "cloudflare-key"


class FakeCloudflare(FakeHost):
    """Zones and TXT records. `page` is the largest number of records in an answer."""

    page = 100

    def routes(self) -> list[web.RouteDef]:
        records = "/zones/{zone}/dns_records"
        return [
            web.get("/zones", self._zones),
            web.get(records, self._list),
            web.post(records, self._create),
            web.delete(records + "/{record}", self._delete),
        ]

    def refusal(self, request: web.Request) -> web.Response | None:
        given = request.headers
        if "Authorization" in given:
            is_right = given["Authorization"] == f"Bearer {TOKEN}"
        else:
            is_right = (given.get("X-Auth-Email"), given.get("X-Auth-Key")) == (EMAIL, KEY)
        return None if is_right else _failure(403, 9109, "Invalid access token")

    async def _zones(self, request: web.Request) -> web.Response:
        name = request.query.get("name")
        zones = [zone for zone in self.zones.values() if name is None or zone.name == name]
        if request.query.get("page", "1") != "1":
            zones = []
        return _success([{"id": zone.id, "name": zone.name} for zone in zones])

    def _zone(self, request: web.Request) -> FakeZone:
        for zone in self.zones.values():
            if zone.id == request.match_info["zone"]:
                return zone
        raise web.HTTPNotFound(
            text=_errors(7003, "Could not route to the zone, perhaps your object identifier is invalid?"),
            content_type="application/json",
        )

    async def _list(self, request: web.Request) -> web.Response:
        zone, query = self._zone(request), request.query
        assert query["type"] == "TXT"
        number = int(query.get("page", "1"))
        size = min(int(query.get("per_page", "100")), self.page)
        # Their client filters by `name.exact`, of which `name` is the short form.
        name = query["name"] if "name" in query else query["name.exact"]
        records = list(zone.records.get(name, {}).items())
        shown = records[(number - 1) * size : number * size]
        return _success(
            [
                {"id": identifier, "type": "TXT", "name": name, "content": f'"{value}"'}
                for identifier, value in shown
            ],
            pages=max(1, -(-len(records) // size)),
        )

    async def _create(self, request: web.Request) -> web.Response:
        zone, record = self._zone(request), await request.json()
        name, content = record["name"], record["content"]
        if record["type"] != "TXT" or not 60 <= record["ttl"] <= 86400:
            return _failure(400, 9005, "Content for TXT record is invalid.")
        if not name.endswith(f".{zone.name}"):
            # As the real API does: a name outside the zone becomes a name within it.
            name = f"{name}.{zone.name}"
        there = zone.records.setdefault(name, {})
        value = content.strip('"')
        if value in there.values():
            return _failure(400, 81058, "An identical record already exists.")
        there[number := self.new_id()] = value
        return _success({"id": number, "type": "TXT", "name": name, "content": content})

    async def _delete(self, request: web.Request) -> web.Response:
        number = request.match_info["record"]
        for values in self._zone(request).records.values():
            if values.pop(number, None) is not None:
                return _success({"id": number})
        return _failure(404, 81044, "Record does not exist.")


def _success(result: object, pages: int = 1) -> web.Response:
    return web.json_response(
        {
            "success": True,
            "errors": [],
            "messages": [],
            "result": result,
            "result_info": {"total_pages": pages},
        }
    )


def _errors(code: int, message: str) -> str:
    return json.dumps(
        {"success": False, "errors": [{"code": code, "message": message}], "messages": [], "result": None}
    )


def _failure(status: int, code: int, message: str) -> web.Response:
    return web.Response(status=status, text=_errors(code, message), content_type="application/json")
