"""Attacks on the dashboard: strangers, other users, other sites, and tenants that write into objects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from certwright.app.dashboard import DashboardHandler
from certwright.app.options import ServeOptions
from certwright.dashboard.access import Credential
from certwright.dashboard.log_outs import NAME, NAMESPACE
from certwright.dashboard.rendering import static_path
from certwright.dashboard.sessions import COOKIE, IDLE, LIFETIME, LINK_LIFETIME
from certwright.dashboard.site import HEADERS
from certwright.diagnosis import related
from certwright.kube.util.http_messages import Identity, Request, Response, close_stream
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.visitor import Visitor, grant, make_site
from support.world import ADMIN, World, make_world

TENANT = ("get list watch patch update", "cert-manager.io", "*", "")
HOST = "certwright.example"
PAGES = (
    "",
    "status.json",
    "stream",
    "issuers",
    "elsewhere",
    "live?at=",
    "live?at=stream",
    "live?at=certificates/bank/vault",
    "certificates/bank/vault",
    "certificates/bank/vault/renew",
    "certificates/bank/vault/revoke",
    "cas/bank/vault",
    "cas/bank/vault.crt",
    "?q=vault&namespace=bank",
    "stream?namespace=bank&name=vault",
    "status.json?namespace=bank&limit=5000",
    "certificates/shop/..%2f..%2fbank%2fvault",
    "certificates/shop/../../certificates/bank/vault",
    "certificates/%62ank/%76ault",
    "certificates/bank/vault%00",
    "certificates/bank%2fvault/x",
)
SECRETS = ("vault.example.com", "bank-issuer")
"""What only users of the namespace bank may see."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Two tenants with a certificate each: shop/web and bank/vault."""
    async with make_world() as world:
        for namespace in ("shop", "bank"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await _send(world, "POST", "/api/v1/namespaces", body)
        await world.create(ISSUERS, make_issuer("root", namespace="shop"))
        await world.create(ISSUERS, make_issuer("bank-issuer", namespace="bank"))
        await world.create(CERTIFICATES, make_certificate("web", "root", namespace="shop"))
        await world.create(CERTIFICATES, make_certificate("vault", "bank-issuer", namespace="bank"))
        await world.settle()
        yield world


async def _send(world: World, method: str, path: str, body: Mapping[str, Any]) -> Any:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    response = await world.client.raw(
        method, path, body=msgspec.json.encode(body), headers={"content-type": kind}
    )
    return msgspec.json.decode(response.body)


def _front(world: World, **options: Any) -> DashboardHandler:
    """The dashboard of a daemon: with tokens of ServiceAccounts, which the world's API server issues."""
    given = ServeOptions(data_dir=None, **options)  # type: ignore[arg-type] # nothing here reads it
    handler = DashboardHandler(world.server, lambda: given, world.clock, system=ADMIN, seal_key=b"key")
    world.on_close.append(handler.close)
    return handler


async def _account(world: World, name: str, namespace: str = "shop", *, seconds: int = 3600) -> str:
    """The token of a new ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await _send(world, "POST", path, {"metadata": {"name": name}})
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    return str((await _send(world, "POST", f"{path}/{name}/token", asked))["status"]["token"])


def _cookie_of(response: Response) -> str:
    return response.headers.get("set-cookie", "").partition(";")[0].partition("=")[2]


async def _body(response: Response) -> str:
    """The body; of a stream, what comes first."""
    if response.stream is None:
        return response.body.decode()
    found = b""
    try:
        async with asyncio.timeout(5):
            async for chunk in response.stream:
                found += chunk
                if b"data: " in found:
                    break
    finally:
        await close_stream(response.stream)
    return found.decode()


def _assert_headers(response: Response) -> None:
    for name, value in HEADERS.items():
        if name == "cache-control" and "immutable" in response.headers.get(name, ""):
            continue
        assert response.headers.get(name) == value, name
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    for value in response.headers.values():
        assert "\r" not in value
        assert "\n" not in value


STRANGERS: Mapping[str, Mapping[str, str]] = {
    "nobody": {},
    "a browser": {"accept": "text/html"},
    "a wrong token": {"authorization": "Bearer wrong"},
    "an empty token": {"authorization": "Bearer "},
    "a password": {"authorization": "Basic YWRtaW46YWRtaW4="},
    "an invented cookie": {"cookie": f"{COOKIE}=AAAA"},
    "a cookie that is no base64": {"cookie": f"{COOKIE}=\xff\xfe%%%"},
    "a huge cookie": {"cookie": f"{COOKIE}={'A' * 60_000}"},
    "the administrator's name": {"x-remote-user": "kubernetes-admin", "x-remote-group": "system:masters"},
    "impersonation": {"impersonate-user": "kubernetes-admin", "impersonate-group": "system:masters"},
    "another site": {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    },
}


@pytest.mark.parametrize("fields", STRANGERS.values(), ids=STRANGERS.keys())
async def test_strangers_get_no_object_by_any_method_and_path(
    world: World, fields: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    handler = _front(world, anonymous_auth=True)
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "REPORT"):
        for path in (*PAGES, "link", "logout", "nothing", "a" * 8000, "%2e%2e/api/v1/secrets", "%00", "..;/"):
            response = await handler.handle(Request(method, f"/ui/{path}", dict(fields)))
            _assert_headers(response)
            # The second page continues to itself, as a browser of the user would.
            assert response.status in (302, 401, 403) or (response.status, fields.get("sec-fetch-site")) == (
                200,
                "cross-site",
            ), (method, path, response.status)
            content = await _body(response)
            assert not [word for word in SECRETS if word in content], (method, path)
    assert "Traceback" not in caplog.text


async def test_users_without_rights_and_of_other_namespaces_see_nothing(world: World) -> None:
    nobody = await grant(world, "nobody")
    shop = await grant(world, "anna", TENANT, ("list", "", "events", ""), namespace="shop")
    site, access = make_site(world, nobody, shop)
    for user, sees_shop in ((nobody, False), (shop, True)):
        visitor = await Visitor(site, user.name, access).log_in()
        for path in PAGES:
            for headers in (
                {"cookie": f"{COOKIE}={visitor._cookie}"},
                {"authorization": f"Bearer {user.name}"},
            ):
                response = await site.handle(
                    Request("GET", f"/ui/{path}", {**headers, "accept": "text/html"})
                )
                content = await _body(response)
                assert not [word for word in SECRETS if word in content], (user.name, path)
        first = await visitor.get("/ui/")
        assert ("shop/web" in first.text or "web.example.com" in first.text) is sees_shop


async def test_other_sites_cannot_send_forms(world: World) -> None:
    """Each row would have renewed the certificate otherwise."""
    site, access = make_site(world, ADMIN)
    visitor = await Visitor(site, ADMIN.name, access).log_in()
    session = site.sessions.read(visitor._cookie)
    assert session is not None
    other = site.sessions.read(site.sessions.begin(Credential(ADMIN.name)))
    assert other is not None
    good = site.sessions.form_token(session)
    cookie = {"cookie": f"{COOKIE}={visitor._cookie}", "host": HOST}
    before = await _certificate(world)
    rows: list[tuple[str, str, dict[str, str], dict[str, str], int]] = [
        ("POST", "no token", {}, {}, 403),
        ("POST", "an empty token", {}, {"token": ""}, 403),
        ("POST", "the token of another session", {}, {"token": site.sessions.form_token(other)}, 403),
        ("POST", "a token that is no ASCII", {}, {"token": "é"}, 403),
        ("POST", "another site", {"sec-fetch-site": "cross-site"}, {"token": good}, 403),
        ("POST", "a neighbour", {"sec-fetch-site": "same-site"}, {"token": good}, 403),
        ("POST", "another origin", {"origin": "https://evil.example"}, {"token": good}, 403),
        ("POST", "no origin", {"origin": "null"}, {"token": good}, 403),
        ("POST", "a simple form", {"content-type": "text/plain"}, {}, 403),
        ("GET", "a link", {}, {"token": good}, 200),
        ("PUT", "another method", {}, {"token": good}, 405),
    ]
    for method, what, headers, fields, status in rows:
        for path in ("certificates/shop/web/renew", "logout"):
            if path == "logout" and method == "GET":
                continue
            text = urlencode(fields)
            target = f"/ui/{path}" + (f"?{text}" if method == "GET" else "")
            body = b"" if method == "GET" else text.encode()
            response = await site.handle(Request(method, target, {**cookie, **headers}, body))
            assert response.status == status, (what, path)
            _assert_headers(response)
    assert await _certificate(world) == before
    assert site.sessions.is_valid(session)
    bearer = {"authorization": f"Bearer {ADMIN.name}"}
    body = urlencode({"token": good}).encode()
    response = await site.handle(Request("POST", "/ui/certificates/shop/web/renew", bearer, body))
    assert response.status == 403  # a form belongs to a session
    response = await site.handle(
        Request("POST", "/ui/certificates/shop/web/renew", {**cookie, "origin": f"https://{HOST}"}, body)
    )
    assert response.status == 303
    assert await _certificate(world) != before


async def _certificate(world: World) -> Any:
    found = await world.client.raw("GET", "/apis/cert-manager.io/v1/namespaces/shop/certificates/web")
    return msgspec.json.decode(found.body)["status"]["conditions"]


async def test_another_site_cannot_log_a_user_in(world: World) -> None:
    site, _ = make_site(world, ADMIN)
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example", "host": HOST}):
        body = urlencode({"credential": ADMIN.name}).encode()
        response = await site.handle(Request("POST", "/ui/login", headers, body))
        assert (response.status, _cookie_of(response)) == (403, "")
    code = site.sessions.make_link(Credential(ADMIN.name))
    path = f"/ui/login?code={code}"
    for method, headers in (("HEAD", {}), ("GET", {"sec-fetch-site": "cross-site"}), ("HEAD", {})):
        response = await site.handle(Request(method, path, headers))
        assert (response.status, _cookie_of(response)) == (200, "")
    response = await site.handle(Request("POST", "/ui/login", {}, urlencode({"code": code}).encode()))
    assert response.status == 303


async def test_a_session_is_new_with_each_log_in_and_ends_with_the_log_out(world: World) -> None:
    site, access = make_site(world, ADMIN)
    planted = site.sessions.begin(Credential("evil"))
    visitor = Visitor(site, ADMIN.name, access)
    visitor._cookie = planted
    await visitor.log_in()
    first = visitor._cookie
    assert first != planted
    fields = (await site.handle(_log_in_with(ADMIN.name))).headers["set-cookie"]
    assert [part for part in ("Secure", "HttpOnly", "SameSite=Strict") if part not in fields] == []
    assert "Path" not in fields
    assert "Domain" not in fields
    for at in range(0, len(first), 7):
        changed = first[:at] + ("A" if first[at] != "A" else "B") + first[at + 1 :]
        assert await _status(site, changed) == 302
    for changed in (first[:-4], f"{first}AAAA", first[4:], "", "=", f"{first};{first}"[len(first) :]):
        assert await _status(site, changed) == 302
    await visitor.post("/ui/logout")
    assert await _status(site, first) == 302  # a copy of the cookie


def _log_in_with(token: str) -> Request:
    return Request("POST", "/ui/login", {}, urlencode({"credential": token}).encode())


async def test_a_log_out_is_known_to_all_servers_of_a_store_and_to_the_next_start(world: World) -> None:
    token = await _account(world, "anna", seconds=86_400)
    here, there = _front(world), _front(world)
    cookies = [_cookie_of(await here.handle(Request("GET", here.link(token)))) for _ in range(30)]

    async def statuses(handler: DashboardHandler) -> set[int]:
        asked = (Request("GET", "/ui/", {"cookie": f"{COOKIE}={cookie}"}) for cookie in cookies[-20:])
        return {(await handler.handle(each)).status for each in asked}

    assert (await statuses(here), await statuses(there)) == ({200}, {200})
    for cookie in cookies:
        fields = {"cookie": f"{COOKIE}={cookie}"}
        page = await _body(await here.handle(Request("GET", "/ui/", fields)))
        form = page.rpartition('name="token" value="')[2].partition('"')[0]
        body = urlencode({"token": form}).encode()
        assert (await here.handle(Request("POST", "/ui/logout", fields, body))).status == 303
    await world.settle()
    assert (await statuses(here), await statuses(there), await statuses(_front(world))) == (
        {302},
        {302},
        {302},
    )
    found = await world.client.get(related.CONFIG_MAPS, NAME, NAMESPACE)
    assert len(found["data"]) == 20  # of one user; further ones displace the first
    await world.client.patch(
        related.CONFIG_MAPS, NAME, NAMESPACE, {"data": {"x": "nonsense", "y.z": "9" * 999}}
    )
    await world.settle()
    assert await statuses(there) == {302}
    await world.advance(IDLE + timedelta(minutes=1))
    response = await here.handle(_log_in_with(token))
    fields = {"cookie": f"{COOKIE}={_cookie_of(response)}"}
    page = await _body(await here.handle(Request("GET", "/ui/", fields)))
    form = page.rpartition('name="token" value="')[2].partition('"')[0]
    await here.handle(Request("POST", "/ui/logout", fields, urlencode({"token": form}).encode()))
    found = await world.client.get(related.CONFIG_MAPS, NAME, NAMESPACE)
    assert len(found["data"]) == 2  # those that matter no more are gone; one never ends


async def _status(site: Any, cookie: str) -> int:
    return int((await site.handle(Request("GET", "/ui/", {"cookie": f"{COOKIE}={cookie}"}))).status)


async def test_a_session_ends_when_idle_and_after_its_lifetime(world: World) -> None:
    site, access = make_site(world, ADMIN)
    visitor = await Visitor(site, ADMIN.name, access).log_in()
    first = visitor._cookie
    await world.advance(IDLE - timedelta(minutes=1))
    await visitor.get("/ui/")
    renewed = visitor._cookie
    await world.advance(timedelta(minutes=2))
    assert (await _status(site, first), await _status(site, renewed)) == (302, 200)
    for _ in range(20):
        await world.advance(IDLE / 2)
        visitor._cookie = visitor._cookie or renewed
        await visitor.get("/ui/")
    session = site.sessions.read(renewed)
    assert session is None
    assert await _status(site, visitor._cookie) == 302
    assert world.clock.now() - timedelta(hours=10) < world.clock.now() - LIFETIME


async def test_a_session_and_its_stream_end_with_the_token(world: World) -> None:
    handler = _front(world)
    token = await _account(world, "anna", seconds=3600)
    code = handler.link(token)
    response = await handler.handle(Request("GET", code))
    cookie = {"cookie": f"{COOKIE}={_cookie_of(response)}"}
    assert (await handler.handle(Request("GET", "/ui/", cookie))).status == 200
    stream = await handler.handle(Request("GET", "/ui/live?at=", cookie))
    assert stream.stream is not None
    assert b"retry" in await anext(aiter(stream.stream))
    assert b"data: " in await anext(aiter(stream.stream))
    await _send(world, "DELETE", "/api/v1/namespaces/shop/serviceaccounts/anna", {})
    await world.create(CERTIFICATES, make_certificate("new", "root", namespace="shop"))
    assert (await handler.handle(Request("GET", "/ui/", cookie))).status == 302
    async with asyncio.timeout(20):
        assert "event: end" in "".join([chunk.decode() async for chunk in stream.stream])
    token = await _account(world, "berta", seconds=600)
    response = await handler.handle(Request("GET", handler.link(token)))
    cookie = {"cookie": f"{COOKIE}={_cookie_of(response)}"}
    bearer = {"authorization": f"Bearer {token}"}
    assert [(await handler.handle(Request("GET", "/ui/", each))).status for each in (cookie, bearer)] == [
        200,
        200,
    ]
    await world.advance(timedelta(minutes=12))
    assert [(await handler.handle(Request("GET", "/ui/", each))).status for each in (cookie, bearer)] == [
        302,
        401,
    ]


async def test_a_link_works_once_and_for_minutes(world: World) -> None:
    site, _ = make_site(world, ADMIN)
    code = site.sessions.make_link(Credential(ADMIN.name))
    statuses = [
        (await site.handle(Request("GET", f"/ui/login?code={each}"))).status
        for each in (code, code, "guess", code[:-1], f"{code}A", "%00", "é", "x" * 9000)
    ]
    assert statuses == [303, *[401] * 7]
    late = site.sessions.make_link(Credential(ADMIN.name))
    await world.advance(LINK_LIFETIME + timedelta(seconds=1))
    assert (await site.handle(Request("GET", f"/ui/login?code={late}"))).status == 401
    first = [site.sessions.make_link(Credential("a-tenant")) for _ in range(100)]
    own = site.sessions.make_link(Credential(ADMIN.name))
    for _ in range(100):
        site.sessions.make_link(Credential("a-tenant"))
    assert site.sessions.use_link(own) is not None  # those of others displace none
    assert site.sessions.use_link(first[0]) is None
    of_gone = site.sessions.make_link(Credential("a user who is deleted"))
    assert (await site.handle(Request("GET", f"/ui/login?code={of_gone}"))).status == 401


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "certificates/../..//evil.example",
        "certificates/%2e%2e/%2e%2e",
        "certificates/a/b\r\nset-cookie: x=y",
        "@evil.example",
        ".evil.example",
        "login?code=1",
        "logout",
        "\x00",
    ],
)
async def test_no_address_leads_to_another_site(world: World, wanted: str) -> None:
    site, _ = make_site(world, ADMIN)
    body = urlencode({"credential": ADMIN.name, "next": wanted}).encode()
    response = await site.handle(Request("POST", "/ui/login", {}, body))
    where = response.headers["location"]
    assert where.startswith("./")
    assert not {"\\", "\r", "\n", "\0"} & set(where)
    assert where == "./" or wanted.startswith("certificates/a")
    _assert_headers(response)
    for headers in ({}, STRANGERS["another site"]):
        response = await site.handle(Request("GET", f"/ui/{quote(wanted, safe='/:@')}", headers))
        where = response.headers.get("location", "./")
        assert where.startswith(("./", "../", "login"))
        links = _Links()
        links.feed(response.body.decode())
        assert [link for link in links.found if not link.startswith(("./", "../", "0; url=./"))] == []
    response = await site.handle(Request("GET", f"/ui/login?next={quote(wanted)}", {"accept": "text/html"}))
    assert "evil" not in response.body.decode()


async def test_the_wanted_page_follows_the_log_in(world: World) -> None:
    site, _ = make_site(world, ADMIN)
    response = await site.handle(Request("GET", "/ui/certificates/shop/web?done=renew"))
    assert response.headers["location"] == "../../login?next=certificates%2Fshop%2Fweb%3Fdone%3Drenew"
    body = urlencode({"credential": ADMIN.name, "next": "certificates/shop/web?done=renew"}).encode()
    response = await site.handle(Request("POST", "/ui/login", {}, body))
    assert response.headers["location"] == "./certificates/shop/web?done=renew"


class _Links(HTMLParser):
    """Collects addresses, and what no page of ours has."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        if tag in ("evil", "iframe", "object", "embed", "base", "style"):
            self.foreign.append(tag)
        if tag == "script" and not dict(attrs).get("src", ""):
            self.foreign.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc"):
                self.foreign.append(name)
            if name in ("href", "src", "action", "formaction", "xlink:href"):
                self.found.append(value or "")
            if name == "content" and "url=" in (value or ""):
                self.found.append(value or "")


EVIL = '"\'><evil onx="1">{{7*7}}</script><script>alert(1)</script>'


async def test_nothing_that_a_tenant_writes_becomes_markup(world: World) -> None:
    """Every string that the author of a Certificate, its status, an Issuer or an Event chooses."""
    await _send(
        world,
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/shop/certificates/web",
        {
            "metadata": {"annotations": {"note": EVIL, "x": "]]>--><!--"}},
            "spec": {"subject": {"organizations": [EVIL]}, "commonName": "x", "secretName": "web"},
        },
    )
    message = f"{EVIL} `{EVIL}` javascript:alert(1) \u202e \r\n\r\ndata: x"
    status: dict[str, Any] = {
        "conditions": [
            {"type": kind, "status": state, "reason": "<evil>", "message": message}
            for kind, state in (("Ready", "False"), ("Issuing", "False"))
        ],
        "lastFailureTime": "2026-01-01T00:00:00Z",
        "failedIssuanceAttempts": 3,
    }
    await world.stop_controllers()
    for path in ("certificates/web", "issuers/root"):
        body = {"status": status if "cert" in path else {"conditions": status["conditions"][:1]}}
        await _send(world, "PATCH", f"/apis/cert-manager.io/v1/namespaces/shop/{path}/status", body)
    event = {
        "metadata": {"name": "web.1"},
        "involvedObject": {"kind": "<evil>", "name": EVIL, "namespace": "shop"},
        "reason": EVIL[:60],
        "message": message,
        "type": "Warning",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": EVIL},
    }
    await _send(world, "POST", "/api/v1/namespaces/shop/events", event)
    event |= {
        "metadata": {"name": "web.2"},
        "involvedObject": {"kind": "Certificate", "name": "web", "namespace": "shop"},
    }
    await _send(world, "POST", "/api/v1/namespaces/shop/events", event)
    logging.getLogger("certwright.test").warning("%s", message)
    await world.settle()
    site, access = make_site(world, ADMIN)
    visitor = await Visitor(site, ADMIN.name, access).log_in()
    await visitor.get("/ui/")
    logging.getLogger("certwright.test").warning("%s", message)
    await world.settle()
    evil = quote(EVIL)
    shown = 0
    for path in (
        "/ui/",
        "/ui/stream",
        "/ui/issuers",
        "/ui/elsewhere",
        "/ui/certificates/shop/web",
        "/ui/certificates/shop/web/renew",
        "/ui/cas/shop/web",
        f"/ui/?q={evil}&namespace={evil}&issuer={evil}&state={evil}&sort={evil}&page={evil}",
        f"/ui/stream?namespace={evil}&name={evil}&type={evil}",
        f"/ui/certificates/{quote(EVIL, safe='')}/{quote(EVIL, safe='')}",
        f"/ui/{evil}",
        f"/ui/login?next={evil}&code={evil}",
        f"/ui/static/{evil}",
    ):
        page = await visitor.get(path)
        checked = _Links()
        checked.feed(page.html)
        checked.close()
        assert checked.foreign == [], path
        assert [link for link in checked.found if ":" in link.partition("?")[0].partition("#")[0]] == [], path
        assert "49" not in page.text.split("{{7*7}}")[0][-3:]
        shown += EVIL.partition("{")[0][4:9] in page.text
        response = await site.handle(
            Request(
                "GET",
                f"/ui/live?at={quote(path.removeprefix('/ui/'))}",
                {"cookie": f"{COOKIE}={visitor._cookie}"},
            )
        )
        if response.stream is not None:
            lines = (await _body(response)).splitlines()
            assert all(line.startswith(("data: ", "retry: ", ":")) or not line for line in lines)
            for line in lines:
                if line.startswith("data: "):
                    for block in msgspec.json.decode(line.removeprefix("data: ")).values():
                        checked.feed(block)
                        assert checked.foreign == [], path
    assert shown >= 3  # what is attacked is on the pages
    facts = await visitor.get("/ui/status.json")
    assert facts.response.headers["content-type"] == "application/json"
    assert "\n" not in facts.html


async def test_keys_and_tokens_are_in_no_page_error_or_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    handler = _front(world)
    token = await _account(world, "anna", seconds=3600)
    key = (await world.secret("web", "shop")).data["tls.key"].decode().splitlines()[1]
    await grant(world, "system:serviceaccount:shop:anna", ("*", "*", "*", ""))
    response = await handler.handle(Request("GET", handler.link(token)))
    cookie = _cookie_of(response)
    texts: list[str] = []
    for path in (*PAGES, "certificates/shop/web", "cas/shop/web", "nothing", "?" + "a=1&" * 60):
        for headers in ({"cookie": f"{COOKIE}={cookie}"}, {"authorization": f"Bearer {token}"}):
            for method, body in (("GET", b""), ("POST", b"token=x"), ("POST", b"&".join([b"a=1"] * 99))):
                response = await handler.handle(Request(method, f"/ui/{path}", dict(headers), body))
                assert response.status < 500, (method, path)
                texts.append(await _body(response))
                texts.append(str({k: v for k, v in response.headers.items() if k != "set-cookie"}))
    wrong = f"{token}x"
    kubeconfig = f"users: [{{name: a, user: {{password: {token}}}}}]\ncontexts: []\ncurrent-context: a"
    for text in (wrong, kubeconfig, f"[{token}", f"a: {token}\n\t- b", "&a [*a]\n:", "x:\n" * 30_000):
        response = await handler.handle(
            Request("POST", "/ui/login", {}, urlencode({"credential": text}).encode())
        )
        assert response.status in (401, 413), text[:20]
        texts.append(await _body(response))
    found = "\n".join([*texts, caplog.text])
    for secret in (token, token.rpartition(".")[2], key, "PRIVATE KEY", cookie):
        assert secret not in found


async def test_large_bodies_cookies_and_addresses_have_a_sentence(world: World) -> None:
    site, access = make_site(world, ADMIN)
    visitor = await Visitor(site, ADMIN.name, access).log_in()
    cookie = {"cookie": f"{COOKIE}={visitor._cookie}"}
    rows = [
        (Request("POST", "/ui/login", {}, b"credential=" + b"a" * 100_000), 413),
        (Request("POST", "/ui/login", {}, b"&".join([b"a=b"] * 1000)), 400),
        (Request("GET", "/ui/?" + "a=b&" * 1000, cookie), 400),
        (Request("GET", "/ui/live?at=" + quote("?" + "a=b&" * 1000), cookie), 200),
        (Request("GET", "/ui/" + "a/" * 10_000, cookie), 404),
        (Request("GET", "/ui/certificates/a/" + "b" * 10_000, cookie), 404),
        (Request("GET", "/ui/", {"cookie": f"{'a=b; ' * 5000}{cookie['cookie']}"}), 200),
        (Request("GET", "/ui/", {"cookie": f"{cookie['cookie']}, x=y"}), 200),
        (Request("POST", "/ui/login", {}, urlencode({"credential": "a" * 5000}).encode()), 401),
        (Request("GET", "/ui/static/../site.py", cookie), 404),
        (Request("GET", "/ui/static/%2e%2e/site.py", cookie), 404),
        (Request("DELETE", "/ui/", cookie), 405),
        (Request("OPTIONS", "/ui/", cookie), 405),
        (Request("GET", "/ui", {}), 308),
        (Request("GET", f"/ui/{static_path('app.css')}", {"if-none-match": "*"}), 200),
    ]
    for request, status in rows:
        response = await site.handle(request)
        assert response.status == status, (request.method, request.target[:40])
        _assert_headers(response)
        if response.stream is not None:
            await close_stream(response.stream)
        elif status >= 400:
            assert len(await _body(response)) > 10


async def test_failed_log_ins_wait_and_a_tenant_has_few_pages_and_streams_at_a_time(world: World) -> None:
    anna = await grant(world, "anna", TENANT, namespace="shop")
    site, access = make_site(world, ADMIN, anna)
    request = Request("POST", "/ui/login", {}, urlencode({"credential": "guess"}).encode())
    answers = await asyncio.gather(*(site.handle(msgspec.structs.replace(request)) for _ in range(30)))
    statuses = sorted(answer.status for answer in answers)
    assert statuses.count(429) >= 15  # two at a time, ten wait
    assert all(answer.headers["retry-after"] for answer in answers if answer.status == 429)
    bearer = {"authorization": "Bearer anna"}
    streams = [await site.handle(Request("GET", "/ui/live?at=", bearer)) for _ in range(22)]
    assert [stream.status for stream in streams] == [200] * 20 + [429] * 2
    for stream in streams:
        await close_stream(stream.stream)
    again = await site.handle(Request("GET", "/ui/live?at=", bearer))
    assert again.status == 200
    await close_stream(again.stream)
    pages = await asyncio.gather(*(site.handle(Request("GET", "/ui/", bearer)) for _ in range(130)))
    assert 20 < [page.status for page in pages].count(429) < 60  # two at a time, a hundred wait
    visitor = await Visitor(site, "anna", access).log_in()
    session = site.sessions.read(visitor._cookie)
    assert session is not None
    body = urlencode({"token": site.sessions.form_token(session)}).encode()
    form = Request("POST", "/ui/certificates/shop/web/renew", {"cookie": f"{COOKIE}={visitor._cookie}"}, body)
    forms = await asyncio.gather(*(site.handle(msgspec.structs.replace(form)) for _ in range(30)))
    assert 10 < [done.status for done in forms].count(429) < 30  # ten wait
    admin = Request("GET", "/ui/", {"authorization": f"Bearer {ADMIN.name}"})
    assert (await site.handle(admin)).status == 200


async def test_a_user_of_much_processor_time_waits_for_further_pages() -> None:
    from certwright.app.dashboard import _BURST_S, _SHARE, _Turns

    turns = _Turns()
    assert turns._pause("anna", _BURST_S - 0.1) == 0.0
    assert turns._pause("anna", 0.3) == pytest.approx(0.2 / _SHARE, abs=0.1)
    assert turns._pause("berta", 0.2) == 0.0


async def test_the_switch_follows_a_reload(world: World) -> None:
    given = {"dashboard": "on"}
    handler = DashboardHandler(
        world.server,
        lambda: ServeOptions(data_dir=None, **given),  # type: ignore[arg-type] # nothing here reads it
        world.clock,
        system=ADMIN,
        seal_key=b"key",
    )
    world.on_close.append(handler.close)
    token = await _account(world, "anna")
    await grant(world, "system:serviceaccount:shop:anna", ("*", "*", "*", ""))
    cookie = {"cookie": f"{COOKIE}={_cookie_of(await handler.handle(Request('GET', handler.link(token))))}"}
    page = await _body(await handler.handle(Request("GET", "/ui/certificates/shop/web", cookie)))
    assert "certificates/shop/web/renew" in page
    form = page.partition('name="token" value="')[2].partition('"')[0]
    body = urlencode({"token": form}).encode()
    stream = await handler.handle(Request("GET", "/ui/live?at=", cookie))
    assert stream.stream is not None
    await anext(aiter(stream.stream))
    given["dashboard"] = "read-only"
    await handler.reload()
    response = await handler.handle(Request("POST", "/ui/certificates/shop/web/renew", cookie, body))
    assert response.status == 403
    assert "read-only" in await _body(response)
    given["dashboard"] = "off"
    await handler.reload()
    response = await handler.handle(Request("GET", "/ui/", {"authorization": f"Bearer {token}"}))
    assert response.status == 403  # the API server's answer
    async with asyncio.timeout(20):
        assert "event: end" in "".join([chunk.decode() async for chunk in stream.stream])
    given["dashboard"] = "on"
    assert (await handler.handle(Request("GET", "/ui/", cookie))).status == 200


def test_identities_of_one_namespace_share_their_turns() -> None:
    from certwright.app.dashboard import FairAccess

    one, other = (Identity(f"system:serviceaccount:shop:{name}") for name in ("a", "b"))
    assert FairAccess().flow(one) == FairAccess().flow(other)
