"""Prune and default an object in one walk.

A schema is compiled to nested closures once; a walk then touches only what the schema says something about.
Order as in Kubernetes: unknown fields go, then nulls that the schema does not allow, then defaults come.

Source: Kubernetes documentation, "Extend the Kubernetes API with CustomResourceDefinitions": field pruning,
defaulting, defaulting and nullable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from certwright.apiserver.schemas.schema_errors import Path, show_path

Walk = Callable[[Any, Path, list[str]], None]
"""Changes the value in place; appends the paths of the unknown fields that it dropped."""

Make = Callable[[], Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def compile_walk(schema: Mapping[str, Any]) -> Walk | None:
    """The walk for values of `schema`, or None where there is nothing to do."""
    # `items` first: a list of scalars, and a list without a schema, need no walk.
    if "items" in schema:
        return _compile_list(schema["items"])
    if "properties" in schema or "additionalProperties" in schema or schema.get("type") == "object":
        return _compile_object(schema)
    return None


def _compile_list(item: Mapping[str, Any]) -> Walk | None:
    child = compile_walk(item)
    make = None if item.get("nullable") else _default(item)

    def walk(value: Any, path: Path, unknown: list[str]) -> None:
        if type(value) is not list:
            return
        if make is not None and None in value:
            value[:] = [make() if item is None else item for item in value]
        if child is not None:
            for index, item in enumerate(value):
                child(item, (path, index), unknown)

    return walk if child is not None or make is not None else None


def _compile_object(schema: Mapping[str, Any]) -> Walk:
    own = _compile_own(schema)
    extra = schema.get("additionalProperties")
    if not isinstance(extra, Mapping):
        return own
    return _with_additional(own, frozenset(schema.get("properties", ())), extra)


def _compile_own(schema: Mapping[str, Any]) -> Walk:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    open_ended = bool(schema.get(PRESERVE) or schema.get("additionalProperties"))
    special = META_FIELDS if schema.get(EMBEDDED) else frozenset[str]()
    known = frozenset(properties) | special
    children = _children(properties, special)
    defaults = tuple((key, make) for key, prop in properties.items() if (make := _default(prop)) is not None)
    droppable = frozenset(key for key, prop in properties.items() if not prop.get("nullable"))

    def walk(value: Any, path: Path, unknown: list[str]) -> None:
        if type(value) is not dict:
            return
        if not open_ended and not value.keys() <= known:
            _drop_unknown(value, known, path, unknown)
        if None in value.values():
            _drop_nulls(value, droppable)
        for key, make in defaults:
            if key not in value:
                value[key] = make()
        for key, child in children:
            item = value.get(key)
            if item is not None:
                child(item, (path, key), unknown)

    return walk


def _children(
    properties: Mapping[str, Mapping[str, Any]], special: frozenset[str]
) -> tuple[tuple[str, Walk], ...]:
    return tuple(
        (key, child)
        for key, prop in properties.items()
        if key not in special and (child := compile_walk(prop)) is not None
    )


def _with_additional(own: Walk, named: frozenset[str], extra: Mapping[str, Any]) -> Walk:
    child = compile_walk(extra)
    keeps_null = bool(extra.get("nullable"))
    make = _default(extra)

    def walk(value: Any, path: Path, unknown: list[str]) -> None:
        own(value, path, unknown)
        if type(value) is not dict:
            return
        if not keeps_null and None in value.values():
            _replace_nulls(value, named, make)
        if child is not None:
            for key, item in value.items():
                if key not in named:
                    child(item, (path, key), unknown)

    return walk


def _drop_unknown(value: dict[str, Any], known: frozenset[str], path: Path, unknown: list[str]) -> None:
    for key in value.keys() - known:
        del value[key]
        unknown.append(show_path((path, key)))


def _drop_nulls(value: dict[str, Any], droppable: frozenset[str]) -> None:
    for key in [key for key, item in value.items() if item is None and key in droppable]:
        del value[key]


def _replace_nulls(value: dict[str, Any], named: frozenset[str], make: Make | None) -> None:
    for key in [key for key, item in value.items() if item is None and key not in named]:
        if make is None:
            del value[key]
        else:
            value[key] = make()


def _default(schema: Mapping[str, Any]) -> Make | None:
    if schema.get("default") is None:
        return None
    default = schema["default"]
    if isinstance(default, (dict, list)):
        encoded = msgspec.json.encode(default)
        return lambda: msgspec.json.decode(encoded)
    return lambda: default
