"""A fake of Azure DNS, written from the REST API reference (2018-05-01; private zones 2020-06-01), of Azure's
identity service (client credentials) and of the instance metadata service."""

from __future__ import annotations

from aiohttp import web

from support.dns.fake import FakeHost, FakeZone

TENANT, CLIENT, SECRET, SUBSCRIPTION, GROUP = "tenant-1", "client-1", "client-secret", "sub-1", "group-1"
ASSERTION = "federated-token"


class FakeAzure(FakeHost):
    """Public (or private) zones. Tokens are valid until `revoke`."""

    def __init__(self, *zones: str, private: bool = False) -> None:
        super().__init__(*zones)
        self.kind = "privateDnsZones" if private else "dnsZones"
        self.version = "2020-06-01" if private else "2018-05-01"
        self.ttl, self.list = ("ttl", "txtRecords") if private else ("TTL", "TXTRecords")
        self.tokens: set[str] = set()
        self.logins = 0
        self.sets: dict[tuple[str, str], tuple[str, dict[str, object]]] = {}
        self._versions = 0

    def routes(self) -> list[web.RouteDef]:
        zones = (
            f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{{group}}/providers/Microsoft.Network/{self.kind}"
        )
        record = zones + "/{zone}/TXT/{name}"
        return [
            web.post("/{tenant}/oauth2/v2.0/token", self._login),
            web.get("/metadata/identity/oauth2/token", self._identity),
            web.get(zones, self._list),
            web.get(zones + "/{zone}", self._zone),
            web.get(record, self._read),
            web.put(record, self._write),
            web.delete(record, self._delete),
        ]

    def revoke(self) -> None:
        """Accept no token any more that was handed out."""
        self.tokens.clear()

    def refusal(self, request: web.Request) -> web.Response | None:
        if not request.path.startswith("/subscriptions/"):
            return None
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _failure(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if request.query.get("api-version") != self.version:
            return _failure(400, "InvalidApiVersionParameter", "The api-version is invalid.")
        if request.match_info["group"] != GROUP:
            return _failure(404, "ResourceGroupNotFound", "Resource group could not be found.")
        return None

    def _token(self) -> web.Response:
        self.logins += 1
        token = f"azure-token-{self.logins}"
        self.tokens.add(token)
        return web.json_response({"access_token": token, "expires_in": 3599, "token_type": "Bearer"})

    async def _login(self, request: web.Request) -> web.Response:
        form = await request.post()
        right = form.get("client_secret") == SECRET or form.get("client_assertion") == ASSERTION
        if request.match_info["tenant"] != TENANT or form.get("client_id") != CLIENT or not right:
            text = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1"
            return web.json_response({"error": "invalid_client", "error_description": text}, status=401)
        assert form["grant_type"] == "client_credentials"
        assert str(form["scope"]).endswith("/.default")
        return self._token()

    async def _identity(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata") != "true":
            return web.json_response({"error": "invalid_request"}, status=400)
        if request.query.get("client_id", CLIENT) != CLIENT:
            text = "Identity not found"
            return web.json_response({"error": "invalid_request", "error_description": text}, status=400)
        return self._token()

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response({"value": [{"name": name} for name in self.zones]})

    def _zone_of(self, request: web.Request) -> FakeZone | None:
        return self.zones.get(request.match_info["zone"])

    async def _zone(self, request: web.Request) -> web.Response:
        zone = self._zone_of(request)
        if zone is None:
            return _failure(404, "ResourceNotFound", "The Resource was not found.")
        return web.json_response({"name": zone.name})

    def _key(self, request: web.Request) -> tuple[str, str]:
        return request.match_info["zone"], request.match_info["name"]

    async def _read(self, request: web.Request) -> web.Response:
        if self._zone_of(request) is None:
            return _failure(404, "ParentResourceNotFound", "The zone does not exist.")
        record_set = self.sets.get(self._key(request))
        if record_set is None:
            return _failure(404, "NotFound", "The resource record does not exist.")
        return web.json_response({"etag": record_set[0], "properties": record_set[1]})

    def _conflict(self, request: web.Request) -> web.Response | None:
        record_set = self.sets.get(self._key(request))
        given, absent = request.headers.get("If-Match"), request.headers.get("If-None-Match")
        if (given is not None and (record_set is None or record_set[0] != given)) or (
            absent == "*" and record_set is not None
        ):
            return _failure(412, "PreconditionFailed", "The condition set for this operation is not met.")
        return None

    async def _write(self, request: web.Request) -> web.Response:
        zone = self._zone_of(request)
        if zone is None:
            return _failure(404, "ParentResourceNotFound", "The zone does not exist.")
        if (conflict := self._conflict(request)) is not None:
            return conflict
        properties = (await request.json())["properties"]
        if not properties[self.list] or len(properties[self.list]) > 20 or properties[self.ttl] < 1:
            return _failure(400, "BadRequest", "The record set is invalid.")
        self._versions += 1
        self.sets[self._key(request)] = f"etag-{self._versions}", properties
        self._publish(zone, request.match_info["name"], properties[self.list])
        return web.json_response({"etag": f"etag-{self._versions}", "properties": properties}, status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        if (conflict := self._conflict(request)) is not None:
            return conflict
        zone = self._zone_of(request)
        if zone is None or self.sets.pop(self._key(request), None) is None:
            return web.Response(status=204)
        self._publish(zone, request.match_info["name"], [])
        return web.Response(status=200)

    def _publish(self, zone: FakeZone, name: str, records: list[dict[str, list[str]]]) -> None:
        values = ["".join(record["value"]) for record in records]
        zone.records[f"{name}.{zone.name}"] = {str(number): value for number, value in enumerate(values)}

    def add(self, zone: str, name: str, value: str) -> None:
        """A record set of another client."""
        self._versions += 1
        properties = {self.ttl: 300, self.list: [{"value": [value]}], "metadata": {"owner": "others"}}
        self.sets[zone, name] = f"etag-{self._versions}", properties
        self._publish(self.zones[zone], name, [{"value": [value]}])


def _failure(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)
