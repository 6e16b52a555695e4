"""Annotations of a Certificate that change the HTTP-01 solver of its Challenges.

Source: cert-manager documentation, "Supported Annotations"; `pkg/controller/acmeorders/util.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from certwright.controllers.shims import annotations as known
from certwright.resources.ingress import EXPERIMENTAL_LISTENER_SETS, GATEWAY_GROUP
from certwright.resources.solver import HTTP01Gateway, HTTP01Ingress, ParentRef, Solver


def overridden(solver: Solver, annotations: Mapping[str, str], namespace: str) -> Solver:
    """The solver as the annotations of an Order of that namespace, which are those of its Certificate, change
    it."""
    http01 = solver.http01
    if http01 is None:
        return solver
    if http01.ingress is not None:
        return replace(solver, http01=replace(http01, ingress=_ingress(http01.ingress, annotations)))
    if http01.gateway_http_route is not None:
        route = _route(http01.gateway_http_route, annotations, namespace)
        return replace(solver, http01=replace(http01, gateway_http_route=route))
    return solver


def _ingress(ingress: HTTP01Ingress, annotations: Mapping[str, str]) -> HTTP01Ingress:
    if name := annotations.get(known.OVERRIDE_NAME):
        return replace(ingress, name=name, class_=None, ingress_class_name=None)
    if class_name := annotations.get(known.OVERRIDE_CLASS_NAME):
        return replace(ingress, name="", class_=None, ingress_class_name=class_name)
    if class_ := annotations.get(known.OVERRIDE_CLASS):
        return replace(ingress, name="", class_=class_, ingress_class_name=None)
    return ingress


def _route(route: HTTP01Gateway, annotations: Mapping[str, str], namespace: str) -> HTTP01Gateway:
    """With the annotations' parent beside those of the solver, unless it is one of them."""
    name = annotations.get(known.PARENT_NAME)
    if not name:
        return route
    kind = annotations.get(known.PARENT_KIND) or None
    parent = ParentRef(
        group=EXPERIMENTAL_LISTENER_SETS.group if kind == EXPERIMENTAL_LISTENER_SETS.kind else None,
        kind=kind,
        namespace=annotations.get(known.PARENT_NAMESPACE) or None,
        name=name,
    )
    if any(_identity(other, namespace) == _identity(parent, namespace) for other in route.parent_refs):
        return route
    return replace(route, parent_refs=(*route.parent_refs, parent))


def _identity(parent: ParentRef, namespace: str) -> tuple[str, str, str, str]:
    """Which object it names: a parent's sections and ports are one object."""
    group = GATEWAY_GROUP if parent.group is None else parent.group
    return group, parent.kind or "Gateway", parent.namespace or namespace, parent.name
