"""Dispatch: the function that handles a verb on a resource."""

from __future__ import annotations

from collections.abc import Mapping

from certwright.kube.apiserver import error_responses
from certwright.kube.apiserver.auth.service_accounts import ServiceAccounts
from certwright.kube.apiserver.crds.conversion import Verb
from certwright.kube.apiserver.model.backend import not_found
from certwright.kube.apiserver.model.definitions import ResourceDefinition, Subresource
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.apiserver.verbs import creates, deletes, reads, scale, updates
from certwright.kube.apiserver.verbs.access_reviews import Reviews
from certwright.kube.apiserver.verbs.watch import Watches

_ACROSS_NAMESPACES = frozenset({"list", "watch"})
_ON_COLLECTION = _ACROSS_NAMESPACES | {"create", "deletecollection"}
_WATCHED = frozenset({"watch"})
_ON_OBJECT = frozenset({"get", "update", "patch", "delete"})


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
        part = definition.subresource(route.subresource)
        if not definition.custom:
            allowed = _verbs_at(definition, route, part)
            if allowed and verb not in allowed:
                raise error_responses.no_method()
            special = self._special.get((definition.resource, route.subresource, verb))
            if special is not None and allowed:
                return special
        else:
            if route.subresource and part is None:
                raise not_found(definition, route.name)
            allowed = frozenset(part.verbs if part is not None else definition.verbs)
            if verb not in allowed or _is_misplaced(route, verb):
                raise error_responses.unsupported(definition, route, verb)
            if verb in ("create", "deletecollection") and definition.namespaced and not route.namespace:
                return None
        if not allowed:
            return None
        return scale.VERBS[verb] if part is not None and part.scale else self._verbs[verb]


def _verbs_at(definition: ResourceDefinition, route: Route, part: Subresource | None) -> frozenset[str]:
    """The verbs of a built-in kind at a path, whatever the namespace and name; empty: no such path."""
    if route.subresource:
        return frozenset() if part is None or route.watched else frozenset(part.verbs)
    possible = _ON_COLLECTION
    if route.watched:
        possible = _WATCHED
    elif route.name:
        possible = _ON_OBJECT
    elif definition.namespaced and not route.namespace:
        # Only lists and watches span namespaces: no request deletes the objects of all.
        possible = _ACROSS_NAMESPACES
    return possible.intersection(definition.verbs)


def _is_misplaced(route: Route, verb: str) -> bool:
    """Whether a verb does not fit a path of a custom resource with or without a name."""
    if verb in ("watch", "create"):
        return False  # on create, the name in the path is ignored
    return bool(route.name) != (verb not in ("list", "deletecollection"))
