"""What the fake DNS hosts have in common: zones with TXT records, counted requests, planned failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FakeZone:
    """A zone of the fake account: values by name, in the order of their creation, with an ID each."""

    id: str
    name: str
    records: dict[str, dict[str, str]] = field(default_factory=dict)

    def values(self, name: str) -> list[str]:
        """The TXT values at a name; a value that was added twice appears twice."""
        return list(self.records.get(name, {}).values())


class FakeHost:
    """Base of the fakes. `calls` counts requests by method and purpose, `planned` are answers that are given
    instead of the next ones."""

    def __init__(self, *zones: str) -> None:
        self.zones = {name: FakeZone(f"zone-{number}", name) for number, name in enumerate(zones, 1)}
        self.calls: Counter[str] = Counter()
        self.planned: list[web.Response] = []
        self.url = ""
        self._made = 0

    def routes(self) -> list[web.RouteDef]:
        """The routes of the API."""
        raise NotImplementedError

    def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request with wrong credentials; None: they are right."""
        raise NotImplementedError

    def new_id(self) -> str:
        self._made += 1
        return f"id-{self._made}"

    def values(self, name: str) -> set[str]:
        """The TXT values that are served at a name, of whichever zone."""
        return {value for zone in self.zones.values() for value in zone.values(name)}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve the API on a free port of this machine; yields its URL."""
        app = web.Application(middlewares=[self._watch])
        app.add_routes(self.routes())
        async with TestServer(app) as server:
            self.url = str(server.make_url("")).rstrip("/")
            yield self.url

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        self.calls[f"{request.method} {resource.canonical if resource else request.path}"] += 1
        if self.planned:
            return self.planned.pop(0)
        refused = self.refusal(request)
        return refused if refused is not None else await handler(request)
