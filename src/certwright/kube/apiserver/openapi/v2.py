"""The OpenAPI v2 document: all kinds in one, for old clients.

Source: OpenAPI 2.0; Kubernetes documentation, "OpenAPI V2": `x-kubernetes-*` extensions stay, what v2 cannot
say (`nullable`, `anyOf`, `oneOf`, `not`) is left out.
"""

from __future__ import annotations

from certwright import __version__
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.openapi import schemas as openapi_schemas
from certwright.kube.apiserver.openapi.operations import Operation, Parameter, Path, paths
from certwright.kube.apiserver.openapi.v3 import UNAUTHORIZED


def document(registry: Registry) -> Json:
    """The schemas of all kinds, and all paths."""
    plain = openapi_schemas.in_v2(_ref)
    schemas = {name: plain(schema) for name, schema in openapi_schemas.shared(_ref)}
    path_items: Json = {}
    for definition in registry.all():
        schemas.update(openapi_schemas.of_kind(definition, _ref, plain))
        path_items.update((path.path, _item(path)) for path in paths(definition))
    return {
        "swagger": "2.0",
        "info": {"title": "certwright", "version": __version__},
        "paths": path_items,
        "definitions": schemas,
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/definitions/{name}"}


def _item(path: Path) -> Json:
    methods = {operation.method: _operation(operation) for operation in path.operations}
    return {**methods, "parameters": [_parameter(parameter) for parameter in path.parameters]}


def _operation(operation: Operation) -> Json:
    answers: Json = {
        code: {"description": description, "schema": _ref(operation.gives)}
        for code, description in operation.codes
    }
    parameters = [_parameter(parameter) for parameter in operation.parameters]
    if operation.takes:
        body: Json = {"name": "body", "in": "body", "schema": _ref(operation.takes)}
        parameters.insert(0, {**body, "required": True} if operation.needs_body else body)
    made: Json = {
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.id,
        "consumes": list(operation.takes_as),
        "produces": list(operation.gives_as),
        "schemes": ["https"],
        "responses": {**answers, "401": {"description": UNAUTHORIZED}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.kind,
    }
    return {**made, "parameters": parameters} if parameters else made


def _parameter(parameter: Parameter) -> Json:
    made: Json = {
        "name": parameter.name,
        "in": parameter.where,
        "type": parameter.type,
        "description": parameter.description,
        "uniqueItems": True,
    }
    return {**made, "required": True} if parameter.where == "path" else made
