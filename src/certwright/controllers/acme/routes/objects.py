"""The objects of HTTP-01 solvers, as JSON. Pure functions.

Source: cert-manager `pkg/issuer/acme/http` (names, labels and annotations); Kubernetes API reference, Service
v1, EndpointSlice v1 discovery.k8s.io, Ingress v1 networking.k8s.io; Gateway API reference, HTTPRoute v1.
"""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from certwright.acme.protocol.challenges import WELL_KNOWN
from certwright.controllers.acme.options import ClusterListener
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.util.encoding import is_ip_address
from certwright.resources.acme import Challenge
from certwright.resources.ingress import GATEWAY_GROUP
from certwright.resources.solver import HTTP01Gateway, HTTP01Ingress, ParentRef
from certwright.resources.table import CHALLENGES

Json = dict[str, Any]

SERVICES: Final[Kind[Json]] = Kind("", "v1", "Service", "services", "service", True, dict)
PODS: Final[Kind[Json]] = Kind("", "v1", "Pod", "pods", "pod", True, dict)
ENDPOINT_SLICES: Final[Kind[Json]] = Kind(
    "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice", True, dict
)
INGRESSES: Final[Kind[Json]] = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress", True, dict)
HTTP_ROUTES: Final[Kind[Json]] = Kind(GATEWAY_GROUP, "v1", "HTTPRoute", "httproutes", "httproute", True, dict)

SERVICE_PORT: Final = 8089
"""cert-manager's."""
PORT_NAME: Final = "http"
NAME: Final = "cm-acme-http-solver"
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
"""On an EndpointSlice: the Service that it belongs to."""
SOLVER_LABEL: Final = "acme.cert-manager.io/http01-solver"
"""On objects of HTTP-01 solvers: `true`. They are removed when their Challenge has ended."""
DOMAIN_LABEL: Final = "acme.cert-manager.io/http-domain"
"""On Ingresses and HTTPRoutes of HTTP-01 solvers: Adler-32 of the name."""
TOKEN_LABEL: Final = "acme.cert-manager.io/http-token"  # noqa: S105 - a label, no password
"""On Ingresses and HTTPRoutes of HTTP-01 solvers: Adler-32 of the token."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
_FROM_EVERYWHERE: Final = {"nginx.ingress.kubernetes.io/whitelist-source-range": "0.0.0.0/0,::/0"}
_NOT_TO_THE_MESH: Final = {f"auth.istio.io/{SERVICE_PORT}": "NONE"}
_NODE_PORT: Final = "NodePort"
US: Final = "certwright"


def service_name(service_type: str, shard: str) -> str:
    """The name of a namespace's Service of that type. Each shard has a Service of its own, so that one
    replica writes it; `shard` is "" without shards."""
    parts = [NAME, "" if service_type in ("", _NODE_PORT) else service_type.lower(), shard]
    return "-".join(part for part in parts if part)


def service_type_of(challenge: Challenge) -> str:
    """The type of Service that the solver of a Challenge asks for."""
    http01 = challenge.spec.solver.http01
    assert http01 is not None
    solver = http01.ingress or http01.gateway_http_route or HTTP01Ingress()
    return solver.service_type or _NODE_PORT


def service(namespace: str, name: str, service_type: str, listener: ClusterListener) -> Json:
    """The Service without a selector."""
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": listener.port}
    spec: Json = {"type": service_type, "ports": [port]}
    if len(_families(listener.addresses)) > 1:
        spec["ipFamilyPolicy"] = "PreferDualStack"
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": {**listener.labels, SOLVER_LABEL: "true", MANAGED_BY: US},
        "annotations": _NOT_TO_THE_MESH,
    }
    return {"metadata": meta, "spec": spec}


def endpoint_slices(owner: Json, listener: ClusterListener) -> list[Json]:
    """The EndpointSlices of the Service `owner`: one for each address family."""
    meta = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "Service", "name": meta["name"], "uid": meta["uid"]}
    return [
        {
            "metadata": {
                "name": f"{meta['name']}-{family.lower()}",
                "namespace": meta["namespace"],
                "labels": {
                    **listener.labels,
                    SERVICE_NAME_LABEL: meta["name"],
                    "endpointslice.kubernetes.io/managed-by": US,
                    SOLVER_LABEL: "true",
                },
                "ownerReferences": [reference],
            },
            "addressType": family,
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
            "ports": [{"name": PORT_NAME, "port": listener.port, "protocol": "TCP"}],
        }
        for family, addresses in _families(listener.addresses).items()
    ]


def _families(addresses: Sequence[str]) -> dict[str, list[str]]:
    families: dict[str, list[str]] = {}
    for address in addresses:
        families.setdefault(f"IPv{ipaddress.ip_address(address).version}", []).append(address)
    return families


def path_of(challenge: Challenge) -> str:
    """The path of the response."""
    return f"{WELL_KNOWN}{challenge.spec.token}"


def host_of(challenge: Challenge) -> str:
    """The host of the rule; empty, which is every host, for an IP address, as `Host` has no such value."""
    name = challenge.spec.dns_name
    return "" if is_ip_address(name) else name


def name_of(challenge: Challenge) -> str:
    """The name of the Ingress or HTTPRoute of a Challenge: the same after a restart."""
    return f"{NAME}-{challenge.metadata.uid[:8]}"


def ingress_rule(challenge: Challenge, service: str, listener: ClusterListener) -> Json:
    """The rule of an Ingress, with this path only."""
    backend = {"service": {"name": service, "port": {"number": SERVICE_PORT}}}
    path = {"path": path_of(challenge), "pathType": listener.path_type, "backend": backend}
    rule: Json = {"http": {"paths": [path]}}
    return {"host": host, **rule} if (host := host_of(challenge)) else rule


def ingress(challenge: Challenge, solver: HTTP01Ingress, service: str, listener: ClusterListener) -> Json:
    """The Ingress of a Challenge."""
    template = solver.ingress_template.metadata if solver.ingress_template is not None else None
    annotations = dict(_FROM_EVERYWHERE)
    if solver.class_ is not None:
        annotations[CLASS_ANNOTATION] = solver.class_
    labels = listener.labels
    if template is not None:
        annotations |= template.annotations
        labels = {**labels, **template.labels}
    spec: Json = {"rules": [ingress_rule(challenge, service, listener)]}
    if solver.ingress_class_name is not None:
        spec["ingressClassName"] = solver.ingress_class_name
    return {"metadata": _meta(challenge, labels) | {"annotations": annotations}, "spec": spec}


def http_route(challenge: Challenge, solver: HTTP01Gateway, service: str, listener: ClusterListener) -> Json:
    """The HTTPRoute of a Challenge."""
    spec: Json = {
        "parentRefs": [_parent(parent) for parent in solver.parent_refs],
        "rules": [
            {
                "matches": [{"path": {"type": "Exact", "value": path_of(challenge)}}],
                "backendRefs": [
                    {"group": "", "kind": "Service", "name": service, "port": SERVICE_PORT, "weight": 1}
                ],
            }
        ],
    }
    if host := host_of(challenge):
        spec["hostnames"] = [host]
    return {"metadata": _meta(challenge, {**listener.labels, **solver.labels}), "spec": spec}


def _parent(reference: ParentRef) -> Json:
    given: Json = msgspec.to_builtins(reference)
    return {key: value for key, value in given.items() if value is not None}


def _meta(challenge: Challenge, labels: Mapping[str, str]) -> Json:
    owner: ObjectMeta = challenge.metadata
    ours = {
        DOMAIN_LABEL: str(zlib.adler32(challenge.spec.dns_name.encode())),
        TOKEN_LABEL: str(zlib.adler32(challenge.spec.token.encode())),
        SOLVER_LABEL: "true",
        MANAGED_BY: US,
    }
    return {
        "name": name_of(challenge),
        "namespace": owner.namespace,
        "labels": {**labels, **ours},
        # It does not block the Challenge's deletion, which would need a right to challenges/finalizers.
        "ownerReferences": [
            {"apiVersion": CHALLENGES.api_version, "kind": CHALLENGES.kind}
            | {"name": owner.name, "uid": owner.uid, "controller": True}
        ],
    }
