"""Who gets in, and what each user sees: exactly what the API would answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest

from certwright.diagnosis import related
from certwright.kube.api.errors import Forbidden
from dashboard.visits import RULES, Dashboard, shop


@pytest.fixture
async def site() -> AsyncIterator[Dashboard]:
    """The shop."""
    async with shop() as dashboard:
        yield dashboard


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
    assert (await site.status("anna"))["certificates"] == []
    # An account that is gone is nobody at once.
    await site.world.client.raw("DELETE", "/api/v1/namespaces/default/serviceaccounts/admin")
    gone = await site.ask("GET", "/ui/status.json", authorization=f"Bearer {site.tokens['admin']}")
    assert gone.status == 401


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
