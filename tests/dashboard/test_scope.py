"""What pages show of a resource is what the API answers to the user's own requests for lists."""

from __future__ import annotations

from typing import Any

from certwright.dashboard.index import scope_of
from certwright.kube.api.errors import Forbidden
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity
from certwright.resources import plain_kinds
from support.visitor import grant, patch, post
from support.world import World, make_world

Json = dict[str, Any]
Rule = tuple[str, str, str, str]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACES = ("shop", "bank", "news")
NAMES = ("a", "b")
KINDS = (plain_kinds.CERTIFICATES, plain_kinds.ISSUERS, plain_kinds.DELIVERIES)


def rule(
    verbs: str, resources: str = "certificates", group: str = "cert-manager.io", names: str = ""
) -> Rule:
    """A rule, as `grant` takes them."""
    return verbs, group, resources, names


USERS: dict[str, dict[str, list[Rule]]] = {
    "may do nothing": {},
    "may list all": {"*": [rule("list")]},
    "may do all": {"*": [rule("*", "*", "*")]},
    "may list one namespace": {"shop": [rule("list", "certificates issuers")]},
    "may list two namespaces": {"shop": [rule("get list watch", "*", "*")], "bank": [rule("list", "*")]},
    "may get some by name": {"shop": [rule("get", names="a c")]},
    "may get and list some by name": {"shop": [rule("get list", "certificates issuers", names="b")]},
    "may list one by name": {"shop": [rule("list", names="a")], "bank": [rule("list", names="b")]},
    "may get some by name, everywhere": {"*": [rule("get list", names="a")]},
    "may list one namespace, and another's by name": {
        "shop": [rule("list")],
        "news": [rule("get", names="b")],
    },
    "may list Deliveries": {"bank": [rule("list", "deliveries", "certwright.io")]},
    "may list another group's": {"*": [rule("list", "certificates", "certificates.k8s.io")]},
    "may list a subresource": {"shop": [rule("get list", "certificates/status")]},
    "may watch and write": {"shop": [rule("watch create update patch delete")]},
}
"""Users by what they may do: rules by namespace; `*`: in all of them."""


async def _fill(world: World, namespace: str) -> None:
    spec: dict[str, Json] = {
        "certificates": {"secretName": "s", "dnsNames": ["a.example.com"], "issuerRef": {"name": "a"}},
        "issuers": {"selfSigned": {}},
        "deliveries": {"root": "web", "path": "a", "certificateRef": {"name": "a"}},
    }
    await post(world, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for kind in KINDS:
        for name in NAMES:
            metadata = {"name": name, "namespace": namespace}
            await world.client.create(kind, {"metadata": metadata, "spec": spec[kind.plural]})


def _client(world: World, user: str, *groups: str) -> Client:
    identity = Identity(user, groups=(*groups, "system:authenticated"))
    return Client(LocalTransport(world.server.handle, identity), user_agent="test")


async def _answered(client: Client, kind: plain_kinds.JsonKind) -> set[tuple[str, str]]:
    """What the API shows to the user who knows the names of objects, and may not `get` whole namespaces."""
    found = set()
    for namespace in NAMESPACES:
        for fields in ("", *(f"metadata.name={name}" for name in NAMES)):
            try:
                items = (await client.list(kind, namespace, fields=fields)).items
            except Forbidden:
                continue
            found |= {(namespace, item["metadata"]["name"]) for item in items}
        for name in NAMES:
            try:
                await client.get(kind, name, namespace)
            except Forbidden:
                continue
            found.add((namespace, name))
    return found


async def _shown(client: Client, kind: plain_kinds.JsonKind) -> set[tuple[str, str]]:
    scope = await scope_of(client, kind.group, kind.plural, NAMESPACES, {})
    return {(place, name) for place in NAMESPACES for name in NAMES if scope.allows(place, name)}


async def test_users_see_what_the_api_answers() -> None:
    async with make_world(controllers=False) as world:
        for namespace in NAMESPACES:
            await _fill(world, namespace)
        for user, places in USERS.items():
            for place, rules in places.items():
                await grant(world, user, *rules, namespace="" if place == "*" else place)
        # A ClusterRole within a namespace, and one that is aggregated from others.
        await grant(world, "lists", rule("list"))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lists-all"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "has a ClusterRole"}
        binding = {"metadata": {"name": "lists"}, "roleRef": role, "subjects": [subject]}
        await post(world, f"{RBAC}/namespaces/news/rolebindings", binding)
        await grant(world, "has a sum")
        sums = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}}
        await patch(world, f"{RBAC}/clusterroles/has%20a%20sum-all", sums)
        await grant(world, "part", rule("list", "issuers"))
        await patch(world, f"{RBAC}/clusterroles/part-all", {"metadata": {"labels": {"part": "yes"}}})
        await world.settle()
        clients = {user: _client(world, user) for user in (*USERS, "has a ClusterRole", "has a sum")}
        clients["is an administrator"] = _client(world, "root", "system:masters")
        seen = {}
        for user, client in clients.items():
            for kind in KINDS:
                seen[user, kind.plural] = await _answered(client, kind)
                assert await _shown(client, kind) == seen[user, kind.plural], (user, kind.plural)
        assert len(seen["has a sum", "issuers"]) == len(seen["is an administrator", "deliveries"]) == 6
        assert seen["has a ClusterRole", "certificates"] == {("news", "a"), ("news", "b")}
        # Who may only `get`, without names, may not know which there are.
        await grant(world, "may get what is guessed", rule("get"), namespace="shop")
        assert not await _shown(_client(world, "may get what is guessed"), plain_kinds.CERTIFICATES)
