"""A fake of Google Cloud DNS, written from its API reference (managedZones, resourceRecordSets, changes), of
the token service (RFC 7523) and of the metadata server."""

from __future__ import annotations

import base64
import json
from typing import Any

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from support.dns.fake import FakeHost, FakeZone

PROJECT, EMAIL, KEY_ID = "project-1", "certs@project-1.iam.gserviceaccount.com", "key-1"


class FakeCloudDns(FakeHost):
    """Public zones. Every change is pending once, when it is asked about, and done afterwards."""

    def __init__(self, *zones: str) -> None:
        super().__init__(*zones)
        self.key = rsa.generate_private_key(65537, 2048)
        self.tokens: set[str] = set()
        self.sets: dict[tuple[str, str], dict[str, Any]] = {}
        self.changes: dict[str, int] = {}

    @property
    def key_file(self) -> dict[str, str]:
        """The key file of the service account, with a `token_uri` that no client should follow."""
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "client_email": EMAIL,
            "private_key_id": KEY_ID,
            "private_key": pem.decode(),
            "token_uri": "https://attacker.example/token",
        }

    def routes(self) -> list[web.RouteDef]:
        zones = f"/dns/v1/projects/{PROJECT}/managedZones"
        return [
            web.post("/token", self._exchange),
            web.get("/computeMetadata/v1/instance/service-accounts/default/token", self._metadata),
            web.get(zones, self._list),
            web.get(zones + "/{zone}/rrsets", self._record_sets),
            web.post(zones + "/{zone}/changes", self._change),
            web.get(zones + "/{zone}/changes/{change}", self._state),
        ]

    def refusal(self, request: web.Request) -> web.Response | None:
        if not request.path.startswith("/dns/"):
            return None
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _failure(401, "Request had invalid authentication credentials.")
        return None

    def _token(self) -> web.Response:
        token = f"google-{self.new_id()}"
        self.tokens.add(token)
        return web.json_response({"access_token": token, "expires_in": 3599, "token_type": "Bearer"})

    async def _exchange(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        signed, _, signature = str(form["assertion"]).rpartition(".")
        header, claims = (json.loads(_decoded(part)) for part in signed.split("."))
        try:
            self.key.public_key().verify(
                _decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            body = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
            return web.json_response(body, status=400)
        assert header == {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        assert claims["iss"] == EMAIL
        assert claims["aud"] == "https://oauth2.googleapis.com/token"
        assert claims["exp"] - claims["iat"] <= 3600
        assert "clouddns.readwrite" in claims["scope"]
        return self._token()

    async def _metadata(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        return self._token()

    async def _list(self, request: web.Request) -> web.Response:
        name = request.query.get("dnsName", "").rstrip(".")
        zones = [zone for zone in self.zones.values() if name in ("", zone.name)]
        shown = [{"name": zone.id, "dnsName": f"{zone.name}.", "visibility": "public"} for zone in zones]
        private = [
            {"name": f"private-{zone['name']}", "dnsName": zone["dnsName"], "visibility": "private"}
            for zone in shown
        ]
        return web.json_response({"managedZones": [*private, *shown]} if shown else {})

    def _zone(self, request: web.Request) -> FakeZone:
        for zone in self.zones.values():
            if zone.id == request.match_info["zone"]:
                return zone
        body = _error(
            404, f"The 'parameters.managedZone' resource named '{request.match_info['zone']}' does not exist."
        )
        raise web.HTTPNotFound(text=json.dumps(body), content_type="application/json")

    async def _record_sets(self, request: web.Request) -> web.Response:
        zone, wanted_name = self._zone(request), request.query.get("name")
        rrsets = [
            rrset
            for (owner, name), rrset in self.sets.items()
            if owner == zone.id and wanted_name in (None, name)
        ]
        return web.json_response({"rrsets": rrsets})

    async def _change(self, request: web.Request) -> web.Response:
        zone, change = self._zone(request), await request.json()
        kept = dict(self.sets)
        for number, rrset in enumerate(change.get("deletions", [])):
            where = f"'entity.change.deletions[{number}]'"
            there = kept.pop((zone.id, rrset["name"]), None)
            if there is None:
                return _failure(404, f"The {where} resource named '{rrset['name']} (TXT)' does not exist.")
            # Their client writes numbers as strings.
            if (int(there["ttl"]), sorted(there["rrdatas"])) != (int(rrset["ttl"]), sorted(rrset["rrdatas"])):
                return _failure(412, f"Precondition not met for {where}")
        for number, rrset in enumerate(change.get("additions", [])):
            if (zone.id, rrset["name"]) in kept:
                return _failure(
                    409,
                    f"The 'entity.change.additions[{number}]' resource named "
                    f"'{rrset['name']}' already exists",
                )
            if not rrset["name"].endswith(f".{zone.name}.") or not rrset["rrdatas"]:
                return _failure(400, f"Invalid value for 'entity.change.additions[{number}].name'")
            kept[zone.id, rrset["name"]] = {**rrset, "type": "TXT"}
        self.sets = kept
        for (owner, name), rrset in kept.items():
            if owner == zone.id:
                values = [value.strip('"') for value in rrset["rrdatas"]]
                zone.records[name.rstrip(".")] = {str(number): value for number, value in enumerate(values)}
        for name in list(zone.records):
            if (zone.id, f"{name}.") not in kept:
                del zone.records[name]
        made = self.new_id()
        self.changes[made] = 0
        return web.json_response({"id": made, "status": "pending"})

    async def _state(self, request: web.Request) -> web.Response:
        number = request.match_info["change"]
        self.changes[number] += 1
        return web.json_response({"id": number, "status": "pending" if self.changes[number] == 1 else "done"})

    def add(self, zone: str, name: str, value: str) -> None:
        """A record set of another client."""
        owner = self.zones[zone]
        rrset = {"name": f"{name}.", "type": "TXT", "ttl": 300, "rrdatas": [f'"{value}"']}
        self.sets[owner.id, f"{name}."] = rrset
        owner.records[name] = {"0": value}


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message}}


def _failure(status: int, message: str) -> web.Response:
    return web.json_response(_error(status, message), status=status)
