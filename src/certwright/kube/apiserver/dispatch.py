"""Dispatch: the function that handles a verb on a resource, and the errors where there is none.

In Kubernetes a separate handler serves custom resources, with separate messages. Source: apiserver
`pkg/endpoints/handlers` (response.go), apiextensions-apiserver `pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    Details,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
)
from certwright.kube.apiserver.auth.service_accounts import ServiceAccounts
from certwright.kube.apiserver.crds.conversion import Verb
from certwright.kube.apiserver.model.backend import Call, details, not_found
from certwright.kube.apiserver.model.definitions import ResourceDefinition, Subresource
from certwright.kube.apiserver.model.negotiation import Shape
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.requests import selectors
from certwright.kube.apiserver.verbs import creates, deletes, paging, reads, scale, updates
from certwright.kube.apiserver.verbs.access_reviews import AccessReviews
from certwright.kube.apiserver.verbs.watch import Watches
from certwright.kube.util.http_messages import Response, close_stream


def nowhere() -> Response:
    """The 404 of an unknown path."""
    return responses.text(404, "404 page not found\n")


def no_resource() -> NotFound:
    """The 404 of an unknown resource in a group with built-in kinds."""
    return NotFound("the server could not find the requested resource", details=Details())


def no_method() -> MethodNotAllowed:
    """The 405 of a built-in kind, or of a document."""
    return MethodNotAllowed(
        "the server does not allow this method on the requested resource", details=Details()
    )


def no_verb(definition: ResourceDefinition, route: Route) -> Response:
    """The answer of a path without meaning for the resource. Raises `NotFound`."""
    if not definition.custom:
        raise no_resource()
    if route.subresource and bool(route.namespace) == definition.namespaced:
        raise not_found(definition, route.name)
    return nowhere()


def unsupported(definition: ResourceDefinition, route: Route, verb: str) -> ApiError:
    """The 405 of the resource; or, for custom resources, of a path that lacks what the verb needs."""
    if not definition.custom:
        return no_method()
    if verb in ("update", "patch") and not route.name and not route.subresource:
        return BadRequest("name must be provided")
    text = f'{verb} is not supported on resources of kind "{definition.resource}"'
    return MethodNotAllowed(text, details=details(definition))


def check_first(call: Call) -> None:
    """The checks that precede the refusal of an unsupported media type.

    Raises `BadRequest` and `Invalid` for invalid parameters of a list or watch, and `UnsupportedMediaType`
    for an unknown patch type.
    """
    if call.verb in ("list", "watch"):
        paging.check_query(call.query, watch=call.verb == "watch")
        selectors.parse_labels(call.query.get("labelSelector", ""))
        selectors.parse_fields(call.query.get("fieldSelector", ""))
    elif call.verb == "patch":
        updates.check_media(call)


async def unfit(call: Call, response: Response) -> Response | None:
    """The refusal of an answer that lacks the negotiated form; None if it has the form.

    As in Kubernetes, the refusal follows the work. Such an event ends the stream without an error.
    """
    if response.status >= 300 or response.body.startswith(b'{"kind":"Status"'):
        return None
    if call.form.shape is Shape.TABLE:
        try:
            reads.check_table(call)
        except BadRequest as error:
            return responses.failure(error, call.warnings)
        return None
    plural, many = call.form.plural, call.verb in ("list", "deletecollection")
    if plural == many or (call.verb == "watch" and not plural):
        return None
    if response.stream is not None:
        await close_stream(response.stream)
        if call.verb == "watch":
            return Response(200, responses.headers(call), b"")
    return responses.failure(_wrong_number(call.definition, many=many), call.warnings)


def _wrong_number(definition: ResourceDefinition, *, many: bool) -> ApiError:
    if many:
        name = "*unstructured.UnstructuredList" if definition.custom else _go_type(definition, "List")
        text = f"you requested PartialObjectMetadata, but the requested object is a list ({name})"
        return NotAcceptable(text)
    if definition.custom:
        return ApiError("content is not a list")
    name = _go_type(definition, "")
    return NotAcceptable(
        f"you requested PartialObjectMetadataList, but the requested object is not a list ({name})"
    )


def _go_type(definition: ResourceDefinition, suffix: str) -> str:
    """The name of the Go type that Kubernetes stores these objects in."""
    package = definition.group.partition(".")[0] if definition.group else "core"
    return f"*{package}.{definition.kind}{suffix}"


_ACROSS_NAMESPACES = frozenset({"list", "watch"})
_ON_COLLECTION = _ACROSS_NAMESPACES | {"create", "deletecollection"}
_WATCHED = frozenset({"watch"})
_OF_MANY = frozenset({"list", "deletecollection"})
_ON_OBJECT = frozenset({"get", "update", "patch", "delete"})


class Dispatch:
    """The verbs of all resources, and the special handlers of some."""

    def __init__(self, watches: Watches, accounts: ServiceAccounts, reviews: AccessReviews) -> None:
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
                raise no_method()
            special = self._special.get((definition.resource, route.subresource, verb))
            if special is not None and allowed:
                return special
        else:
            if route.subresource and part is None:
                raise not_found(definition, route.name)
            allowed = frozenset(part.verbs if part is not None else definition.verbs)
            # Lists have no name in their path, and a name in that of a create is ignored.
            fits = verb in ("watch", "create") or bool(route.name) != (verb in _OF_MANY)
            if verb not in allowed or not fits:
                raise unsupported(definition, route, verb)
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
