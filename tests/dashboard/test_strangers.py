"""Attacks on the dashboard: strangers, other users, other sites, and tenants that write into objects."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from certwright.app.dashboard import DashboardHandler
from certwright.dashboard.access import Credential
from certwright.dashboard.log_outs import NAME, NAMESPACE
from certwright.dashboard.rendering import static_path
from certwright.dashboard.sessions import COOKIE, IDLE, LIFETIME, LINK_LIFETIME
from certwright.dashboard.site import HEADERS
from certwright.diagnosis import related
from certwright.kube.util.http_messages import Identity, Request, Response, close_stream
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.visitor import Visitor, account, grant, handler_of, make_site, patch, post, visitor
from support.world import ADMIN, World, make_world

TENANT = ("get list watch patch update", "cert-manager.io", "*", "")
HOST = "certwright.example"
PAGES = (
    *("", "status.json", "stream", "issuers", "elsewhere", "live?at=", "live?at=stream"),
    *("live?at=certificates/bank/vault", "certificates/bank/vault", "certificates/bank/vault/renew"),
    *("certificates/bank/vault/revoke", "cas/bank/vault", "cas/bank/vault.crt"),
    *("?q=vault&namespace=bank", "stream?namespace=bank&name=vault"),
    *("status.json?namespace=bank&limit=5000", "certificates/shop/..%2f..%2fbank%2fvault"),
    *("certificates/shop/../../certificates/bank/vault", "certificates/%62ank/%76ault"),
    *("certificates/bank/vault%00", "certificates/bank%2fvault/x"),
)
SECRETS = ("vault.example.com", "bank-issuer")
"""What only users of the namespace bank may see."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Two tenants with a certificate each: shop/web and bank/vault."""
    async with make_world() as world:
        for namespace, name, issuer in (("shop", "web", "root"), ("bank", "vault", "bank-issuer")):
            await world.client.create(related.NAMESPACES, {"metadata": {"name": namespace}})
            await world.create(ISSUERS, make_issuer(issuer, namespace=namespace))
            await world.create(CERTIFICATES, make_certificate(name, issuer, namespace=namespace))
        await world.settle()
        yield world


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
    handler = handler_of(world, {"anonymous_auth": True})
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
        guest = await Visitor(site, user.name, access).log_in()
        for path in PAGES:
            for headers in ({}, {"cookie": "", "authorization": f"Bearer {user.name}"}):
                content = await _body(await guest.ask("GET", f"/ui/{path}", headers=headers))
                assert not [word for word in SECRETS if word in content], (user.name, path)
        first = await guest.get("/ui/")
        assert ("shop/web" in first.text or "web.example.com" in first.text) is sees_shop


async def test_other_sites_cannot_send_forms(world: World) -> None:
    """Each row would have renewed the certificate otherwise."""
    admin = await visitor(world)
    good, other = admin.form_token, (await visitor(world)).form_token
    host, token = {"host": HOST}, {"token": good}
    before = await _conditions(world)
    rows: list[tuple[str, str, dict[str, str], dict[str, str], int]] = [
        ("POST", "no token", {}, {}, 403),
        ("POST", "an empty token", {}, {"token": ""}, 403),
        ("POST", "the token of another session", {}, {"token": other}, 403),
        ("POST", "a token that is no ASCII", {}, {"token": "é"}, 403),
        ("POST", "a forged token", {}, {"token": "0" * 64}, 403),
        ("POST", "another site", {"sec-fetch-site": "cross-site"}, token, 403),
        ("POST", "a neighbour", {"sec-fetch-site": "same-site"}, token, 403),
        ("POST", "another origin", {"origin": "https://evil.example"}, token, 403),
        ("POST", "no origin", {"origin": "null"}, token, 403),
        ("POST", "a simple form", {"content-type": "text/plain"}, {}, 403),
        ("POST", "a header field", {"cookie": "", "authorization": f"Bearer {ADMIN.name}"}, token, 403),
        ("GET", "a link", {}, token, 200),
        ("PUT", "another method", {}, token, 405),
    ]
    for method, what, headers, fields, status in rows:
        for path in ("certificates/shop/web/renew", "logout"):
            if path == "logout" and method == "GET":
                continue
            target = f"/ui/{path}" + (f"?{urlencode(fields)}" if method == "GET" else "")
            response = await admin.ask(method, target, fields, {**host, **headers})
            assert response.status == status, (what, path)
            _assert_headers(response)
    assert await _conditions(world) == before
    assert await _status(admin) == 200
    sent = {**host, "origin": f"https://{HOST}"}
    assert (await admin.ask("POST", "/ui/certificates/shop/web/renew", token, sent)).status == 303
    assert await _conditions(world) != before


async def _conditions(world: World) -> Any:
    return (await world.certificate("web", "shop")).status.conditions


async def test_another_site_cannot_log_a_user_in(world: World) -> None:
    site, _ = make_site(world, ADMIN)
    stranger = Visitor(site, ADMIN.name)
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example", "host": HOST}):
        response = await stranger.ask("POST", "/ui/login", {"credential": ADMIN.name}, headers)
        assert (response.status, _cookie_of(response)) == (403, "")
    code = site.sessions.make_link(Credential(ADMIN.name))
    for method, headers in (("HEAD", {}), ("GET", {"sec-fetch-site": "cross-site"}), ("HEAD", {})):
        response = await stranger.ask(method, f"/ui/login?code={code}", headers=headers)
        assert (response.status, _cookie_of(response)) == (200, "")
    assert (await stranger.ask("POST", "/ui/login", {"code": code})).status == 303


async def test_a_session_is_new_with_each_log_in_and_ends_with_the_log_out(world: World) -> None:
    site, access = make_site(world, ADMIN)
    planted = site.sessions.begin(Credential("evil"))
    admin = await Visitor(site, ADMIN.name, access, planted).log_in()
    first = admin.cookie
    assert first != planted
    given = await admin.ask("POST", "/ui/login", {"credential": ADMIN.name})
    fields = given.headers["set-cookie"]
    assert [part for part in ("Secure", "HttpOnly", "SameSite=Strict") if part not in fields] == []
    assert [part for part in ("Path", "Domain") if part in fields] == []
    places = range(0, len(first), 7)
    changed = [first[:at] + ("A" if first[at] != "A" else "B") + first[at + 1 :] for at in places]
    for each in (*changed, first[:-4], f"{first}AAAA", first[4:], "", "=", f";{first}"):
        assert await _status(Visitor(site, "", access, each)) == 302
    await admin.post("/ui/logout")
    assert await _status(Visitor(site, "", access, first)) == 302  # a copy of the cookie


async def _status(guest: Visitor) -> int:
    return (await guest.ask("GET", "/ui/")).status


async def _by_link(site: DashboardHandler, token: str) -> Visitor:
    """A user with a session in a browser."""
    guest = Visitor(site, token)
    assert (await guest.get(site.link(token))).status == 200
    return guest


async def test_a_log_out_is_known_to_all_servers_of_a_store_and_to_the_next_start(world: World) -> None:
    token = await account(world, "anna", seconds=86_400)
    here, there = handler_of(world), handler_of(world)
    guests = [await _by_link(here, token) for _ in range(30)]

    async def statuses(handler: DashboardHandler) -> set[int]:
        return {await _status(Visitor(handler, token, None, cookie)) for cookie in copies[-20:]}

    copies = [guest.cookie for guest in guests]
    assert (await statuses(here), await statuses(there)) == ({200}, {200})
    for guest in guests:
        await guest.post("/ui/logout")
    await world.settle()
    for handler in (here, there, handler_of(world)):
        assert await statuses(handler) == {302}
    found = await world.client.get(related.CONFIG_MAPS, NAME, NAMESPACE)
    assert len(found["data"]) == 20  # of one user; further ones displace the first
    nonsense = {"data": {"x": "nonsense", "y.z": "9" * 999}}
    await world.client.patch(related.CONFIG_MAPS, NAME, NAMESPACE, nonsense)
    await world.settle()
    assert await statuses(there) == {302}
    await world.advance(IDLE + timedelta(minutes=1))
    await (await _by_link(here, token)).post("/ui/logout")
    found = await world.client.get(related.CONFIG_MAPS, NAME, NAMESPACE)
    assert len(found["data"]) == 2  # those that matter no more are gone; one never ends


async def test_a_session_ends_when_idle_and_after_its_lifetime(world: World) -> None:
    admin = await visitor(world)
    first = Visitor(admin.site, "", None, admin.cookie)
    await world.advance(IDLE - timedelta(minutes=1))
    await admin.get("/ui/")
    renewed = Visitor(admin.site, "", None, admin.cookie)
    await world.advance(timedelta(minutes=2))
    assert (await _status(first), await _status(renewed)) == (302, 200)
    for _ in range(20):
        await world.advance(IDLE / 2)
        await admin.get("/ui/")
    assert 20 * IDLE / 2 > LIFETIME
    assert await _status(admin) == await _status(renewed) == 302


async def test_a_session_and_its_stream_end_with_the_token(world: World) -> None:
    handler = handler_of(world)
    token = await account(world, "anna")
    guest = await _by_link(handler, token)
    bearer = Visitor(handler, token)
    sent = {"authorization": f"Bearer {token}"}
    async with guest.following("") as changes:
        assert "end" not in await anext(changes)
        await world.client.raw("DELETE", "/api/v1/namespaces/shop/serviceaccounts/anna")
        await world.create(CERTIFICATES, make_certificate("new", "root", namespace="shop"))
        assert await _status(guest) == 302
        assert (await bearer.ask("GET", "/ui/status.json", headers=sent)).status == 401
        assert [change async for change in changes if "end" in change]
    token = await account(world, "berta", seconds=600)
    guest, sent = await _by_link(handler, token), {"authorization": f"Bearer {token}"}
    for minutes, statuses in ((0, (200, 200)), (12, (302, 401))):
        await world.advance(timedelta(minutes=minutes))
        by_token = (await bearer.ask("GET", "/ui/", headers=sent)).status
        assert (await _status(guest), by_token) == statuses


async def test_a_link_works_once_and_for_minutes(world: World) -> None:
    site, _ = make_site(world, ADMIN)
    code = site.sessions.make_link(Credential(ADMIN.name))
    statuses = [
        (await site.handle(Request("GET", f"/ui/login?code={each}"))).status
        for each in (code, code, "guess", code[:-1], f"{code}A", "%00", "é", "x" * 9000)
    ]
    assert statuses == [303, *[401] * 7]
    code = site.sessions.make_link(Credential(ADMIN.name))
    at_once = (site.handle(Request("GET", f"/ui/login?code={code}")) for _ in range(5))
    assert sorted(each.status for each in await asyncio.gather(*at_once)) == [303, *[401] * 4]
    await world.advance(timedelta(seconds=5))  # failed log-ins wait
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
        *("https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example"),
        *("javascript:alert(1)", "certificates/../..//evil.example", "certificates/%2e%2e/%2e%2e"),
        *("certificates/a/b\r\nset-cookie: x=y", "@evil.example", ".evil.example"),
        *("login?code=1", "logout", "\x00"),
    ],
)
async def test_no_address_leads_to_another_site(world: World, wanted: str) -> None:
    site, _ = make_site(world, ADMIN)
    stranger = Visitor(site, ADMIN.name)
    response = await stranger.ask("POST", "/ui/login", {"credential": ADMIN.name, "next": wanted})
    where = response.headers["location"]
    assert where.startswith("./")
    assert not {"\\", "\r", "\n", "\0"} & set(where)
    assert where == "./" or wanted.startswith("certificates/a")
    _assert_headers(response)
    for headers in ({}, STRANGERS["another site"]):
        response = await stranger.ask("GET", f"/ui/{quote(wanted, safe='/:@')}", headers=headers)
        where = response.headers.get("location", "./")
        assert where.startswith(("./", "../", "login"))
        links = _Links()
        links.feed(response.body.decode())
        assert [link for link in links.found if not link.startswith(("./", "../", "0; url=./"))] == []
    response = await stranger.ask("GET", f"/ui/login?next={quote(wanted)}")
    assert "evil" not in response.body.decode()


async def test_the_wanted_page_follows_the_log_in(world: World) -> None:
    stranger = Visitor(make_site(world, ADMIN)[0], ADMIN.name)
    response = await stranger.ask("GET", "/ui/certificates/shop/web?done=renew")
    assert response.headers["location"] == "../../login?next=certificates%2Fshop%2Fweb%3Fdone%3Drenew"
    wanted = {"credential": ADMIN.name, "next": "certificates/shop/web?done=renew"}
    response = await stranger.ask("POST", "/ui/login", wanted)
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


def evil_pems() -> tuple[bytes, bytes]:
    """A CA certificate whose names are `EVIL`, and a signing request with that subject; admission refuses
    requests with such names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        x509.NameAttribute(oid, EVIL[:64]) for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    )
    kinds = x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name
    alternative = x509.SubjectAlternativeName([kind(EVIL) for kind in kinds])
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1)
        .not_valid_before(begun)
        .not_valid_after(begun + timedelta(days=90))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    request = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256())
    return certificate.public_bytes(Encoding.PEM), request.public_bytes(Encoding.PEM)


async def write_evil_certificates(world: World) -> None:
    """In the Secret of shop/web, in another one, and in a request of shop/web that waits for approval."""
    pem, request = (b64encode(each).decode() for each in evil_pems())
    data = {"tls.crt": pem, "ca.crt": pem, "tls.key": ""}
    await patch(world, "/api/v1/namespaces/shop/secrets/web", {"data": data})
    secret = {"metadata": {"name": "foreign"}, "type": "kubernetes.io/tls", "data": data}
    await post(world, "/api/v1/namespaces/shop/secrets", secret)
    uid = (await world.certificate("web", "shop")).metadata.uid
    owner = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "name": "web", "uid": uid}
    notes = {"cert-manager.io/certificate-revision": "2"}
    meta = {"name": "web-2", "namespace": "shop", "ownerReferences": [owner], "annotations": notes}
    spec = {"request": request, "issuerRef": {"name": "root"}}
    await world.client.create(related.REQUESTS, {"metadata": meta, "spec": spec})


async def test_nothing_that_a_tenant_writes_becomes_markup(world: World) -> None:
    """Every string that the author of a Certificate, its status, its Secret, a request, an Issuer or an Event
    chooses."""
    await patch(
        world,
        "/apis/cert-manager.io/v1/namespaces/shop/certificates/web",
        {
            "metadata": {"annotations": {"note": f"{EVIL}\u202e", "x": "]]>--><!--"}},
            "spec": {"subject": {"organizations": [EVIL]}, "commonName": "x", "secretName": "web"},
        },
    )
    message = f"{EVIL} `{EVIL}` javascript:alert(1) \u202e\u2066\x1b[2J \r\n\r\ndata: x"
    conditions = [
        {"type": kind, "status": "False", "reason": "<evil>", "message": message}
        for kind in ("Ready", "Issuing")
    ]
    failed = {"lastFailureTime": "2026-01-01T00:00:00Z", "failedIssuanceAttempts": 3}
    await world.stop_controllers()
    for path, status in (
        ("certificates/web", {"conditions": conditions, **failed}),
        ("issuers/root", {"conditions": conditions[:1]}),
    ):
        await patch(world, f"/apis/cert-manager.io/v1/namespaces/shop/{path}/status", {"status": status})
    said = {"reason": EVIL[:60], "message": message, "type": "Warning", "source": {"component": EVIL}}
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"}
    for number, (kind, name) in enumerate((("<evil>", EVIL), ("Certificate", "web"))):
        about = {"kind": kind, "name": name, "namespace": "shop"}
        event = {"metadata": {"name": f"web.{number}"}, "involvedObject": about, **said, **times}
        await post(world, "/api/v1/namespaces/shop/events", event)
    await write_evil_certificates(world)
    admin = await visitor(world)
    await admin.get("/ui/")
    logging.getLogger("certwright.test").warning("%s", message)
    await world.settle()
    evil = quote(EVIL)
    shown = 0
    for path in (
        *("", "stream", "issuers", "elsewhere", "cas/shop/web"),
        *("certificates/shop/web", "certificates/shop/web/renew", "certificates/shop/web/approve"),
        f"?q={evil}&namespace={evil}&issuer={evil}&state={evil}&sort={evil}&page={evil}",
        f"stream?namespace={evil}&name={evil}&type={evil}",
        f"certificates/{quote(EVIL, safe='')}/{quote(EVIL, safe='')}",
        "certificates/shop/web?said=Call+us&seal=0",
        evil,
        f"login?next={evil}&code={evil}",
        f"static/{evil}",
    ):
        page = await admin.get(f"/ui/{path}")
        checked = _Links()
        checked.feed(page.html)
        checked.close()
        assert checked.foreign == [], path
        assert [link for link in checked.found if ":" in link.partition("?")[0].partition("#")[0]] == [], path
        assert "49" not in page.text.split("{{7*7}}")[0][-3:]
        assert not {*"\u202e\u2066\x1b"} & {*page.html}
        assert "Call us" not in page.html
        shown += EVIL.partition("{")[0][4:9] in page.text
        response = await admin.ask("GET", f"/ui/live?at={quote(path)}")
        if response.stream is not None:
            lines = (await _body(response)).splitlines()
            assert all(line.startswith(("data: ", "retry: ", ":")) or not line for line in lines)
            for line in lines:
                if line.startswith("data: "):
                    for block in msgspec.json.decode(line.removeprefix("data: ")).values():
                        checked.feed(block)
                        assert checked.foreign == [], path
    assert shown >= 7, "what is attacked is on the pages"
    facts = await admin.get("/ui/status.json")
    assert facts.response.headers["content-type"] == "application/json"
    assert "\n" not in facts.html


async def test_keys_and_tokens_are_in_no_page_error_or_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    handler = handler_of(world)
    token = await account(world, "anna")
    key = (await world.secret("web", "shop")).data["tls.key"].decode().splitlines()[1]
    await grant(world, "system:serviceaccount:shop:anna", ("*", "*", "*", ""))
    guest = await _by_link(handler, token)
    texts: list[str] = []
    for path in (*PAGES, "certificates/shop/web", "cas/shop/web", "nothing", "?" + "a=1&" * 60):
        for headers in (
            {"cookie": f"{COOKIE}={guest.cookie}"},
            {"authorization": f"Bearer {token}"},
        ):
            for method, body in (("GET", b""), ("POST", b"token=x"), ("POST", b"&".join([b"a=1"] * 99))):
                response = await handler.handle(Request(method, f"/ui/{path}", dict(headers), body))
                assert response.status < 500, (method, path)
                texts.append(await _body(response))
                texts.append(str({k: v for k, v in response.headers.items() if k != "set-cookie"}))
    wrong = f"{token}x"
    kubeconfig = f"users: [{{name: a, user: {{password: {token}}}}}]\ncontexts: []\ncurrent-context: a"
    for text in (wrong, kubeconfig, f"[{token}", f"a: {token}\n\t- b", "&a [*a]\n:", "x:\n" * 30_000):
        response = await Visitor(handler, "").ask("POST", "/ui/login", {"credential": text})
        assert response.status in (401, 413), text[:20]
        texts.append(await _body(response))
    found = "\n".join([*texts, caplog.text])
    for secret in (token, token.rpartition(".")[2], key, "PRIVATE KEY", guest.cookie):
        assert secret not in found


async def test_large_bodies_cookies_and_addresses_have_a_sentence(world: World) -> None:
    admin = await visitor(world)
    cookie = {"cookie": f"{COOKIE}={admin.cookie}"}
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
        response = await admin.site.handle(request)
        assert response.status == status, (request.method, request.target[:40])
        _assert_headers(response)
        if response.stream is not None:
            await close_stream(response.stream)
        elif status >= 400:
            assert len(await _body(response)) > 10


async def test_failed_log_ins_wait_and_a_tenant_has_few_pages_and_streams_at_a_time(world: World) -> None:
    anna = await grant(world, "anna", TENANT, namespace="shop")
    site, access = make_site(world, ADMIN, anna)
    stranger = Visitor(site, "guess")
    asked = (stranger.ask("POST", "/ui/login", {"credential": "guess"}) for _ in range(30))
    refused = [answer for answer in await asyncio.gather(*asked) if answer.status == 429]
    assert len(refused) >= 15  # two at a time, ten wait
    assert all(answer.headers["retry-after"] for answer in refused)
    guest = await Visitor(site, "anna", access).log_in()
    streams = [await guest.ask("GET", "/ui/live?at=") for _ in range(22)]
    assert [stream.status for stream in streams] == [200] * 20 + [429] * 2
    for stream in streams:
        await close_stream(stream.stream)
    async with guest.following(""):
        pass
    pages = await asyncio.gather(*(guest.ask("GET", "/ui/") for _ in range(130)))
    assert 20 < [page.status for page in pages].count(429) < 60  # two at a time, a hundred wait
    form = "/ui/certificates/shop/web/renew", {"token": guest.form_token}
    forms = await asyncio.gather(*(guest.ask("POST", *form) for _ in range(30)))
    assert 10 < [done.status for done in forms].count(429) < 30  # ten wait
    assert await _status(await Visitor(site, ADMIN.name, access).log_in()) == 200


async def test_a_user_of_much_processor_time_waits_for_further_pages() -> None:
    from certwright.app.dashboard import _BURST_S, _SHARE, _Turns

    turns = _Turns()
    assert turns._pause("anna", _BURST_S - 0.1) == 0.0
    assert turns._pause("anna", 0.3) == pytest.approx(0.2 / _SHARE, abs=0.1)
    assert turns._pause("berta", 0.2) == 0.0


async def test_the_switch_follows_a_reload(world: World) -> None:
    given = {"dashboard": "on"}
    handler = handler_of(world, given)
    token = await account(world, "anna")
    await grant(world, "system:serviceaccount:shop:anna", ("*", "*", "*", ""))
    guest = await _by_link(handler, token)
    path = "/ui/certificates/shop/web/renew"
    assert path.removeprefix("/ui/") in (await guest.get("/ui/certificates/shop/web")).html
    form = {"token": guest.form_token}
    async with guest.following("") as changes:
        await anext(changes)
        given["dashboard"] = "read-only"
        await handler.reload()
        response = await guest.ask("POST", path, form)
        assert (response.status, "read-only" in await _body(response)) == (403, True)
        given["dashboard"] = "off"
        await handler.reload()
        assert await _status(guest) == 401  # the API server's answer
        assert [change async for change in changes if "end" in change]
    given["dashboard"] = "on"
    assert await _status(guest) == 200


def test_identities_of_one_namespace_share_their_turns() -> None:
    from certwright.app.dashboard import FairAccess

    one, other = (Identity(f"system:serviceaccount:shop:{name}") for name in ("a", "b"))
    assert FairAccess().flow(one) == FairAccess().flow(other)
