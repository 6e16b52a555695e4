"""Who gets in, and what each user sees: exactly what the API would answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import urlencode

import msgspec
import pytest

from certwright.dashboard.sessions import LIFETIME, LINK_LIFETIME
from certwright.diagnosis import related
from certwright.kube.api.errors import Forbidden
from dashboard.visits import RULES, Dashboard, shop

PATHS = (
    "/ui/",
    "/ui/?q=www",
    "/ui/status.json",
    "/ui/issuers",
    "/ui/elsewhere",
    "/ui/stream",
    "/ui/live?at=",
    "/ui/certificates/shop/www",
    "/ui/certificates/shop/www/renew",
    "/ui/cas/default/ca",
    "/ui/cas/default/ca.crt",
    "/ui/no/such/page",
)


@pytest.fixture
async def site() -> AsyncIterator[Dashboard]:
    """The shop."""
    async with shop() as dashboard:
        yield dashboard


async def test_strangers_get_no_object(site: Dashboard) -> None:
    await site.get("admin", "/ui/")
    wrong: tuple[dict[str, str], ...] = (
        {},
        {"authorization": "Bearer nonsense"},
        {"authorization": "Basic YTpi"},
        {"cookie": "certwright-session=AAAA"},
    )
    for headers in wrong:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
            for path in (*PATHS, "/ui", "/ui/login", "/ui/logout", "/ui/link"):
                response = await site.ask(method, path, b"", accept="text/html", **headers)
                assert response.status in (200, 302, 308, 401, 403, 404, 405), (method, path, response.status)
                assert response.status != 200 or path == "/ui/login", (method, path)
                assert b"www" not in response.body, (method, path)
                assert response.stream is None
                assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
                assert response.headers["cache-control"] == "no-store"
                assert response.headers["x-frame-options"] == "DENY"


async def test_each_user_sees_what_the_api_would_answer(site: Dashboard) -> None:
    every = [
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in (await site.world.client.list(related.CERTIFICATES)).items
    ]
    assert len(every) == 4
    for user in RULES:
        client, allowed = site.client_of(user), set()
        for namespace, name in every:
            try:
                await client.get(related.CERTIFICATES, name, namespace)
                allowed.add((namespace, name))
            except Forbidden:
                continue
        content = await site.status(user)
        assert {(row["namespace"], row["name"]) for row in content["certificates"]} == allowed, user
        assert content["counts"]["total"] == len(allowed)
        page = await site.get(user, "/ui/")
        for namespace, name in every:
            assert (f"certificates/{namespace}/{name}" in page) == ((namespace, name) in allowed), (
                user,
                name,
            )
            path = f"/ui/certificates/{namespace}/{name}"
            shown = await site.ask("GET", path, authorization=f"Bearer {site.tokens[user]}")
            assert shown.status == (200 if (namespace, name) in allowed else 404), (user, path)


async def test_issuers_and_secrets_follow_the_rights_of_the_user(site: Dashboard) -> None:
    assert "ClusterIssuer office" in await site.get("reader", "/ui/issuers")
    for user in ("anna", "bob", "eve"):
        assert "office" not in await site.get(user, "/ui/issuers")
    assert "may not read" in await site.get("anna", "/ui/certificates/shop/www")
    refused = await site.ask("GET", "/ui/cas/default/ca.crt", authorization=f"Bearer {site.tokens['anna']}")
    assert refused.status == 404
    pem = await site.get("admin", "/ui/cas/default/ca.crt")
    assert pem.startswith("-----BEGIN CERTIFICATE-----")
    assert pem.count("BEGIN") == 1


async def test_rights_that_are_withdrawn_are_gone(site: Dashboard) -> None:
    assert len((await site.status("anna"))["certificates"]) == 2
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/anna"
    await site.world.client.raw("DELETE", path)
    await site.world.advance(timedelta(seconds=2))
    assert (await site.status("anna"))["certificates"] == []
    # An account that is gone is nobody at once.
    await site.world.client.raw("DELETE", "/api/v1/namespaces/default/serviceaccounts/admin")
    gone = await site.ask("GET", "/ui/status.json", authorization=f"Bearer {site.tokens['admin']}")
    assert gone.status == 401


async def test_a_session_is_as_good_as_its_token_and_ends(site: Dashboard) -> None:
    session = await site.log_in("anna")
    assert "shop/</span>www" in await session.page("/ui/")
    left = await session.ask("POST", "/ui/logout", {"token": await session.form_token()})
    assert (left.status, left.headers["location"]) == (303, "login")
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert (await session.ask("GET", "/ui/")).status == 302

    another = await site.log_in("anna")
    await site.world.advance(LIFETIME + timedelta(seconds=1))
    assert (await another.ask("GET", "/ui/")).status == 302


async def test_a_link_works_once_and_not_for_long(site: Dashboard) -> None:
    bearer = f"Bearer {site.tokens['anna']}"
    paths = [
        msgspec.json.decode((await site.ask("POST", "/ui/link", authorization=bearer)).body)["path"]
        for _ in range(2)
    ]
    first = await site.ask("GET", f"/ui/{paths[0]}")
    cookie = first.headers["set-cookie"]
    assert first.status == 303
    for attribute in ("Secure", "HttpOnly", "SameSite=Strict"):
        assert attribute in cookie
    assert "Path=" not in cookie, "the browser's default is right below the prefix of a proxy, too"
    again = await site.ask("GET", f"/ui/{paths[0]}", accept="text/html")
    assert (again.status, "set-cookie" in again.headers) == (401, False)
    await site.world.advance(LINK_LIFETIME + timedelta(seconds=1))
    assert (await site.ask("GET", f"/ui/{paths[1]}")).status == 401
    # A link is made with a credential that no browser sends by itself.
    session = await site.log_in("anna")
    assert (await session.ask("POST", "/ui/link", {"token": await session.form_token()})).status == 403


@pytest.mark.parametrize(
    ("text", "status"),
    [("TOKEN", 303), ("KUBECONFIG", 303), ("nonsense", 401), ("a: [b", 401), ("users: []", 401), ("", 401)],
)
async def test_logging_in_by_a_pasted_credential(site: Dashboard, text: str, status: int) -> None:
    token = site.tokens["anna"]
    users = f"users: [{{name: u, user: {{token: {token}}}}}]"
    kubeconfig = f"contexts: [{{name: c, context: {{user: u}}}}]\ncurrent-context: c\n{users}\n"
    given = text.replace("TOKEN", token).replace("KUBECONFIG", kubeconfig)
    response = await site.ask(
        "POST", "/ui/login", urlencode({"credential": given}).encode(), accept="text/html"
    )
    assert response.status == status
    assert token.encode() not in response.body


async def test_off_and_read_only() -> None:
    async with shop(dashboard="off") as site:
        assert (await site.ask("GET", "/ui/", authorization=f"Bearer {site.tokens['admin']}")).status in (
            403,
            404,
        )
    async with shop(dashboard="read-only") as site:
        session = await site.log_in("admin")
        assert "Retry now" not in await session.page("/ui/")
        form = {"token": await session.form_token()}
        assert (await session.ask("POST", "/ui/certificates/shop/www/renew", form)).status == 403
