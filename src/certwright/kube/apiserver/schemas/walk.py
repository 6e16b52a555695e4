"""Prune and default an object in one walk.

A schema is compiled to nested closures once; a walk then visits only places for which the schema has
constraints. Order as in Kubernetes: unknown fields are pruned, then nulls that the schema does not allow,
then defaults are filled in.

Source: Kubernetes documentation, "Extend the Kubernetes API with CustomResourceDefinitions": field pruning,
defaulting, defaulting and nullable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from certwright.kube.apiserver.base.schema_common import EMBEDDED, META_FIELDS, PRESERVE, Path, show_path
from certwright.kube.apiserver.schemas import embedded as schema_embedded

Walk = Callable[[Any, Path, list[str]], None]
"""Changes the value in place; appends the paths of the unknown fields that it dropped."""

Make = Callable[[], Any]
Schema = Mapping[str, Any]

_NOTHING: frozenset[str] = frozenset()
_DESCENDED = frozenset({"properties", "additionalProperties", "items", EMBEDDED})
"""Keywords of a schema that apply to nested values."""


def compile_walk(schema: Schema, *, root: bool = False, defaults: bool = True) -> Walk:
    """The walk for values of `schema`. `root`: of a complete object, whose metadata is handled elsewhere.
    `defaults`: whether to fill in absent values."""
    if schema.get(PRESERVE) and not _DESCENDED & schema.keys():
        return _leave
    own = _compile_object(schema, root=root, defaults=defaults)
    items = _compile_list(schema, defaults=defaults)

    def walk(value: Any, path: Path, unknown: list[str]) -> None:
        kind = type(value)
        if kind is dict:
            own(value, path, unknown)
        elif kind is list:
            items(value, path, unknown)

    return walk


def _leave(_: Any, __: Path, ___: list[str]) -> None:
    """For a value with any content."""


def _empty(value: Any, path: Path, unknown: list[str]) -> None:
    """For a value whose schema has no nested schemas: all of its content is pruned."""
    if type(value) is dict:
        _drop_unknown(value, _NOTHING, path, unknown)
    elif type(value) is list:
        for index, item in enumerate(value):
            _empty(item, (path, index), unknown)


def _compile_list(schema: Schema, *, defaults: bool) -> Walk:
    item = schema.get("items")
    if not isinstance(item, Mapping):
        return _leave if schema.get(PRESERVE) else _empty
    child = _compile_child(item, defaults=defaults)
    make = _default(item) if defaults and not item.get("nullable") else None

    def walk(value: Any, path: Path, unknown: list[str]) -> None:
        if make is not None and None in value:
            value[:] = [make() if item is None else item for item in value]
        for index, item in enumerate(value):
            kind = type(item)
            if kind is dict or kind is list:
                child(item, (path, index), unknown)

    return walk


def _compile_child(schema: Schema, *, defaults: bool) -> Walk:
    # Most are scalars: no schema and no walk is built for them.
    if _DESCENDED & schema.keys():
        return compile_walk(schema, defaults=defaults)
    return _leave if schema.get(PRESERVE) else _empty


def _compile_object(schema: Schema, *, root: bool, defaults: bool) -> Walk:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    embedded = root or bool(schema.get(EMBEDDED))
    special = META_FIELDS if embedded else _NOTHING
    known = frozenset(properties) | special
    drop_unknown = extra is None and not schema.get(PRESERVE)
    children = {
        key: _compile_child(prop, defaults=defaults) for key, prop in properties.items() if key not in special
    }
    children.update(dict.fromkeys(special, _leave))
    # Of values without a property of their own; `true` and `false` keep the keys, and prune these values.
    others: Walk = _leave if extra is None else _empty
    make_other, drops_other_nulls = None, False
    if isinstance(extra, Mapping):
        others, drops_other_nulls = _compile_child(extra, defaults=defaults), not extra.get("nullable")
        make_other = _default(extra) if defaults and drops_other_nulls else None
    get_child = children.get
    fills = tuple(
        (key, make) for key, prop in properties.items() if defaults and (make := _default(prop)) is not None
    )
    droppable = frozenset(key for key, prop in properties.items() if not prop.get("nullable")) - special
    coerced = embedded and not root

    def walk(value: Any, path: Path, unknown: list[str]) -> None:
        if drop_unknown and not value.keys() <= known:
            _drop_unknown(value, known, path, unknown)
        if None in value.values():
            for key in [key for key, item in value.items() if item is None]:
                if key not in known and make_other is not None:
                    value[key] = make_other()
                elif key in droppable or (key not in known and drops_other_nulls):
                    del value[key]
        if coerced:
            schema_embedded.coerce(value, path, unknown)
        for key, make in fills:
            if key not in value:
                value[key] = make()
        for key, item in value.items():
            kind = type(item)
            if kind is dict or kind is list:
                get_child(key, others)(item, (path, key), unknown)

    return walk


def _drop_unknown(value: dict[str, Any], known: frozenset[str], path: Path, unknown: list[str]) -> None:
    for key in value.keys() - known:
        del value[key]
        unknown.append(show_path((path, key)))


def _default(schema: Schema) -> Make | None:
    if schema.get("default") is None:
        return None
    default = schema["default"]
    if isinstance(default, (dict, list)):
        encoded = msgspec.json.encode(default)
        return lambda: msgspec.json.decode(encoded)
    return lambda: default
