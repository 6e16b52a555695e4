"""Types for field ownership: which maps and lists are granular, which atomic.

Derived from a definition's schema. A `Type` may allow several forms (a field without a type in its schema
takes scalars, lists and maps); the form of the actual value decides.

Source: Kubernetes documentation, "Server-Side Apply", merge strategy; KEP-555; kube-openapi `schemaconv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from certwright.kube.apiserver.base.schema_common import EMBEDDED, PRESERVE
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.schemas import structural

Schema = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Type:
    """The possible forms of a field's values.

    `scalar` is string, numeric, boolean or untyped; empty: no scalars. `maps` and `lists` say whether there
    is such a form and whether it is owned in parts ("granular"; for lists "set" or "map") or whole
    ("atomic"). `element` is the type of values under names that `fields` has not (None: there are none).
    `defaults` are those of a list's `keys`.
    """

    scalar: str = ""
    maps: str = ""
    fields: dict[str, Type] = field(default_factory=dict)
    element: Type | None = None
    lists: str = ""
    keys: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    item: Type | None = None

    def child(self, name: str) -> Type | None:
        """The type of the value under a name of a map."""
        return self.fields.get(name) or self.element


STRING: Final = Type(scalar="string")
NUMERIC: Final = Type(scalar="numeric")
BOOLEAN: Final = Type(scalar="boolean")
UNTYPED: Final = Type(scalar="untyped")
ATOMIC: Final = Type(scalar="untyped", maps="atomic", lists="atomic")
ATOMIC.element = ATOMIC.item = ATOMIC
DEDUCED: Final = Type(scalar="untyped", maps="granular", lists="atomic", item=ATOMIC)
DEDUCED.element = DEDUCED
"""The type of values without a schema: maps granular, lists atomic."""

_TEXTS: Final = Type(maps="granular", element=STRING)
_OWNER: Final = Type(
    maps="atomic",
    fields={
        **dict.fromkeys(("apiVersion", "kind", "name", "uid"), STRING),
        **dict.fromkeys(("controller", "blockOwnerDeletion"), BOOLEAN),
    },
)
OBJECT_META: Final = Type(
    maps="granular",
    fields={
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), STRING),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), NUMERIC),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), UNTYPED),
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "finalizers": Type(lists="set", item=STRING),
        "ownerReferences": Type(lists="map", keys=("uid",), defaults={"uid": ""}, item=_OWNER),
        "managedFields": Type(lists="atomic", item=Type(maps="granular", element=DEDUCED)),
    },
)
"""The type of every object's metadata."""

_SCALARS: Final = {"integer": NUMERIC, "number": NUMERIC, "boolean": BOOLEAN}
_EMBEDDED_FIELDS: Final = {"apiVersion": STRING, "kind": STRING, "metadata": OBJECT_META}


def type_of(definition: ResourceDefinition) -> Type:
    """The type of a kind's complete objects. Metadata is the same for all, whatever the schema contains for
    it."""
    return _type_of_schema(definition.schema)


@lru_cache(maxsize=256)
def _type_of_schema(schema: structural.Schema) -> Type:
    made = _compile({"type": "object", **schema.openapi}, preserve=False)
    made.fields = made.fields | _EMBEDDED_FIELDS
    return made


def _compile(schema: Schema, *, preserve: bool) -> Type:
    preserve = preserve or bool(schema.get(PRESERVE))
    kind = schema.get("type", "")
    if kind == "string":
        return STRING if schema.get("format", "") in ("", "byte") else UNTYPED
    if kind in _SCALARS:
        return _SCALARS[kind]
    made = Type(scalar="" if kind else "untyped")
    if kind != "array":
        made.maps = "atomic" if schema.get("x-kubernetes-map-type") == "atomic" else "granular"
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        made.fields = {name: _compile(prop, preserve=preserve) for name, prop in properties.items()}
        if schema.get(EMBEDDED):
            made.fields |= _EMBEDDED_FIELDS
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            made.element = _compile(extra, preserve=preserve)
        elif extra or (extra is None and (preserve or not made.fields)):
            made.element = DEDUCED
    if kind != "object":
        _add_list(made, schema, preserve=preserve)
    return made


def _add_list(made: Type, schema: Schema, *, preserve: bool) -> None:
    made.lists, made.keys = _list_kind(schema)
    items = schema.get("items")
    made.item = _compile(items, preserve=preserve) if isinstance(items, Mapping) else ATOMIC
    properties: Mapping[str, Schema] = (items or {}).get("properties") or {}
    made.defaults = {
        key: properties[key]["default"] for key in made.keys if "default" in properties.get(key, {})
    }


def _list_kind(schema: Schema) -> tuple[str, tuple[str, ...]]:
    """Whether a list is granular or atomic, and its keys. Built-in kinds may define it by a patch strategy
    alone."""
    kind = schema.get("x-kubernetes-list-type")
    if kind is not None:
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        return str(kind), tuple(keys) if kind == "map" else ()
    if "merge" in schema.get("x-kubernetes-patch-strategy", "").split(","):
        key = schema.get("x-kubernetes-patch-merge-key")
        return ("map", (key,)) if key else ("set", ())
    return "atomic", ()
