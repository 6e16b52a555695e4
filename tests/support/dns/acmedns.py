"""A fake of acme-dns, written from its README and from what version 1.0, built from source, answers."""

from __future__ import annotations

import re

from aiohttp import web

from support.dns.fake import FakeHost

USER, PASSWORD = "c36f50e8-4632-44f0-83fe-e070fef28a10", "acme-dns-password"


class FakeAcmeDns(FakeHost):
    """Accounts by subdomain, each with its last two values."""

    def __init__(self, *subdomains: str) -> None:
        super().__init__()
        self.kept: dict[str, list[str]] = {name: [] for name in subdomains}

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/health", self._health), web.post("/update", self._update)]

    def refusal(self, request: web.Request) -> web.Response | None:
        given = (request.headers.get("X-Api-User"), request.headers.get("X-Api-Key"))
        if request.path == "/health" or given == (USER, PASSWORD):
            return None
        return web.json_response({"error": "forbidden"}, status=401)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _update(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["subdomain"] not in self.kept:
            return web.json_response({"error": "bad_subdomain"}, status=400)
        if not re.fullmatch(r"[A-Za-z0-9_-]{43}", body["txt"]):
            return web.json_response({"error": "bad_txt"}, status=400)
        self.kept[body["subdomain"]] = [*self.kept[body["subdomain"]], body["txt"]][-2:]
        return web.json_response({"txt": body["txt"]})
