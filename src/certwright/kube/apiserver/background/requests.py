"""Requests of the server's own controllers, in the form that Kubernetes' controllers send.

So admission webhooks are called for every deletion or change, by a controller as by a client, and see a user
that they know.

Source: Kubernetes documentation, "Dynamic Admission Control"; kube-controller-manager's use of one
ServiceAccount for each controller.
"""

from __future__ import annotations

from functools import cache

from certwright.kube.apiserver.auth.authentication import AUTHENTICATED
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import WHOLE
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.apiserver.requests.patch import MERGE
from certwright.kube.store.contract import Key, Row
from certwright.kube.util.http_messages import Identity, Request

GARBAGE_COLLECTOR, NAMESPACES = "generic-garbage-collector", "namespace-controller"
"""The controllers, by their ServiceAccounts."""
_HOME = "kube-system"
_AGENT = "kube-controller-manager"


@cache
def identity(controller: str) -> Identity:
    """The user of a controller."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{_HOME}", AUTHENTICATED)
    return Identity(f"system:serviceaccount:{_HOME}:{controller}", groups=groups)


def deletion(controller: str, definition: ResourceDefinition, row: Row, policy: str = "") -> Call:
    """The DELETE of the object of `row`, and of no later one of the same name."""
    key, user = row.key, identity(controller)
    options: Json = {"preconditions": {"uid": objects.uid_of(row.meta)}}
    if policy:
        options["propagationPolicy"] = policy
    request = Request("DELETE", _target(definition, key), body=objects.encode_json(options), user=user)
    return Call(request, user, "delete", definition, _route(definition, key), {}, WHOLE)


def patch(controller: str, definition: ResourceDefinition, key: Key) -> Call:
    """A PATCH of an object, whatever it changes."""
    user, headers = identity(controller), {"user-agent": _AGENT, "content-type": MERGE}
    request = Request("PATCH", _target(definition, key), headers, b"{}", user=user)
    return Call(request, user, "patch", definition, _route(definition, key), {}, WHOLE)


def _target(definition: ResourceDefinition, key: Key) -> str:
    base = f"/apis/{definition.api_version}" if definition.group else f"/api/{definition.version}"
    inside = f"/namespaces/{key.namespace}" if key.namespace else ""
    return f"{base}{inside}/{definition.plural}/{key.name}"


def _route(definition: ResourceDefinition, key: Key) -> Route:
    return Route(definition.group, definition.version, key.namespace, definition.plural, key.name, "")
