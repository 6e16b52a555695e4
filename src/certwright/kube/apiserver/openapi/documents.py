"""OpenAPI documents of the served resources.

`kubectl explain` reads its texts here, and kubectl checks here whether a resource supports `fieldValidation`.

A document is built on first request, and cached compressed until the registry changes.

Source: OpenAPI 3.0.3; KEP-2896 (OpenAPI v3: an index with hashes, one document per group and version);
Kubernetes documentation, "OpenAPI V3".
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Iterable
from email.utils import formatdate
from functools import partial
from urllib.parse import parse_qs

import msgspec

from certwright import __version__
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model import offload
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.openapi import proto
from certwright.kube.apiserver.openapi import schemas as openapi_schemas
from certwright.kube.apiserver.openapi.operations import Operation, Parameter, paths
from certwright.kube.apiserver.representations.discovery import NO_CACHE
from certwright.kube.util.http_messages import Response

Make = Callable[[], Json]

_A_YEAR_S = 365 * 24 * 3600
_JSON = "application/json"
_PREFIX = "/openapi/v3"
_V2 = "/openapi/v2"


class OpenApi:
    """Serves OpenAPI documents from a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def respond(
        self, path: str, accept: str = "", if_none_match: str = "", query: str = ""
    ) -> Response | None:
        """The response to a request for `path`, or None where it names no document.

        The index is JSON, whatever the client accepts; v2 has a protobuf form too.
        """
        path = path.rstrip("/")
        make: Make
        if path in (_PREFIX, _V2):
            make = self._index if path == _PREFIX else partial(document_v2, self._registry)
            etag = _digest(msgspec.json.encode(self._index()))
        elif (made := self._group_version(path)) is not None:
            make, etag = made
        else:
            return None
        headers = (
            {"cache-control": NO_CACHE} if path == _PREFIX else {"cache-control": NO_CACHE, "vary": "Accept"}
        )
        form = _form(path, accept)
        if form is None:
            return Response(406, headers)
        headers["etag"] = f'"{etag}"'
        requested_hash = parse_qs(query).get("hash", [""])[0]
        if requested_hash and path not in (_PREFIX, _V2):
            if requested_hash != etag:
                return Response(301, {**headers, "content-type": form, "location": f"{path}?hash={etag}"})
            # The URL identifies the content, so clients may cache it forever.
            expires = formatdate(time.time() + _A_YEAR_S, usegmt=True)
            headers |= {"cache-control": "public, immutable", "expires": expires}
        # Weak comparison (RFC 9110 §13.1.2).
        known = {item.strip().removeprefix("W/") for item in if_none_match.split(",")}
        if known & {"*", f'"{etag}"'}:
            return Response(304, headers)
        body = zlib.decompress(await self._packed(path, form, make))
        return Response(200, {**headers, "content-type": form}, body)

    async def _packed(self, path: str, form: str, make: Make) -> bytes:
        key, registry = (path, f"zlib:{form}"), self._registry
        if (made := registry.made.get(key)) is not None:
            return made[0]
        before = registry.generation
        packed = await offload.run(None, _pack, make, form)
        if registry.generation == before:
            registry.made[key] = (packed, "")
        return packed

    def _index(self) -> Json:
        paths: Json = {}
        for group in self._registry.groups():
            for version in group.versions:
                name = f"apis/{group.name}/{version}" if group.name else f"api/{version}"
                key = self._hash(group.name, version)
                paths[name] = {"serverRelativeURL": f"{_PREFIX}/{name}?hash={key}"}
        return {"paths": paths}

    def _hash(self, group: str, version: str) -> str:
        # A hash of the document's inputs, not of the document: the index is requested far more often.
        key = (f"{group}/{version}", "openapi hash")
        made = self._registry.made.get(key)
        if made is None:
            content = [_essence(definition) for definition in self._registry.in_version(group, version)]
            made = (b"", _digest(msgspec.json.encode([__version__, content])))
            self._registry.made[key] = made
        return made[1]

    def _group_version(self, path: str) -> tuple[Make, str] | None:
        match path.removeprefix(_PREFIX).split("/")[1:]:
            case ["api", version]:
                group = ""
            case ["apis", group, version]:
                pass
            case _:
                return None
        definitions = self._registry.in_version(group, version) if path.startswith(_PREFIX) else ()
        if not definitions:
            return None
        return partial(document_v3, definitions), self._hash(group, version)


def _essence(definition: ResourceDefinition) -> tuple[object, ...]:
    """The part of a document for a resource."""
    names = (definition.plural, definition.kind, definition.list_kind, definition.namespaced)
    parts = [part.name for part in definition.subresources]
    more = (definition.verbs, definition.status_subresource, parts, definition.selectable_fields)
    return *names, *more, definition.schema.fingerprint if definition.custom else ""


def _pack(make: Make, form: str) -> bytes:
    content = make()
    return zlib.compress(msgspec.json.encode(content) if form == _JSON else proto.encode(content), 6)


def _digest(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


def _form(path: str, accept: str) -> str | None:
    """The media type of the response; None where the client accepts none of ours."""
    if path == _PREFIX or not accept or _accepts_any(accept, (_JSON, "application/*", "*/*")):
        return _JSON
    return proto.MEDIA_TYPES[1] if path == _V2 and _accepts_any(accept, proto.MEDIA_TYPES) else None


def _accepts_any(accept: str, media_types: tuple[str, ...]) -> bool:
    return any(item.partition(";")[0].strip() in media_types for item in accept.split(","))


# --- OpenAPI v3: the resources of one group and version ---------------------------------------------------


def document_v3(definitions: Iterable[ResourceDefinition]) -> Json:
    """The OpenAPI v3 document of these resources (OpenAPI 3.0.3; kube-openapi `pkg/builder3`)."""
    plain = openapi_schemas.in_v3(_all_of)
    path_items: Json = {}
    schemas: Json = dict(openapi_schemas.shared(_all_of))
    for definition in definitions:
        for path in paths(definition):
            methods = {operation.method: _operation_v3(operation) for operation in path.operations}
            path_items[path.path] = {**methods, "parameters": list(map(_parameter_v3, path.parameters))}
        schemas.update(openapi_schemas.of_kind(definition, _all_of, plain))
    return {
        "openapi": "3.0.0",
        "info": {"title": "certwright", "version": __version__},
        "paths": path_items,
        "components": {"schemas": schemas},
    }


def _ref_v3(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _all_of(name: str) -> Json:
    # In OpenAPI 3.0 nothing may stand beside a reference, such as a description.
    return {"allOf": [_ref_v3(name)]}


def _operation_v3(operation: Operation) -> Json:
    content = {form: {"schema": _ref_v3(operation.gives)} for form in operation.gives_as}
    made = _operation(operation, {"content": content})
    if operation.parameters:
        made["parameters"] = list(map(_parameter_v3, operation.parameters))
    if operation.takes:
        body: Json = {"content": {form: {"schema": _ref_v3(operation.takes)} for form in operation.takes_as}}
        made["requestBody"] = {**body, "required": True} if operation.needs_body else body
    return made


def _operation(operation: Operation, answer: Json) -> Json:
    """What both versions have. `answer`: the content of a successful response."""
    answers = {code: {"description": description, **answer} for code, description in operation.codes}
    return {
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.id,
        "responses": {**answers, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.kind,
    }


def _parameter_v3(parameter: Parameter) -> Json:
    return _parameter(parameter, {"schema": {"type": parameter.type, "uniqueItems": True}})


def _parameter(parameter: Parameter, form: Json) -> Json:
    made = {"name": parameter.name, "in": parameter.where, "description": parameter.description, **form}
    return {**made, "required": True} if parameter.where == "path" else made


# --- OpenAPI v2: all kinds in one document, for old clients -----------------------------------------------


def document_v2(registry: Registry) -> Json:
    """The OpenAPI v2 document. `x-kubernetes-*` extensions stay, what v2 cannot express (`nullable`, `anyOf`,
    `oneOf`, `not`) is left out (OpenAPI 2.0; Kubernetes documentation, "OpenAPI V2")."""
    plain = openapi_schemas.in_v2(_ref_v2)
    schemas = {name: plain(schema) for name, schema in openapi_schemas.shared(_ref_v2)}
    path_items: Json = {}
    for definition in registry.all():
        schemas.update(openapi_schemas.of_kind(definition, _ref_v2, plain))
        for path in paths(definition):
            methods = {operation.method: _operation_v2(operation) for operation in path.operations}
            path_items[path.path] = {**methods, "parameters": list(map(_parameter_v2, path.parameters))}
    return {
        "swagger": "2.0",
        "info": {"title": "certwright", "version": __version__},
        "paths": path_items,
        "definitions": schemas,
    }


def _ref_v2(name: str) -> Json:
    return {"$ref": f"#/definitions/{name}"}


def _operation_v2(operation: Operation) -> Json:
    parameters = list(map(_parameter_v2, operation.parameters))
    if operation.takes:
        body: Json = {"name": "body", "in": "body", "schema": _ref_v2(operation.takes)}
        parameters.insert(0, {**body, "required": True} if operation.needs_body else body)
    made = _operation(operation, {"schema": _ref_v2(operation.gives)})
    made |= {
        "consumes": list(operation.takes_as),
        "produces": list(operation.gives_as),
        "schemes": ["https"],
    }
    return {**made, "parameters": parameters} if parameters else made


def _parameter_v2(parameter: Parameter) -> Json:
    return _parameter(parameter, {"type": parameter.type, "uniqueItems": True})
