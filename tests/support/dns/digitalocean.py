"""A fake of DigitalOcean's API, written from its API reference: domains, domain records, errors, pages."""

from __future__ import annotations

from aiohttp import web

from support.dns.fake import FakeHost, FakeZone

TOKEN = "dop_v1_token"


class FakeDigitalOcean(FakeHost):
    """Domains and TXT records. `page` is the largest number of records in an answer."""

    page = 200

    def routes(self) -> list[web.RouteDef]:
        records = "/v2/domains/{zone}/records"
        return [
            web.get("/v2/domains", self._domains),
            web.get("/v2/domains/{zone}", self._domain),
            web.get(records, self._list),
            web.post(records, self._create),
            web.delete(records + "/{record}", self._delete),
        ]

    def refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") == f"Bearer {TOKEN}":
            return None
        return _failure(401, "Unauthorized", "Unable to authenticate you")

    def new_id(self) -> str:
        return super().new_id().removeprefix("id-")

    async def _domains(self, _request: web.Request) -> web.Response:
        return web.json_response({"domains": [{"name": name} for name in self.zones]})

    def _zone(self, request: web.Request) -> FakeZone | None:
        return self.zones.get(request.match_info["zone"])

    async def _domain(self, request: web.Request) -> web.Response:
        zone = self._zone(request)
        return _missing() if zone is None else web.json_response({"domain": {"name": zone.name}})

    async def _list(self, request: web.Request) -> web.Response:
        zone, query = self._zone(request), request.query
        if zone is None:
            return _missing()
        # Without a filter the real list is paged and easily incomplete.
        assert query["type"] == "TXT"
        entries = list(zone.records.get(query["name"], {}).items())
        number, size = int(query.get("page", "1")), min(int(query.get("per_page", "20")), self.page)
        shown = entries[(number - 1) * size : number * size]
        pages = (
            {"next": f"{self.url}/v2/domains/x/records?page={number + 1}"}
            if number * size < len(entries)
            else {}
        )
        relative = query["name"].removesuffix(f".{zone.name}")
        records = [
            {"id": int(identifier), "type": "TXT", "name": relative, "data": value}
            for identifier, value in shown
        ]
        return web.json_response({"domain_records": records, "links": {"pages": pages}})

    async def _create(self, request: web.Request) -> web.Response:
        zone, record = self._zone(request), await request.json()
        if zone is None:
            return _missing()
        if record["ttl"] < 30:
            return _failure(422, "unprocessable_entity", "TTL must be at least 30")
        name = f"{record['name']}.{zone.name}"
        number = self.new_id()
        zone.records.setdefault(name, {})[number] = record["data"]
        return web.json_response({"domain_record": {**record, "id": int(number)}}, status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        zone = self._zone(request)
        for values in zone.records.values() if zone is not None else ():
            if values.pop(request.match_info["record"], None) is not None:
                return web.Response(status=204)
        return _missing()


def _missing() -> web.Response:
    return _failure(404, "not_found", "The resource you were accessing could not be found.")


def _failure(status: int, name: str, message: str) -> web.Response:
    return web.json_response({"id": name, "message": message}, status=status)
