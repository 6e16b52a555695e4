"""A document of OpenAPI v3: the resources of one group and version.

Source: OpenAPI 3.0.3; kube-openapi `pkg/builder3`.
"""

from __future__ import annotations

from collections.abc import Iterable

from certwright import __version__
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.openapi import schemas as openapi_schemas
from certwright.kube.apiserver.openapi.operations import Operation, Parameter, Path, paths

UNAUTHORIZED = "Unauthorized"


def document(definitions: Iterable[ResourceDefinition]) -> Json:
    """The OpenAPI document of these resources."""
    plain = openapi_schemas.in_v3(_all_of)
    path_items: Json = {}
    schemas: Json = dict(openapi_schemas.shared(_all_of))
    for definition in definitions:
        path_items.update((path.path, _item(path)) for path in paths(definition))
        schemas.update(openapi_schemas.of_kind(definition, _all_of, plain))
    return {
        "openapi": "3.0.0",
        "info": {"title": "certwright", "version": __version__},
        "paths": path_items,
        "components": {"schemas": schemas},
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _all_of(name: str) -> Json:
    # In OpenAPI 3.0 nothing may stand beside a reference, such as a description.
    return {"allOf": [_ref(name)]}


def _item(path: Path) -> Json:
    methods = {operation.method: _operation(operation) for operation in path.operations}
    return {**methods, "parameters": [_parameter(parameter) for parameter in path.parameters]}


def _operation(operation: Operation) -> Json:
    content = {form: {"schema": _ref(operation.gives)} for form in operation.gives_as}
    answers: Json = {
        code: {"description": description, "content": content} for code, description in operation.codes
    }
    made: Json = {
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.id,
        "responses": {**answers, "401": {"description": UNAUTHORIZED}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.kind,
    }
    if operation.parameters:
        made["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.takes:
        body: Json = {"content": {form: {"schema": _ref(operation.takes)} for form in operation.takes_as}}
        made["requestBody"] = {**body, "required": True} if operation.needs_body else body
    return made


def _parameter(parameter: Parameter) -> Json:
    schema = {"type": parameter.type, "uniqueItems": True}
    made: Json = {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.description,
        "schema": schema,
    }
    return {**made, "required": True} if parameter.where == "path" else made
