"""Whether a schema is structural, so that objects can be pruned and defaulted by it.

Source: Kubernetes documentation, "Specifying a structural schema"; apiextensions-apiserver
`pkg/apiserver/schema` and `pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from certwright.apiserver.schemas.schema_check import compile_check
from certwright.apiserver.schemas.schema_scalars import pattern_problem
from certwright.apiserver.schemas.schema_walk import EMBEDDED, PRESERVE, compile_walk
from certwright.resources.errors import FieldError, forbidden, invalid, not_supported, required

Schema = Mapping[str, Any]

INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
RULES = "x-kubernetes-validations"

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("additionalItems", "patternProperties", "definitions", "dependencies", "id", "$ref")
_EMPTY = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_NOT_NESTED = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    PRESERVE: "must be false to be structural",
    EMBEDDED: "must be false to be structural",
    INT_OR_STRING: "must be false to be structural",
    LIST_KEYS: "must be empty to be structural",
    LIST_TYPE: "must be undefined to be structural",
    MAP_TYPE: "must be undefined to be structural",
    RULES: "must be empty to be structural",
}
_INT_OR_STRING_FORM = [{"type": "integer"}, {"type": "string"}]


def structural_errors(path: str, schema: Schema) -> list[FieldError]:
    """What keeps the schema of a version from being structural, sorted."""
    errors = _node(path, schema, "root")
    if schema.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    if not errors:
        errors = _default_errors(path, schema)
    return sorted(errors, key=str)


def _node(path: str, schema: Any, level: str) -> list[FieldError]:
    if not isinstance(schema, Mapping):
        return [invalid(path, schema, "must be an object")]
    errors = _type_errors(path, schema, level)
    errors += [
        forbidden(f"{path}.{word}", f"{word} is not supported") for word in _UNSUPPORTED if word in schema
    ]
    errors += _extension_errors(path, schema) + _list_errors(path, schema) + _pattern_errors(path, schema)
    errors += _child_errors(path, schema, level)
    if level == "root":
        errors += _metadata_errors(path, schema)
    return errors + _logic_errors(path, schema)


def _type_errors(path: str, schema: Schema, level: str) -> list[FieldError]:
    kind = schema.get("type", "")
    where = f"{path}.type"
    if schema.get(EMBEDDED) and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        return [invalid(where, kind, text) if kind else required(where, text)]
    if not kind:
        return [] if schema.get(INT_OR_STRING) or schema.get(PRESERVE) else [required(where, _EMPTY[level])]
    if kind not in _TYPES:
        return [not_supported(where, kind, _TYPES)]
    if level == "root" and kind != "object":
        return [invalid(where, kind, "must be object at the root")]
    return []


def _extension_errors(path: str, schema: Schema) -> list[FieldError]:
    errors = []
    if schema.get(INT_OR_STRING):
        text = "must be false if x-kubernetes-int-or-string is true"
        errors += [invalid(f"{path}.{word}", True, text) for word in (PRESERVE, EMBEDDED) if schema.get(word)]
    if schema.get(PRESERVE) is False:
        errors.append(invalid(f"{path}.{PRESERVE}", False, "must be true or undefined"))
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        )
        errors.append(required(f"{path}.properties", text))
    errors += _map_type_errors(path, schema)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(f"{path}.uniqueItems", text))
    return errors


def _map_type_errors(path: str, schema: Schema) -> list[FieldError]:
    kind = schema.get(MAP_TYPE)
    if kind is None:
        return []
    if kind not in ("atomic", "granular"):
        return [not_supported(f"{path}.{MAP_TYPE}", kind, ("atomic", "granular"))]
    if schema.get("type") != "object":
        text = "must be object if x-kubernetes-map-type is specified"
        return [invalid(f"{path}.type", schema.get("type", ""), text)]
    return []


def _list_errors(path: str, schema: Schema) -> list[FieldError]:
    kind, keys = schema.get(LIST_TYPE), schema.get(LIST_KEYS) or []
    if kind is None:
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        return [required(f"{path}.{LIST_TYPE}", text)] if keys else []
    if kind not in ("atomic", "set", "map"):
        return [not_supported(f"{path}.{LIST_TYPE}", kind, ("atomic", "set", "map"))]
    if schema.get("type") != "array":
        text = "must be array if x-kubernetes-list-type is specified"
        return [invalid(f"{path}.type", schema.get("type", ""), text)]
    if kind == "map":
        return _list_map_errors(path, schema, keys)
    return _list_set_errors(path, schema) if kind == "set" else []


def _list_set_errors(path: str, schema: Schema) -> list[FieldError]:
    items = schema.get("items") or {}
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        return [invalid(f"{path}.items.{MAP_TYPE}", items.get(MAP_TYPE), text)]
    if items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
        return [invalid(f"{path}.items.{LIST_TYPE}", items[LIST_TYPE], text)]
    return []


def _list_map_errors(path: str, schema: Schema, keys: list[str]) -> list[FieldError]:
    if not keys:
        return [required(f"{path}.{LIST_KEYS}", "must not be empty if x-kubernetes-list-type is map")]
    items = schema.get("items") or {}
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        return [invalid(f"{path}.items.type", items.get("type", ""), text)]
    properties, errors = items.get("properties", {}), []
    for key in keys:
        if key not in properties:
            errors.append(
                invalid(f"{path}.{LIST_KEYS}", keys, "entries must all be names of item properties")
            )
        elif "default" not in properties[key] and key not in items.get("required", ()):
            text = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
                "property"
            )
            errors.append(required(f"{path}.items.properties[{key}].default", text))
    return errors


def _pattern_errors(path: str, schema: Schema) -> list[FieldError]:
    pattern = schema.get("pattern")
    if not pattern:
        return []
    if problem := pattern_problem(pattern):
        text = f"must be a valid regular expression, but isn't: {problem}"
        return [invalid(f"{path}.pattern", pattern, text)]
    return []


def _child_errors(path: str, schema: Schema, level: str) -> list[FieldError]:
    errors = []
    if schema.get("type") == "array" and "items" not in schema:
        errors.append(required(f"{path}.items", "must be specified"))
    if isinstance(schema.get("items"), list):
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    elif "items" in schema:
        errors += _node(f"{path}.items", schema["items"], "item")
    for key, prop in (schema.get("properties") or {}).items():
        errors += _node(f"{path}.properties[{key}]", prop, "field")
    return errors + _additional_errors(path, schema, level)


def _additional_errors(path: str, schema: Schema, level: str) -> list[FieldError]:
    extra = schema.get("additionalProperties")
    if extra is None:
        return []
    where, errors = f"{path}.additionalProperties", []
    if level == "root":
        errors.append(forbidden(where, "must not be used at the root"))
    if schema.get("properties"):
        errors.append(forbidden(where, "additionalProperties and properties are mutual exclusive"))
    if isinstance(extra, Mapping):
        errors += _node(where, extra, "field")
    return errors


def _metadata_errors(path: str, schema: Schema) -> list[FieldError]:
    properties = schema.get("properties") or {}
    errors = []
    for key in ("apiVersion", "kind"):
        if key in properties and properties[key].get("type") != "string":
            where = f"{path}.properties[{key}].type"
            errors.append(invalid(where, properties[key].get("type", ""), "must be string"))
    meta = properties.get("metadata", {"type": "object"})
    if meta.get("type") != "object":
        where = f"{path}.properties[metadata].type"
        errors.append(invalid(where, meta.get("type", ""), "must be object"))
    for key, prop in meta.get("properties", {}).items():
        if prop.get("default") is not None:
            where = f"{path}.properties[metadata].properties[{key}].default"
            errors.append(forbidden(where, "must not be set in top-level metadata"))
    allowed = {"type", "properties"}
    if meta.keys() - allowed or meta.get("properties", {}).keys() - {"name", "generateName"}:
        text = (
            "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )
        errors.append(forbidden(f"{path}.properties[metadata]", text))
    return errors


# --- allOf, anyOf, oneOf, not -----------------------------------------------------------------------------


def _logic_errors(path: str, schema: Schema) -> list[FieldError]:
    errors = []
    for word in ("allOf", "anyOf", "oneOf"):
        for index, branch in enumerate(schema.get(word) or ()):
            # Types may stand in the two spellings of int-or-string only.
            if schema.get(INT_OR_STRING) and (
                schema.get(word) == _INT_OR_STRING_FORM or branch.get("anyOf") == _INT_OR_STRING_FORM
            ):
                continue
            errors += _nested(f"{path}.{word}[{index}]", branch)
    return errors + (_nested(f"{path}.not", schema["not"]) if schema.get("not") else [])


def _nested(path: str, schema: Schema) -> list[FieldError]:
    errors = [
        forbidden(f"{path}.{word}", text)
        for word, text in _NOT_NESTED.items()
        if schema.get(word) or (word == "default" and word in schema)
    ]
    properties = schema.get("properties") or {}
    for key, prop in properties.items():
        errors += _nested(f"{path}.properties[{key}]", prop)
    if "metadata" in properties:
        text = "must not be specified in a nested context"
        errors.append(forbidden(f"{path}.properties[metadata]", text))
    if "items" in schema:
        errors += _nested(f"{path}.items", schema["items"])
    return errors + _pattern_errors(path, schema) + _logic_errors(path, schema)


# --- defaults ---------------------------------------------------------------------------------------------


def _default_errors(path: str, schema: Schema) -> list[FieldError]:
    errors = []
    if schema.get("default") is not None:
        errors += _one_default(f"{path}.default", schema)
    for key, prop in (schema.get("properties") or {}).items():
        errors += _default_errors(f"{path}.properties[{key}]", prop)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            errors += _default_errors(f"{path}.{word}", schema[word])
    return errors


def _one_default(path: str, schema: Schema) -> list[FieldError]:
    # A copy: the walk prunes.
    value, unknown = deepcopy(schema["default"]), list[str]()
    if (walk := compile_walk(schema)) is not None:
        walk(value, None, unknown)
    if unknown:
        return [invalid(path, schema["default"], "must not have unknown fields")]
    found: list[FieldError] = []
    if (check := compile_check(schema)) is not None:
        check(value, None, found)
    return [FieldError(path, error.reason, error.detail) for error in found]
