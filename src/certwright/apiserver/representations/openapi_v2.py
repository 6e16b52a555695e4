"""The OpenAPI v2 document: all kinds in one, for clients that know nothing newer.

Source: OpenAPI 2.0; Kubernetes documentation, "OpenAPI V2": `x-kubernetes-*` extensions stay, what v2 cannot
say (`nullable`, `anyOf`, `oneOf`, `not`) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certwright import __version__
from certwright.apiserver.kinds import core_schemas as meta
from certwright.apiserver.registry import Registry
from certwright.apiserver.representations.openapi_names import (
    OBJECT_META,
    group_version_kind,
    own_schemas,
    schema_name,
)

Json = dict[str, Any]

_NOT_IN_V2 = frozenset({"nullable", "anyOf", "oneOf", "not", "allOf"})


def document(registry: Registry) -> Json:
    """The definitions of all kinds, and one path with the parameters of a patch for each."""
    definitions: Json = {OBJECT_META: _plain(meta.OBJECT_META)}
    paths: Json = {}
    for definition in registry.all():
        if definition.virtual:
            continue
        name = schema_name(definition, definition.kind)
        definitions.update(
            (part, _plain(schema)) for part, schema in own_schemas(definition, _ref(OBJECT_META), _ref)
        )
        paths[_path(definition.group, definition.version, definition.plural)] = {
            "patch": {
                "parameters": _PATCH_PARAMETERS,
                "responses": {"200": {"description": "OK", "schema": {"$ref": f"#/definitions/{name}"}}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": group_version_kind(definition),
            }
        }
    return {
        "swagger": "2.0",
        "info": {"title": "certwright", "version": __version__},
        "paths": paths,
        "definitions": definitions,
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/definitions/{name}"}


_PATCH_PARAMETERS = [
    {"name": name, "in": "query", "type": kind}
    for name, kind in (
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    )
]


def _path(group: str, version: str, plural: str) -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/{plural}/{{name}}"


def _plain(schema: Mapping[str, Any]) -> Json:
    made: Json = {}
    for key, value in schema.items():
        if key in _NOT_IN_V2:
            continue
        if key == "properties":
            made[key] = {name: _plain(prop) for name, prop in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            made[key] = _plain(value)
        else:
            made[key] = value
    return made
