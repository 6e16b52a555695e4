"""Somebody else's kind of issuer, and what approvers and external issuers do to a request."""

from __future__ import annotations

from typing import Any

import msgspec

from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.kube.util.http_messages import Request
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.scene import make_certificate
from support.world import ADMIN, World


async def mark(world: World, name: str, kind: str, reason: str = "test", **status: Any) -> None:
    """Set a condition of a request as an approver or an external issuer does."""
    request = await world.get(CERTIFICATE_REQUESTS, name)
    new = Condition(type=kind, status="True", reason=reason, message=f"it is {kind}")
    if kind == "Failed":
        new = Condition(type="Ready", status="False", reason="Failed", message="the issuer said no")
    updated = conditions.with_condition(request.status.conditions, new, world.clock.now())
    await world.client.patch(
        CERTIFICATE_REQUESTS,
        name,
        "default",
        {"status": {"conditions": updated, **status}},
        subresource="status",
    )
    await world.settle()


async def admin_creates(world: World, path: str, **body: Any) -> None:
    """Create an object of a kind that has no struct."""
    request = Request("POST", path, body=msgspec.json.encode(body), user=ADMIN)
    response = await world.server.handle(request)
    assert response.status == 201, response.body


async def serve_things(world: World) -> None:
    """Somebody else's kind of issuer."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await admin_creates(world, path, metadata={"name": "things.example.com"}, spec=spec)


async def let_approve_things(world: World) -> None:
    """What whoever installs such an issuer has to grant."""
    path = "/apis/rbac.authorization.k8s.io/v1"
    rule = {
        "verbs": ["approve"],
        "apiGroups": ["cert-manager.io"],
        "resources": ["signers"],
        "resourceNames": ["things.example.com/*"],
    }
    name = {"name": "approve-things"}
    await admin_creates(world, f"{path}/clusterroles", metadata=name, rules=[rule])
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **name}
    subject = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": "cert-manager"}
    await admin_creates(world, f"{path}/clusterrolebindings", metadata=name, roleRef=ref, subjects=[subject])


async def external(world: World) -> None:
    """A Certificate `web` whose issuer is somebody else's controller."""
    await serve_things(world)
    await let_approve_things(world)
    await ask_a_thing(world)


async def ask_a_thing(world: World) -> None:
    """A Certificate `web` that such an issuer is to sign."""
    made = make_certificate(
        "web", "x", issuer_ref=IssuerReference(name="x", kind="Thing", group="example.com")
    )
    await world.create(CERTIFICATES, made)
    await world.settle()
