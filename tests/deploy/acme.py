"""An ACME issuer at a fake CA."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from acme.fake_ca import FakeCa
from certwright.controllers.acme.routes import objects
from certwright.kube.api import codec
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.acme import Challenge, ChallengeSpec
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver
from certwright.resources.table import CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS, ISSUERS
from controllers.scene import make_certificate
from support.world import World

Json = dict[str, Any]


async def create_issuer(world: World, ca: FakeCa, namespace: str = "default") -> None:
    """Make an Issuer `acme` that proves names by HTTP-01, and does not look for the proof itself. Without a
    namespace it is a ClusterIssuer."""
    spec = {
        "server": ca.directory,
        "privateKeySecretRef": {"name": "account"},
        "solvers": [{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "0s"}],
    }
    meta = {"name": "acme", "namespace": namespace}
    obj = {"apiVersion": ISSUERS.api_version, "kind": "Issuer", "metadata": meta, "spec": {"acme": spec}}
    if namespace:
        await world.create(ISSUERS, codec.from_dict(ISSUERS, obj))
    else:
        obj |= {"kind": "ClusterIssuer", "metadata": {"name": "acme"}}
        await world.create(CLUSTER_ISSUERS, codec.from_dict(CLUSTER_ISSUERS, obj))
    await world.settle()


async def prove_by_routes(world: World, ca: FakeCa, namespace: str) -> None:
    """Prove names by an Ingress that exists, and by an HTTPRoute. What an ended Challenge has left is
    removed."""
    solvers: list[Json] = [
        {"http01": {"ingress": {"name": "web"}}, "selector": {"dnsZones": ["edited.org"]}},
        {"http01": {"gatewayHTTPRoute": {"parentRefs": [{"name": "gate"}]}}},
    ]
    spec = {
        "server": ca.directory,
        "privateKeySecretRef": {"name": "routes-account"},
        "solvers": [{**solver, "waitInsteadOfSelfCheck": "0s"} for solver in solvers],
    }
    meta = {"name": "routes", "namespace": namespace}
    obj = {"apiVersion": ISSUERS.api_version, "kind": "Issuer", "metadata": meta, "spec": {"acme": spec}}
    await world.create(ISSUERS, codec.from_dict(ISSUERS, obj))
    dns_names = ("a.edited.org", "b.example.org")
    await world.create(
        CERTIFICATES, make_certificate("routed", "routes", namespace=namespace, dns_names=dns_names)
    )
    await _leave_objects(world, namespace)
    await world.advance(timedelta(hours=2))
    assert await world.is_ready("routed", namespace)
    for kind in (objects.PODS, objects.SERVICES, objects.INGRESSES, objects.HTTP_ROUTES):
        left = (await world.client.list(kind, namespace, labels=f"{objects.SOLVER_LABEL}=true")).items
        assert left == [], kind.kind
    await world.client.delete(CERTIFICATES, "routed", namespace)


async def _leave_objects(world: World, namespace: str) -> None:
    """Objects as cert-manager's solver makes them, of a Challenge that has ended."""
    challenge = ChallengeSpec(
        url="https://ca.example/ended",
        authorization_url="https://ca.example/authorization",
        dns_name="ended.example.org",
        type="HTTP-01",
        token="token",
        key="key",
        solver=Solver(),
        issuer_ref=IssuerReference(name="acme"),
    )
    draft = Challenge(metadata=ObjectMeta(name="ended", namespace=namespace), spec=challenge)
    ended = await world.client.create(CHALLENGES, draft)
    status = {"status": {"state": "invalid"}}
    await world.client.patch(CHALLENGES, "ended", namespace, status, subresource="status")
    meta = {
        "name": "ended",
        "namespace": namespace,
        "labels": {objects.SOLVER_LABEL: "true"},
        "ownerReferences": [msgspec.to_builtins(controller_reference(CHALLENGES, ended.metadata))],
    }
    specs: dict[str, Json] = {
        "Pod": {"containers": [{"name": "acmesolver", "image": "acmesolver"}]},
        "Service": {"ports": [{"port": 8089}]},
        "Ingress": {"rules": [{"host": "ended.example.org"}]},
        "HTTPRoute": {},
    }
    for kind in (objects.PODS, objects.SERVICES, objects.INGRESSES, objects.HTTP_ROUTES):
        await world.create(kind, {"metadata": meta, "spec": specs[kind.kind]})
