"""Error responses for requests that do not match a resource: unknown path, method or media type.

In Kubernetes a separate handler serves custom resources, with separate messages. Source: apiserver
`pkg/endpoints/handlers` (response.go), apiextensions-apiserver `pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    Details,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
)
from certwright.kube.apiserver.model.backend import Call, not_found, not_supported
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import Shape
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.apiserver.requests import forms, selectors
from certwright.kube.apiserver.verbs import paging, reads, updates
from certwright.kube.util.http_messages import Response

_TEXT = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


def nowhere() -> Response:
    """The 404 of an unknown path."""
    return Response(404, dict(_TEXT), b"404 page not found\n")


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
    return not_supported(definition, verb)


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
    """The refusal of an answer that does not exist in the negotiated form; None where it does.

    As in Kubernetes it comes after the work. An event that cannot be shown ends the stream without an error.
    """
    if response.status >= 300 or response.body.startswith(b'{"kind":"Status"'):
        return None
    if call.form.shape is Shape.TABLE:
        return _without_table(call)
    plural, many = call.form.plural, call.verb in ("list", "deletecollection")
    if plural == many or (call.verb == "watch" and not plural):
        return None
    if response.stream is not None:
        await close_stream(response)
        if call.verb == "watch":
            return Response(200, forms.headers(call), b"")
    return forms.failure(_wrong_number(call.definition, many=many), call.warnings)


def _without_table(call: Call) -> Response | None:
    try:
        reads.check_table(call)
    except BadRequest as error:
        return forms.failure(error, call.warnings)
    return None


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


async def close_stream(response: Response) -> None:
    """Close a stream that will not be read."""
    close = getattr(response.stream, "aclose", None)
    if close is not None:
        await close()
