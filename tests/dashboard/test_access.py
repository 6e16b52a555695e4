"""Who gets in, and what each user sees: exactly what the API would answer."""

from __future__ import annotations

import pytest

from certwright.diagnosis import related
from certwright.kube.api.errors import Forbidden
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity
from support.visitor import Visitor, account, grant, handler_of, make_site, visitor
from support.world import ADMIN, World

READ = tuple(("get list", group, "*", "") for group in ("cert-manager.io", "certwright.io", ""))
USERS = {
    "reader": (READ, ""),
    "anna": ((("get list patch", "cert-manager.io", "*", ""), ("list", "", "events", "")), "shop"),
    "bob": ((("get", "cert-manager.io", "certificates", "www"),), "shop"),
    "eve": ((), "shop"),
}
"""By name, rights and the namespace that they are for; empty for all."""


async def users_of(world: World) -> dict[str, Identity]:
    """An administrator, and the users of the table."""
    made = {name: await grant(world, name, *rules, namespace=place) for name, (rules, place) in USERS.items()}
    return {"admin": ADMIN, **made}


async def test_each_user_sees_what_the_api_would_answer(shop_world: World) -> None:
    every = [
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in (await shop_world.client.list(related.CERTIFICATES)).items
    ]
    assert len(every) == 4
    users = await users_of(shop_world)
    site, access = make_site(shop_world, *users.values())
    for user, identity in users.items():
        client, allowed = Client(LocalTransport(shop_world.server.handle, identity), user_agent="test"), set()
        for namespace, name in every:
            try:
                await client.get(related.CERTIFICATES, name, namespace)
                allowed.add((namespace, name))
            except Forbidden:
                continue
        guest = await Visitor(site, identity.name, access).log_in()
        facts = await guest.facts()
        assert {(row["namespace"], row["name"]) for row in facts["certificates"]} == allowed, user
        assert facts["counts"]["total"] == len(allowed)
        page = (await guest.get("/ui/")).html
        for namespace, name in every:
            path = f"certificates/{namespace}/{name}"
            assert (path in page) == ((namespace, name) in allowed), (user, name)
            shown = await guest.get(f"/ui/{path}")
            assert shown.status == (200 if (namespace, name) in allowed else 404), (user, path)
        assert ("ClusterIssuer office" in (await guest.get("/ui/issuers")).text) is (
            user in ("admin", "reader")
        )
        root = await guest.get("/ui/cas/default/ca.crt")
        assert root.status == (200 if user in ("admin", "reader") else 404)
        assert root.html.startswith("-----BEGIN CERTIFICATE-----") is (root.status == 200)
        assert root.html.count("BEGIN") == (root.status == 200)
        www = (await guest.get("/ui/certificates/shop/www")).text
        assert ("you may not get Secret www" in www) is (user in ("anna", "bob")), user


async def test_rights_that_are_withdrawn_are_gone(shop_world: World) -> None:
    anna = await visitor(shop_world, (await users_of(shop_world))["anna"])
    assert len((await anna.facts())["certificates"]) == 2
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/anna-shop"
    await shop_world.client.raw("DELETE", path)
    assert (await anna.facts())["certificates"] == []


@pytest.mark.parametrize(
    ("text", "status"),
    [("TOKEN", 303), ("KUBECONFIG", 303), ("nonsense", 401), ("a: [b", 401), ("users: []", 401), ("", 401)],
)
async def test_logging_in_by_a_pasted_credential(shop_world: World, text: str, status: int) -> None:
    token = await account(shop_world, "anna")
    users = f"users: [{{name: u, user: {{token: {token}}}}}]"
    kubeconfig = f"contexts: [{{name: c, context: {{user: u}}}}]\ncurrent-context: c\n{users}\n"
    given = text.replace("TOKEN", token).replace("KUBECONFIG", kubeconfig)
    site = handler_of(shop_world)
    response = await Visitor(site, token).ask("POST", "/ui/login", {"credential": given})
    assert response.status == status
    assert token.encode() not in response.body
