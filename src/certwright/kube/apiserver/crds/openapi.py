"""Validation of schema keywords, anywhere in the schema of a CustomResourceDefinition.

Source: apiextensions-apiserver `pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certwright.kube.api.errors import FieldError, forbidden, invalid, not_supported, required
from certwright.kube.apiserver.base.schema_common import EMBEDDED, META_FIELDS, PRESERVE

Schema = Mapping[str, Any]

LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
_IS_KEY = "this property is in x-kubernetes-list-map-keys, so it"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


def openapi_errors(path: str, schema: Schema) -> list[FieldError]:
    """The errors of the keywords in a version's whole schema."""
    return _node(path, schema, root=True, no_default="", in_head=False)


def _node(path: str, schema: Schema, *, root: bool, no_default: str, in_head: bool) -> list[FieldError]:
    """`no_default`: why a default is forbidden here. `in_head`: within the metadata of an object."""
    errors = _keyword_errors(path, schema, no_default=no_default, in_head=in_head)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(f"{path}.uniqueItems", text))
    extra = schema.get("additionalProperties")
    if schema.get("properties") and extra is not None and extra is not True:
        text = "additionalProperties and properties are mutual exclusive"
        errors.append(forbidden(f"{path}.additionalProperties", text))
    for where, child, reason, head in _children(
        path, schema, root=root, no_default=no_default, in_head=in_head
    ):
        errors += _node(where, child, root=False, no_default=reason, in_head=head)
    if schema.get(PRESERVE) is False:
        errors.append(invalid(f"{path}.{PRESERVE}", False, "must be true or undefined"))
    return errors + _map_errors(path, schema) + _list_errors(path, schema)


_Child = tuple[str, Schema, str, bool]


def _children(path: str, schema: Schema, *, root: bool, no_default: str, in_head: bool) -> Iterator[_Child]:
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        reason = "inside additionalProperties applying to object metadata" if in_head else no_default
        yield f"{path}.additionalProperties", extra, reason, in_head
    for key, prop in (schema.get("properties") or {}).items():
        is_head = (root or bool(schema.get(EMBEDDED))) and key in META_FIELDS
        reason = f"in top-level {key}" if is_head and root else no_default
        yield f"{path}.properties[{key}]", prop, reason, in_head or is_head
    if isinstance(schema.get("not"), Mapping):
        yield f"{path}.not", schema["not"], no_default, in_head
    for word in ("allOf", "oneOf", "anyOf"):
        for index, branch in enumerate(schema.get(word) or ()):
            yield f"{path}.{word}[{index}]", branch, no_default, in_head
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield f"{path}.items", items, no_default, in_head
    elif isinstance(items, list):
        for index, item in enumerate(items):
            yield f"{path}.items[{index}]", item, no_default, in_head


def _keyword_errors(path: str, schema: Schema, *, no_default: str, in_head: bool) -> list[FieldError]:
    errors, kind = [], schema.get("type", "")
    if kind and kind not in _TYPES:
        errors.append(not_supported(f"{path}.type", kind, _TYPES))
    if no_default and schema.get("default") is not None:
        errors.append(forbidden(f"{path}.default", f"must not be set {no_default}"))
    errors += [
        forbidden(f"{path}.{word}", f"{word} is not supported") for word in _UNSUPPORTED if word in schema
    ]
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        errors.append(forbidden(f"{path}.type", text))
    if isinstance(schema.get("items"), list):
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if in_head and schema.get(EMBEDDED):
        errors.append(forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta"))
    return errors


def _of_type(path: str, schema: Schema, kind: str, word: str) -> list[FieldError]:
    """A keyword requires one type."""
    actual, text = schema.get("type", ""), f"must be {kind} if {word} is specified"
    if actual == kind:
        return []
    return [invalid(f"{path}.type", actual, text) if actual else required(f"{path}.type", text)]


def _map_errors(path: str, schema: Schema) -> list[FieldError]:
    kind = schema.get(MAP_TYPE)
    if kind is None:
        return []
    errors = _of_type(path, schema, "object", MAP_TYPE)
    if kind not in ("atomic", "granular"):
        errors.append(not_supported(f"{path}.{MAP_TYPE}", kind, ("atomic", "granular")))
    return errors


def _list_errors(path: str, schema: Schema) -> list[FieldError]:
    kind, keys, where = schema.get(LIST_TYPE), schema.get(LIST_KEYS) or [], f"{path}.{LIST_TYPE}"
    errors = []
    if kind is not None:
        errors += _of_type(path, schema, "array", LIST_TYPE) or _set_errors(path, schema)
        if kind not in ("atomic", "set", "map"):
            errors.append(not_supported(where, kind, ("atomic", "set", "map")))
    if keys and kind != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        errors.append(required(where, text) if kind is None else invalid(where, kind, text))
    if kind == "map":
        errors += _keyed_errors(path, schema, keys)
    return errors + _item_errors(path, schema, keys)


def _set_errors(path: str, schema: Schema) -> list[FieldError]:
    items = schema.get("items")
    if schema[LIST_TYPE] != "set" or not isinstance(items, Mapping):
        return []
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
        return [invalid(f"{path}.items.{LIST_TYPE}", items[LIST_TYPE], text)]
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        # Kubernetes shows the type of the list here.
        return [invalid(f"{path}.items.{MAP_TYPE}", items.get(LIST_TYPE), text)]
    return []


def _keyed_errors(path: str, schema: Schema, keys: list[str]) -> list[FieldError]:
    errors, where, items = [], f"{path}.{LIST_KEYS}", schema.get("items")
    if not keys:
        errors.append(required(where, "must not be empty if x-kubernetes-list-type is map"))
    if items is None:
        errors.append(required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map"))
    if not isinstance(items, Mapping):
        return errors
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        return [*errors, invalid(f"{path}.items.type", items.get("type", ""), text)]
    properties = items.get("properties") or {}
    unknown = invalid(where, keys, "entries must all be names of item properties")
    repeated = invalid(where, keys, "must not contain duplicate entries")
    seen = set[str]()
    for key in keys:
        if key not in properties:
            errors.append(unknown)
        elif properties[key].get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.append(invalid(f"{path}.items.properties[{key}].type", items["type"], text))
        if key in seen:
            errors.append(repeated)
        seen.add(key)
    return errors


def _item_errors(path: str, schema: Schema, keys: list[str]) -> list[FieldError]:
    """Items of a set or map must not be nullable, and keys of a map need a value or a default."""
    kind, items = schema.get(LIST_TYPE), schema.get("items")
    if kind not in ("set", "map") or not isinstance(items, Mapping):
        return []
    errors = []
    if items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        errors.append(forbidden(f"{path}.items.nullable", text))
    properties = (items.get("properties") or {}) if kind == "map" else {}
    always = frozenset(items.get("required") or ())
    for key in keys:
        if key not in properties:
            continue
        where = f"{path}.items.properties[{key}]"
        if key not in always and properties[key].get("default") is None:
            errors.append(
                required(f"{where}.default", f"{_IS_KEY} must have a default or be a required property")
            )
        if properties[key].get("nullable"):
            errors.append(forbidden(f"{where}.nullable", f"{_IS_KEY} cannot be nullable"))
    return errors
