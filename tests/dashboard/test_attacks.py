"""What an attacker tries: forged forms, other users' pages, script in whatever a tenant can write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from html.parser import HTMLParser

import msgspec
import pytest

from certwright.diagnosis import related
from dashboard.visits import Dashboard, Session, shop

RENEW = "/ui/certificates/shop/www/renew"
SCRIPT = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"


@pytest.fixture
async def site() -> AsyncIterator[Dashboard]:
    """The shop."""
    async with shop() as dashboard:
        yield dashboard


async def is_renewing(site: Dashboard) -> bool:
    certificate = await site.world.client.get(related.CERTIFICATES, "www", "shop")
    return (
        any(item["type"] == "Issuing" for item in certificate["status"]["conditions"])
        or certificate["status"]["revision"] > 1
    )


async def test_forged_forms_do_nothing(site: Dashboard) -> None:
    session, other = await site.log_in("anna"), await site.log_in("admin")
    good = {"token": await session.form_token()}
    refused: list[tuple[Session, str, dict[str, str], dict[str, str]]] = [
        (session, "POST", {}, {}),
        (session, "POST", {"token": "0" * 64}, {}),
        (session, "POST", {"token": await other.form_token()}, {}),
        (session, "POST", good, {"sec_fetch_site": "cross-site"}),
        (session, "POST", good, {"sec_fetch_site": "same-site"}),
        (session, "PUT", good, {}),
        (Session(site, "certwright-session="), "POST", good, {}),
        (Session(site, session.cookie[:-4] + "AAAA"), "POST", good, {}),
    ]
    for who, method, form, headers in refused:
        response = await who.ask(method, RENEW, form, **headers)
        assert response.status in (401, 403, 405), (method, form, headers)
    bearer = await site.ask("POST", RENEW, authorization=f"Bearer {site.tokens['anna']}")
    assert bearer.status == 403
    await session.page(RENEW)  # the question changes nothing
    assert not await is_renewing(site)
    done = await session.ask("POST", RENEW, good, sec_fetch_site="same-origin")
    assert done.status == 303
    assert done.headers["location"].startswith("../../../certificates/shop/www?")
    assert await is_renewing(site)


async def test_forms_have_the_rights_of_their_user(site: Dashboard) -> None:
    bob = await site.log_in("bob")
    form = {"token": await bob.form_token()}
    for path in (RENEW, "/ui/certificates/default/api/renew", "/ui/certificates/shop/lost/renew"):
        assert (await bob.ask("POST", path, form)).status in (403, 404), path
    assert "Renew" not in await bob.page("/ui/certificates/shop/www")
    assert not await is_renewing(site)


@pytest.mark.parametrize(
    "path",
    [
        "/ui/login?code=../../evil&next=https://evil.example",
        "/ui/?next=https://evil.example",
        "/ui//evil.example",
        "/ui/%2F%2Fevil.example/..",
        "/ui/..%2f..%2fapi",
        "/ui/static/../../../../etc/passwd",
        "/ui/static/%2e%2e/app.css",
        "/ui/certificates/shop/www%00",
        "/ui/certificates/shop/" + "a" * 5000,
        "/ui/certificates/shop%2Fwww/x",
        "/ui/live?at=https://evil.example",
        "/ui/live?at=live?at=live",
        "/ui/live?at=status.json",
        "/ui/?" + "&".join(f"a{n}=1" for n in range(200)),
        "/ui/?page=99999999999999999999&sort=__class__&state=%27",
        "/uix/",
    ],
)
async def test_odd_addresses(site: Dashboard, path: str) -> None:
    session = await site.log_in("admin")
    response = await session.ask("GET", path)
    assert response.status in (200, 302, 400, 401, 403, 404), response.status
    assert "evil" not in response.headers.get("location", "")
    assert b"root:" not in response.body
    assert b"Traceback" not in response.body


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


async def test_script_in_fields_of_a_tenant_stays_text(site: Dashboard) -> None:
    client = site.world.client
    certificate = {
        "metadata": {
            "name": "xss",
            "namespace": "shop",
            "annotations": {"a.example/b": SCRIPT},
            "labels": {},
        },
        "spec": {
            "secretName": "xss",
            "commonName": SCRIPT[:60],
            "dnsNames": ["xss.example.com"],
            "uris": ["spiffe://x/javascript:alert(1)"],
            "subject": {"organizations": [SCRIPT]},
            "issuerRef": {"name": "office", "kind": "ClusterIssuer"},
        },
    }
    await client.create(related.CERTIFICATES, certificate)
    await site.world.settle()
    event = {
        "metadata": {"name": "xss.1", "namespace": "shop"},
        "involvedObject": {"kind": "Certificate", "namespace": "shop", "name": "xss"},
        "reason": "Odd",
        "message": SCRIPT,
        "type": "Warning",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await client.create(related.EVENTS, event)
    issuer = {
        "metadata": {"name": "odd", "namespace": "shop"},
        "spec": {
            "acme": {
                "server": "https://127.0.0.1:1/d",
                "email": SCRIPT,
                "privateKeySecretRef": {"name": "k"},
                "solvers": [],
            }
        },
    }
    await client.create(related.ISSUERS, issuer)
    broken = {
        "type": "Ready",
        "status": "False",
        "reason": "Odd",
        "message": SCRIPT,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await client.patch(
        related.CERTIFICATES, "lost", "shop", {"status": {"conditions": [broken]}}, subresource="status"
    )
    await site.world.settle()
    session = await site.log_in("admin")
    seen = 0
    for path in (
        "/ui/",
        f"/ui/?q={SCRIPT}",
        "/ui/issuers",
        "/ui/stream",
        "/ui/elsewhere",
        "/ui/certificates/shop/xss",
        "/ui/certificates/shop/lost",
    ):
        page = await session.page(path.replace('"', "%22").replace(" ", "%20").replace("<", "%3C"))
        seen += "alert(1)" in page
        for tag, attributes in Tags(page).found:
            assert tag != "img"
            assert not any(name.startswith("on") for name in attributes), (path, tag)
            assert tag != "script" or (attributes.get("src") or "").startswith(
                ("./static/app.", "../../static/app.")
            )
            assert "style" not in attributes, "the policy forbids inline styles"
            assert not (attributes.get("href") or "").startswith(("javascript:", "http", "//")), attributes
        assert "{{7*7}}" in page or "alert(1)" not in page, "no template is made of what a tenant writes"
    assert seen >= 3


async def test_no_page_has_a_private_key_or_a_token(site: Dashboard) -> None:
    session = await site.log_in("admin")
    secret = await site.world.client.get(related.SECRETS, "www", "shop")
    pages = [
        "/ui/",
        "/ui/issuers",
        "/ui/elsewhere",
        "/ui/stream",
        "/ui/certificates/shop/www",
        "/ui/cas/default/ca",
        "/ui/status.json",
    ]
    for path in pages:
        page = await session.page(path)
        assert secret["data"]["tls.key"][:40] not in page
        assert "PRIVATE KEY" not in page
        assert site.tokens["admin"] not in page
    assert site.tokens["admin"] not in session.cookie


async def test_the_stream_ends_with_its_session(site: Dashboard) -> None:
    session = await site.log_in("anna")
    response = await session.ask("GET", "/ui/live?at=")
    assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
    assert response.stream is not None
    stream = aiter(response.stream)
    assert await anext(stream) == b"retry: 3000\n\n"
    first = msgspec.json.decode((await anext(stream)).removeprefix(b"data: "))
    assert "shop/</span>www" in first["certificates"]
    assert "api" not in first["certificates"], "of another namespace"
    await session.ask("POST", "/ui/logout", {"token": await session.form_token()})
    await site.world.client.patch(related.CERTIFICATES, "www", "shop", {"metadata": {"labels": {"a": "b"}}})
    await site.world.advance(timedelta(seconds=1))
    assert (await anext(stream)).startswith(b"event: end")
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
