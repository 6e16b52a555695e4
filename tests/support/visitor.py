"""Visitors of the dashboard in the process of the test: they log in, read pages and send forms as a browser
without JavaScript does."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

import msgspec

from certwright.app.dashboard import DashboardHandler, FairAccess
from certwright.app.options import ServeOptions
from certwright.dashboard.access import Credential, Options
from certwright.dashboard.sessions import COOKIE, Sessions
from certwright.dashboard.site import Site
from certwright.kube.api.errors import Unauthorized
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity, Request, Response, close_stream
from support.world import ADMIN, World

Json = dict[str, Any]
Fields = Mapping[str, str]
_BASE = "https://certwright.example"


class WorldAccess(FairAccess):
    """The `Access` of a dashboard in a world: the token of each user is the user's name."""

    def __init__(self, world: World, users: Mapping[str, Identity]) -> None:
        super().__init__()
        self._world = world
        self._users = users
        self.requests: list[str] = []

    async def identify(self, credential: Credential, request: Request | None = None) -> Identity:
        """See `Access`."""
        if credential.token not in self._users:
            raise Unauthorized("the token is unknown")
        return self._users[credential.token]

    def client(self, credential: Credential, identity: Identity) -> Client:
        """See `Access`. Lists the requests of users in `requests`."""

        async def handle(request: Request) -> Response:
            self.requests.append(f"{request.method} {request.target}")
            return await self._world.recording.handle(request)

        return Client(LocalTransport(handle, identity), user_agent="dashboard")

    @property
    def system(self) -> Client:
        """See `Access`."""
        return Client(LocalTransport(self._world.server.handle, ADMIN), user_agent="dashboard")


@dataclass
class Page:
    """What a visitor got, after redirects."""

    url: str
    response: Response

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status

    @property
    def html(self) -> str:
        """The body."""
        return self.response.body.decode()

    @property
    def json(self) -> Json:
        """The body of a program's answer."""
        return msgspec.json.decode(self.html, type=Json)

    @property
    def text(self) -> str:
        """What a reader sees: without tags, on one line."""
        inner = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", self.html, flags=re.S)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", inner)).split())

    @property
    def links(self) -> list[str]:
        """The addresses that the page links to, whole."""
        found = re.findall(r'<a\b[^>]*\bhref="([^"]*)"', self.html)
        return [urljoin(self.url, html.unescape(link)) for link in found]

    @property
    def forms(self) -> dict[str, dict[str, str]]:
        """By address, the fields of the forms that are posted, with their first values."""
        forms: dict[str, dict[str, str]] = {}
        for attributes, content in re.findall(r"<form\b([^>]*)>(.*?)</form>", self.html, flags=re.S):
            if 'method="post"' not in attributes:
                continue
            action = re.search(r'action="([^"]*)"', attributes)
            fields = {}
            for tag in re.findall(r"<input\b[^>]*>", content):
                named = dict(re.findall(r'(\w+)="([^"]*)"', tag))
                is_off = named.get("type") in ("radio", "checkbox") and "checked" not in tag
                if "name" in named and not is_off:
                    fields[named["name"]] = html.unescape(named.get("value", ""))
            forms[urljoin(self.url, html.unescape(action.group(1) if action else ""))] = fields
        return forms


@dataclass
class Visitor:
    """A user with a browser; `access` is that of a site that `make_site` has made."""

    site: Site | DashboardHandler
    token: str
    access: WorldAccess | None = None
    cookie: str = ""

    @property
    def requests(self) -> list[str]:
        """The requests for pages of all users of the site."""
        assert self.access is not None
        return self.access.requests

    async def log_in(self) -> Visitor:
        """Begin a session."""
        page = await self.send("POST", "/ui/login", {"credential": self.token})
        assert page.status == 200, page.text
        return self

    async def get(self, path: str) -> Page:
        """The page at the path, or at the whole address."""
        return await self.send("GET", path)

    async def facts(self, query: str = "") -> Json:
        """`/ui/status.json`."""
        return (await self.get(f"/ui/status.json{query}")).json

    @property
    def sessions(self) -> Sessions:
        """The sessions of the server."""
        return self.site.sessions if isinstance(self.site, Site) else self.site._sessions

    @property
    def form_token(self) -> str:
        """The token of the session's forms; empty without a session."""
        session = self.sessions.read(self.cookie)
        return self.sessions.form_token(session) if session is not None else ""

    async def post(self, path: str, headers: Fields | None = None, **fields: str) -> Page:
        """Send a form with the session's token, unless `token` is given; the page that follows."""
        return await self.send("POST", path, {"token": self.form_token, **fields}, headers)

    async def submit(self, page: Page, verb: str, **fields: str) -> Page:
        """Send the form of the page whose address ends so."""
        ((address, given),) = ((a, f) for a, f in page.forms.items() if a.endswith(verb))
        return await self.send("POST", address, {**given, **fields})

    async def send(
        self, method: str, path: str, fields: Fields | None = None, headers: Fields | None = None
    ) -> Page:
        """Send a request, and follow redirects."""
        url = urljoin(f"{_BASE}/", path)
        for _ in range(5):
            response = await self.ask(method, url.removeprefix(_BASE).partition("#")[0], fields, headers)
            if set_cookie := response.headers.get("set-cookie", ""):
                self.cookie = set_cookie.partition(";")[0].partition("=")[2]
            if response.status not in (302, 303, 308):
                return Page(url, response)
            method, url = "GET", urljoin(url, response.headers["location"])
        raise AssertionError(f"{path} redirects for ever")

    async def ask(
        self, method: str, target: str, fields: Fields | None = None, headers: Fields | None = None
    ) -> Response:
        """Send a request; its response."""
        body = urlencode(fields or {}).encode() if method == "POST" else b""
        cookie = {"cookie": f"{COOKIE}={self.cookie}"} if self.cookie else {}
        return await self.site.handle(
            Request(method, target, {"accept": "text/html", **cookie, **(headers or {})}, body)
        )

    @asynccontextmanager
    async def following(self, page: str) -> AsyncIterator[AsyncIterator[Json]]:
        """The changes of an open page, whose path is below /ui/."""
        response = (await self.get(f"/ui/live?at={page}")).response
        assert response.stream is not None, response.status
        try:
            async with asyncio.timeout(20):
                yield changes_of(response)
        finally:
            await close_stream(response.stream)


async def changes_of(response: Response) -> AsyncIterator[Json]:
    """The changes that a stream sends; at its end, one with the key `end`."""
    assert response.stream is not None
    async for chunk in response.stream:
        if chunk.startswith(b"data: "):
            yield msgspec.json.decode(chunk[6:], type=Json)
        if chunk.startswith(b"event: end"):
            yield {"end": chunk.decode()}


def make_site(world: World, *users: Identity, **options: Any) -> tuple[Site, WorldAccess]:
    """A dashboard over the world, which is closed with it."""
    access = WorldAccess(world, {user.name: user for user in users})
    sessions = Sessions(b"key", world.clock)
    site = Site(access, Options(seal_key=b"key", **options), sessions, world.clock)
    world.on_close.append(site.close)
    return site, access


async def visitor(world: World, user: Identity = ADMIN, **options: Any) -> Visitor:
    """A user who has logged in to a dashboard of their own over the world."""
    site, access = make_site(world, user, **options)
    return await Visitor(site, user.name, access).log_in()


def handler_of(world: World, given: Mapping[str, Any] | None = None) -> DashboardHandler:
    """The dashboard of a daemon with these options, which may change: with tokens of ServiceAccounts, which
    the world's API server issues."""

    def options() -> ServeOptions:
        return ServeOptions(data_dir=Path("none"), **(given or {}))

    handler = DashboardHandler(world.server, options, world.clock, system=ADMIN, seal_key=b"key")
    world.on_close.append(handler.close)
    return handler


async def account(world: World, name: str, namespace: str = "shop", *, seconds: int = 3600) -> str:
    """The token of a new ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await post(world, path, {"metadata": {"name": name}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    made = await post(world, f"{path}/{name}/token", asked | {"spec": {"expirationSeconds": seconds}})
    return str(made["status"]["token"])


async def grant(world: World, user: str, *rules: tuple[str, str, str, str], namespace: str = "") -> Identity:
    """A user with these rights in a namespace, or in all: verbs, group, resources, and names or nothing."""
    content = [
        {
            "verbs": verbs.split(),
            "apiGroups": [group],
            "resources": plurals.split(),
            **({"resourceNames": names.split()} if names else {}),
        }
        for verbs, group, plurals, names in rules
    ]
    prefix, where = ("", f"/namespaces/{namespace}") if namespace else ("Cluster", "")
    name = f"{user}-{namespace or 'all'}"
    role = {"metadata": {"name": name}, "rules": content}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    for kind, body in ((f"{prefix}Role", role), (f"{prefix}RoleBinding", binding)):
        whole = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, **body}
        await post(world, f"/apis/rbac.authorization.k8s.io/v1{where}/{kind.lower()}s", whole)
    return Identity(user, groups=("system:authenticated",))


async def post(world: World, path: str, obj: Json, method: str = "POST") -> Json:
    """Create an object as the administrator, or with PATCH merge into one; what is stored then."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body = msgspec.json.encode(obj)
    response = await world.client.raw(method, path, body=body, headers={"content-type": kind})
    return msgspec.json.decode(response.body, type=Json)


async def patch(world: World, path: str, change: Json) -> None:
    """Merge a change into an object, as the administrator."""
    await post(world, path, change, "PATCH")
