"""Schemas in OpenAPI documents: of kinds, of their lists, of metadata; and the limits of each version.

Source: OpenAPI 3.0.3 and 2.0; apiextensions-apiserver `pkg/controller/openapi/builder` and `…/v2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.kinds.native_openapi import component_name, components
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.openapi.operations import (
    LIST_META,
    OBJECT_META,
    PATCH,
    group_version_kind,
    message_of,
    schema_name,
)
from certwright.kube.apiserver.protobuf.fields import META_MESSAGE
from certwright.kube.apiserver.representations.discovery import parts

Refer = Callable[[str], Json]
"""A reference to the schema of that name."""
Plain = Callable[[Json], Json]
"""Converts a schema to one version of OpenAPI."""

GVK = "x-kubernetes-group-version-kind"
_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"


_API_VERSION = {
    "type": "string",
    "description": "The version that the object is written in, group/version.",
}
_KIND = {"type": "string", "description": "The kind of the object."}


def shared(refer: Refer) -> Iterator[tuple[str, Json]]:
    """The schemas of metadata, options and responses, with all that they refer to."""
    yield PATCH, {"type": "object", "description": "A patch, in the form that its content type names."}
    for kind in ("Status", "DeleteOptions"):
        yield from _of_message(f"meta.v1.{kind}", ("", "v1", kind), refer)
    yield from components(META_MESSAGE, lambda inner: refer(component_name(inner)))


def _of_message(message: str, kind: tuple[str, str, str], refer: Refer) -> Iterator[tuple[str, Json]]:
    """The schema of the message of a kind without metadata, and of all that it refers to."""
    for name, schema in components(message, lambda inner: refer(component_name(inner))):
        if name == component_name(message):
            typed = {"apiVersion": _API_VERSION, "kind": _KIND, **schema["properties"]}
            about = dict(zip(("group", "version", "kind"), kind, strict=True))
            schema = {**schema, "properties": typed, GVK: [about]}
        yield name, schema


def of_kind(definition: ResourceDefinition, refer: Refer, plain: Plain) -> Iterator[tuple[str, Json]]:
    """The schemas of a kind, of its list, and of all that they refer to."""
    own = schema_name(definition, definition.kind)
    if isinstance(definition.schema, NativeSchema):
        message = definition.schema.message
        for name, schema in components(message, lambda inner: refer(component_name(inner))):
            yield name, plain(_dressed(definition, schema, refer) if name == own else schema)
    else:
        yield own, _dressed(definition, plain(definition.schema.openapi), refer)
    if not definition.virtual:
        yield schema_name(definition, definition.list_kind), _list(definition, own, refer)
    for part in parts(definition):
        if (part_message := message_of(part)) is not None and part.kind is not None:
            yield from _of_message(part_message, part.kind, refer)


def _metadata(refer: Refer) -> Json:
    return {"description": "The object's metadata.", **refer(OBJECT_META)}


def _dressed(definition: ResourceDefinition, own: Json, refer: Refer) -> Json:
    """The schema with apiVersion, kind and metadata in front."""
    about = {GVK: [group_version_kind(definition)], **_selectable(definition)}
    if _UNKNOWN in own and "type" not in own:
        # kubectl would take the listed properties for the only ones.
        return {"type": "object", **about}
    properties = {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": _metadata(refer)}
    return {**own, "properties": {**own.get("properties", {}), **properties}, **about}


def _selectable(definition: ResourceDefinition) -> Json:
    if not definition.custom or not definition.selectable_fields:
        return {}
    fields = [{"fieldPath": path} for path in definition.selectable_fields]
    return {"x-kubernetes-selectable-fields": fields}


def _list(definition: ResourceDefinition, own: str, refer: Refer) -> Json:
    item = refer(own)
    if "allOf" in item:
        # A reference with nothing beside it needs no `allOf` around it.
        (item,) = item["allOf"]
    return {
        "type": "object",
        "description": f"A list of objects of kind {definition.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": {"description": "Metadata of the list.", **refer(LIST_META)},
            "items": {"type": "array", "description": "The objects.", "items": item},
        },
        GVK: [group_version_kind(definition, definition.list_kind)],
        **_selectable(definition),
    }


# --- version 3 --------------------------------------------------------------------------------------------

_DROPPED = frozenset({"example", "externalDocs", "id"})


def in_v3(refer: Refer) -> Plain:
    """Nothing is lost; what a structural schema only implies is written out."""

    def plain(schema: Json) -> Json:
        made = _each({key: value for key, value in schema.items() if key not in _DROPPED}, plain)
        if made.get(_INT_OR_STRING):
            made = _int_or_string(made)
        return _embedded(made, refer) if made.get(_EMBEDDED) else made

    return plain


def _each(schema: Json, plain: Plain) -> Json:
    made = dict(schema)
    if "properties" in schema:
        made["properties"] = {name: plain(prop) for name, prop in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            made[key] = plain(schema[key])
    return made


_EITHER: list[Json] = [{"type": "integer"}, {"type": "string"}]


def _int_or_string(schema: Json) -> Json:
    if "anyOf" not in schema:
        has_it = any(item.get("anyOf") == _EITHER for item in schema.get("allOf") or ())
        return schema if has_it else {**schema, "anyOf": _EITHER}
    if schema["anyOf"] == _EITHER:
        return schema
    return {**schema, "allOf": [{"anyOf": _EITHER}, *(schema.get("allOf") or ())]}


def _embedded(schema: Json, refer: Refer) -> Json:
    typed = {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": _metadata(refer)}
    required = list(schema.get("required") or ())
    required += [name for name in ("kind", "apiVersion") if name not in required]
    return {**schema, "properties": {**schema.get("properties", {}), **typed}, "required": required}


# --- version 2 --------------------------------------------------------------------------------------------

_NOT_IN_V2 = _DROPPED | {"nullable", "anyOf", "oneOf", "not", "allOf", "default"}


def in_v2(refer: Refer) -> Plain:
    """The schema without parts that kubectl would misread, or that version 2 does not support."""

    def plain(schema: Json) -> Json:
        made = _each({key: value for key, value in schema.items() if key not in _NOT_IN_V2}, plain)
        branches: list[Json] = schema.get("oneOf") or []
        if branches and all("type" in branch for branch in branches):
            made["type"] = "string"  # a number or a string
        if schema.get("nullable"):
            made = _open(made)
        if schema.get(_UNKNOWN):
            made = _open(made) if schema.get("type") == "object" else _open(made, keep_type=True)
        if made.get("type") == "array" and "items" not in made:
            del made["type"]
        made = _without_nullable(made, schema)
        return _embedded(made, refer) if made.get(_EMBEDDED) and not schema.get(_UNKNOWN) else made

    return plain


def _open(schema: Json, *, keep_type: bool = False) -> Json:
    dropped = ("items", "properties") if keep_type else ("items", "properties", "type")
    return {key: value for key, value in schema.items() if key not in dropped}


def _without_nullable(made: Json, schema: Json) -> Json:
    """Nothing that may be null is required."""
    extra = schema.get("additionalProperties")
    loose = isinstance(extra, Mapping) and extra.get("nullable")
    nullable = {name for name, prop in (schema.get("properties") or {}).items() if prop.get("nullable")}
    if "required" not in made or not (loose or nullable & set(made["required"])):
        return made
    kept = [] if loose else [name for name in made["required"] if name not in nullable]
    made = {key: value for key, value in made.items() if key != "required"}
    return {**made, "required": kept} if kept else made
