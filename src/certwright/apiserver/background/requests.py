"""What the server's own controllers ask for, as the requests that Kubernetes' controllers send.

So admission webhooks are asked about a deletion whoever it comes from, and see a user that they know.

Source: Kubernetes documentation, "Dynamic Admission Control"; kube-controller-manager's use of one
ServiceAccount for each controller.
"""

from __future__ import annotations

from functools import cache

from certwright.apiserver import objects
from certwright.apiserver.backend import Call
from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.representations.negotiation import WHOLE
from certwright.apiserver.routes import Route
from certwright.apiserver.users.auth import AUTHENTICATED
from certwright.kit.exchange import Identity, Request
from certwright.store.contract import Row

GARBAGE_COLLECTOR, NAMESPACES = "generic-garbage-collector", "namespace-controller"
"""The controllers, by their ServiceAccounts."""
_HOME = "kube-system"


@cache
def identity(controller: str) -> Identity:
    """The user that a controller is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{_HOME}", AUTHENTICATED)
    return Identity(f"system:serviceaccount:{_HOME}:{controller}", groups=groups)


def deletion(controller: str, definition: ResourceDefinition, row: Row, policy: str = "") -> Call:
    """The DELETE of the object of `row`, and of no later one of its name."""
    key, user = row.key, identity(controller)
    options: objects.Json = {"preconditions": {"uid": objects.uid_of(row.meta)}}
    if policy:
        options["propagationPolicy"] = policy
    base = f"/apis/{definition.api_version}" if definition.group else f"/api/{definition.version}"
    inside = f"/namespaces/{key.namespace}" if key.namespace else ""
    target = f"{base}{inside}/{definition.plural}/{key.name}"
    request = Request("DELETE", target, body=objects.encode_json(options), user=user)
    route = Route(definition.group, definition.version, key.namespace, definition.plural, key.name, "")
    return Call(request, user, "delete", definition, route, {}, WHOLE)
