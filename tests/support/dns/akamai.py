"""A fake of Akamai Edge DNS, written from the API reference "Edge DNS Zone Management v2"; signatures are
checked as "EdgeGrid authentication" describes them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

from aiohttp import web

from support.dns.fake import FakeHost

CLIENT_TOKEN, ACCESS_TOKEN, CLIENT_SECRET = "akab-client", "akab-access", "client-secret="


_AUTHORIZATION = (
    r"EG1-HMAC-SHA256 client_token=(.+?);access_token=(.+?);timestamp=(.+?);nonce=(.+?);signature=(.+)"
)


class FakeAkamai(FakeHost):
    """Zones with TXT record sets; a nonce is accepted once."""

    def __init__(self, *zones: str) -> None:
        super().__init__(*zones)
        self.nonces: set[str] = set()

    def routes(self) -> list[web.RouteDef]:
        record = "/config-dns/v2/zones/{zone}/names/{name}/types/TXT"
        return [
            web.get("/config-dns/v2/zones", self._list),
            web.get("/config-dns/v2/zones/{zone}", self._zone),
            web.get(record, self._read),
            web.post(record, self._create),
            web.put(record, self._update),
            web.delete(record, self._delete),
        ]

    def refusal(self, request: web.Request) -> web.Response | None:
        given = _parsed(request)
        if given is None or given[1] != CLIENT_TOKEN or given[2] != ACCESS_TOKEN or given[4] in self.nonces:
            return web.json_response({"title": "Not authorized"}, status=401)
        self.nonces.add(given[4])
        return None

    async def _signed(self, request: web.Request) -> None:
        given, body = _parsed(request), await request.read()
        assert given is not None
        content = base64.b64encode(hashlib.sha256(body).digest()).decode() if request.method == "POST" else ""
        unsigned = given[0].rpartition("signature=")[0]
        parts = (request.method, request.scheme, request.host, str(request.rel_url), "", content, unsigned)
        key = _mac(CLIENT_SECRET, given[3])
        if not hmac.compare_digest(_mac(key, "\t".join(parts)), given[5]):
            raise web.HTTPUnauthorized(text='{"title": "The signature does not match"}')

    async def _list(self, request: web.Request) -> web.Response:
        await self._signed(request)
        return web.json_response({"zones": [{"zone": name} for name in self.zones]})

    async def _zone(self, request: web.Request) -> web.Response:
        await self._signed(request)
        name = request.match_info["zone"]
        return web.json_response({"zone": name}) if name in self.zones else _missing()

    async def _values(self, request: web.Request) -> dict[str, dict[str, str]]:
        await self._signed(request)
        zone = self.zones.get(request.match_info["zone"])
        if zone is None:
            raise web.HTTPNotFound(text='{"title": "Not Found"}')
        return zone.records

    async def _read(self, request: web.Request) -> web.Response:
        texts = (await self._values(request)).get(request.match_info["name"])
        if not texts:
            return _missing()
        rdata = [f'"{value}"' for value in texts.values()]
        return web.json_response(
            {"name": request.match_info["name"], "type": "TXT", "ttl": 300, "rdata": rdata}
        )

    async def _create(self, request: web.Request) -> web.Response:
        if (await self._values(request)).get(request.match_info["name"]):
            return web.json_response({"title": "Already exists"}, status=409)
        return await self._write(request, 201)

    async def _update(self, request: web.Request) -> web.Response:
        if not (await self._values(request)).get(request.match_info["name"]):
            return _missing()
        return await self._write(request, 200)

    async def _write(self, request: web.Request, status: int) -> web.Response:
        body = await request.json()
        name, zone = request.match_info["name"], self.zones[request.match_info["zone"]]
        assert (body["name"], body["type"]) == (name, "TXT")
        zone.records[name] = {str(n): value.strip('"') for n, value in enumerate(body["rdata"])}
        return web.json_response(body, status=status)

    async def _delete(self, request: web.Request) -> web.Response:
        texts = (await self._values(request)).pop(request.match_info["name"], None)
        return web.Response(status=204) if texts else _missing()


def _parsed(request: web.Request) -> re.Match[str] | None:
    return re.fullmatch(_AUTHORIZATION, request.headers.get("Authorization", ""))


def _mac(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _missing() -> web.Response:
    return web.json_response({"title": "Not Found", "status": 404}, status=404)
