"""Dispatch: the function that handles a verb on a resource."""

from __future__ import annotations

from collections.abc import Mapping

from certwright.kube.apiserver import error_responses
from certwright.kube.apiserver.auth.service_accounts import ServiceAccounts
from certwright.kube.apiserver.crds.conversion import Verb
from certwright.kube.apiserver.model.backend import not_found
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.apiserver.verbs import creates, deletes, reads, scale, updates
from certwright.kube.apiserver.verbs.access_reviews import Reviews
from certwright.kube.apiserver.verbs.watch import Watches


class Dispatch:
    """The verbs of all resources, and the special handlers of some."""

    def __init__(self, watches: Watches, accounts: ServiceAccounts, reviews: Reviews) -> None:
        self._verbs: Mapping[str, Verb] = {
            "get": reads.get,
            "list": reads.list_objects,
            "watch": lambda _, call: watches.open(call),
            "create": creates.create,
            "update": updates.update,
            "patch": updates.patch,
            "delete": deletes.delete,
            "deletecollection": deletes.delete_collection,
        }
        self._special: Mapping[tuple[str, str, str], Verb] = {
            ("serviceaccounts", "token", "create"): accounts.create_token,
            **{(resource, "", "create"): reviews.create for resource in reviews.resources},
        }

    def find(self, definition: ResourceDefinition, route: Route, verb: str) -> Verb | None:
        """The handler; None where the path has no meaning. Raises `MethodNotAllowed`."""
        if route.namespace and not definition.namespaced:
            return None
        if route.name and definition.namespaced and not route.namespace:
            return None
        special = self._special.get((definition.resource, route.subresource, verb))
        if special is not None and bool(route.name) == bool(route.subresource):
            return special
        allowed = definition.verbs
        if route.subresource:
            part = definition.subresource(route.subresource)
            if part is not None and part.scale and verb in part.verbs:
                return scale.VERBS[verb]
            if part is None and (route.subresource != "status" or not definition.status_subresource):
                if definition.custom:
                    raise not_found(definition, route.name)
                return None
            allowed = part.verbs if part is not None else ("get", "update", "patch")
        on_object = verb not in ("list", "create", "deletecollection")
        # On create, the name in a custom object's path is ignored.
        misplaced = bool(route.name) != on_object and not (definition.custom and verb == "create")
        if verb not in allowed or (misplaced and verb != "watch"):
            raise error_responses.unsupported(definition, route, verb)
        if verb in ("create", "deletecollection") and definition.namespaced and not route.namespace:
            # Only lists and watches span namespaces: no request deletes the objects of all.
            if definition.custom:
                return None
            raise error_responses.no_method()
        return self._verbs[verb]
