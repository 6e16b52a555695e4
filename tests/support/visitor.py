"""Visitors of the dashboard in the process of the test: they log in, read pages and send forms as a browser
without JavaScript does."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urljoin

import msgspec

from certwright.app.dashboard import FairAccess
from certwright.dashboard.access import Credential, Options
from certwright.dashboard.sessions import COOKIE, Sessions
from certwright.dashboard.site import Site
from certwright.kube.api.errors import Unauthorized
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity, Request, Response
from support.world import ADMIN, World

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
    """A user with a browser."""

    site: Site
    token: str
    access: WorldAccess
    _cookie: str = field(default="", init=False)

    async def log_in(self) -> Visitor:
        """Begin a session."""
        page = await self.send("POST", "/ui/login", {"credential": self.token})
        assert page.status == 200, page.text
        return self

    def forget(self) -> None:
        """Lose the session's cookie."""
        self._cookie = ""

    async def get(self, path: str) -> Page:
        """The page at the path, or at the whole address."""
        return await self.send("GET", path)

    @property
    def form_token(self) -> str:
        """The token of the session's forms; empty without a session."""
        session = self.site.sessions.read(self._cookie)
        return self.site.sessions.form_token(session) if session is not None else ""

    async def post(self, path: str, headers: Mapping[str, str] | None = None, **fields: str) -> Page:
        """Send a form with the session's token, unless `token` is given; the page that follows."""
        return await self.send("POST", path, {"token": self.form_token, **fields}, headers)

    async def send(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """Send a request, and follow redirects."""
        url = urljoin(f"{_BASE}/", path)
        for _ in range(5):
            body = urlencode(fields or {}).encode() if method == "POST" else b""
            cookie = {"cookie": f"{COOKIE}={self._cookie}"} if self._cookie else {}
            sent = {"accept": "text/html", **cookie, **(headers or {})}
            response = await self.site.handle(
                Request(method, url.removeprefix(_BASE).partition("#")[0], sent, body)
            )
            if set_cookie := response.headers.get("set-cookie", ""):
                self._cookie = set_cookie.partition(";")[0].partition("=")[2]
            if response.status not in (302, 303, 308):
                return Page(url, response)
            method, url = "GET", urljoin(url, response.headers["location"])
        raise AssertionError(f"{path} redirects for ever")


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


async def post(world: World, path: str, obj: dict[str, Any]) -> None:
    """Create an object as the administrator."""
    headers = {"content-type": "application/json"}
    await world.client.raw("POST", path, body=msgspec.json.encode(obj), headers=headers)
