"""What is said of a request that does not fit what it names: no such path, no such method, no such form.

Custom resources have a handler of their own in Kubernetes, and with it words of their own. Source: apiserver
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
    """The answer of a path that names nothing."""
    return Response(404, dict(_TEXT), b"404 page not found\n")


def no_resource() -> NotFound:
    """A group with built-in kinds has no resource of that name."""
    return NotFound("the server could not find the requested resource", details=Details())


def no_method() -> MethodNotAllowed:
    """A built-in kind, or a document, does not do that."""
    return MethodNotAllowed(
        "the server does not allow this method on the requested resource", details=Details()
    )


def no_verb(definition: ResourceDefinition, route: Route) -> Response:
    """The answer of a path that means nothing to the resource. Raises `NotFound`."""
    if not definition.custom:
        raise no_resource()
    if route.subresource and bool(route.namespace) == definition.namespaced:
        raise not_found(definition, route.name)
    return nowhere()


def unsupported(definition: ResourceDefinition, route: Route, verb: str) -> ApiError:
    """The resource does not do that; or, for custom resources, the path lacks what the verb needs."""
    if not definition.custom:
        return no_method()
    if verb in ("update", "patch") and not route.name and not route.subresource:
        return BadRequest("name must be provided")
    return not_supported(definition, verb)


def check_first(call: Call) -> None:
    """What is said before a form that nobody can give is refused.

    Raises `BadRequest` and `Invalid` for a list or watch that is asked for as none may be, and
    `UnsupportedMediaType` for a patch of no known kind.
    """
    if call.verb in ("list", "watch"):
        paging.check_query(call.query, watch=call.verb == "watch")
        selectors.parse_labels(call.query.get("labelSelector", ""))
        selectors.parse_fields(call.query.get("fieldSelector", ""))
    elif call.verb == "patch":
        updates.check_media(call)


async def unfit(call: Call, response: Response) -> Response | None:
    """The refusal of an answer in a form that it cannot have; None where it can.

    As in Kubernetes it comes when the work is done. An event that cannot be shown ends the stream without a
    word.
    """
    if response.status >= 300 or response.body.startswith(b'{"kind":"Status"'):
        return None
    if call.form.shape is Shape.TABLE:
        return _without_table(call)
    wanted, many = call.form.plural, call.verb in ("list", "deletecollection")
    if wanted == many or (call.verb == "watch" and not wanted):
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
    """The name of the type that Kubernetes keeps these objects in."""
    package = definition.group.partition(".")[0] if definition.group else "core"
    return f"*{package}.{definition.kind}{suffix}"


async def close_stream(response: Response) -> None:
    """Let go of a stream that nobody is going to read."""
    close = getattr(response.stream, "aclose", None)
    if close is not None:
        await close()
