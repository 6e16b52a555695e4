"""A shop with certificates, its users with real tokens, and visits to the dashboard of one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from certwright.app.dashboard import DashboardHandler
from certwright.app.options import ServeOptions
from certwright.diagnosis import related
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS
from controllers.scene import Scene, make_certificate, make_cluster_issuer
from support.world import ADMIN, World, make_world

Json = dict[str, Any]
RULES: Mapping[str, list[Json]] = {
    "admin": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    "reader": [
        {"apiGroups": ["cert-manager.io", "certwright.io", ""], "resources": ["*"], "verbs": ["get", "list"]}
    ],
    "anna": [
        {"apiGroups": ["cert-manager.io"], "resources": ["*"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ],
    "bob": [
        {
            "apiGroups": ["cert-manager.io"],
            "resources": ["certificates"],
            "resourceNames": ["www"],
            "verbs": ["get"],
        }
    ],
    "eve": [],
}
"""Who may do what: `admin` and `reader` everywhere, `anna` and `bob` in namespace shop, `eve` nothing."""


class Dashboard:
    """The world, its dashboard, and the tokens of its users."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        serve = ServeOptions(data_dir=Path("none"), **options)
        self.handler = DashboardHandler(world.server, lambda: serve, world.clock, system=ADMIN, seal_key=b"k")
        self.tokens: dict[str, str] = {}

    async def post_object(self, path: str, content: Json) -> Json:
        """Create an object as the administrator."""
        body, headers = msgspec.json.encode(content), {"content-type": "application/json"}
        response = await self.world.client.raw("POST", path, body=body, headers=headers)
        return msgspec.json.decode(response.body, type=Json)

    async def add_user(self, name: str) -> None:
        """A ServiceAccount with the rules of that name, and its token."""
        await self.post_object("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
        place = "" if name in ("admin", "reader") else "namespaces/shop/"
        role, binding = ("roles", "rolebindings") if place else ("clusterroles", "clusterrolebindings")
        rbac = f"/apis/rbac.authorization.k8s.io/v1/{place}"
        await self.post_object(f"{rbac}{role}", {"metadata": {"name": f"of-{name}"}, "rules": RULES[name]})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        kind = "Role" if place else "ClusterRole"
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": f"of-{name}"}
        body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        await self.post_object(f"{rbac}{binding}", body)
        path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86_400},
        }
        self.tokens[name] = (await self.post_object(path, review))["status"]["token"]

    def client_of(self, name: str) -> Client:
        """The API as that user, for comparison."""
        groups = ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
        identity = Identity(f"system:serviceaccount:default:{name}", groups=groups)
        return Client(LocalTransport(self.world.server.handle, identity), user_agent="test")

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        """The dashboard's response. Header names have `_` for `-`."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.handler.handle(Request(method, path, fields, body))

    async def get(self, user: str, path: str) -> str:
        """A page, as that user with a bearer token."""
        response = await self.ask(
            "GET", path, authorization=f"Bearer {self.tokens[user]}", accept="text/html"
        )
        assert response.status == 200, (path, response.status, response.body)
        return response.body.decode()

    async def status(self, user: str, query: str = "") -> Json:
        """`/ui/status.json`, as that user."""
        return msgspec.json.decode(await self.get(user, f"/ui/status.json{query}"), type=Json)


@asynccontextmanager
async def shop(**options: Any) -> AsyncIterator[Dashboard]:
    """Four certificates in two namespaces: `ca`, `www` and `api` ready, `lost` without its issuer; an ACME
    issuer that cannot be reached; and five users."""
    async with make_world() as world:
        scene = Scene(world)
        await scene.add_ca()
        await world.settle()
        await world.client.create(related.NAMESPACES, {"metadata": {"name": "shop"}})
        spec = (await world.get(ISSUERS, "ca")).spec
        secret = await world.client.get(related.SECRETS, "ca", "default")
        copy = {
            "metadata": {"name": "ca", "namespace": "kube-system"},
            "type": secret["type"],
            "data": secret["data"],
        }
        await world.client.create(related.SECRETS, copy)
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("office", spec))
        await world.create(CERTIFICATES, make_certificate("api", "ca"))
        for name, issuer in (("www", "office"), ("lost", "nowhere")):
            made = make_certificate(name, issuer, kind="ClusterIssuer", namespace="shop")
            await world.create(CERTIFICATES, made)
        await world.settle()
        dashboard = Dashboard(world, **options)
        try:
            for name in RULES:
                await dashboard.add_user(name)
            yield dashboard
        finally:
            await dashboard.handler.close()
