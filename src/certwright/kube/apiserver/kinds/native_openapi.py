"""OpenAPI schemas of the built-in kinds: one component per message, with our descriptions.

Source: OpenAPI 3.0.3; the component names of Kubernetes' own documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.protobuf.fields import (
    META_MESSAGE,
    Field,
    json_fields_of,
    keywords,
    wrapped_list,
)

_DESCRIPTIONS_FILE = Path(__file__).parents[1] / "data" / "words.txt"

Refer = Callable[[str], Json]
"""The schema of a message where another one refers to it."""

_SCALARS: Mapping[str, Json] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bytes": {"type": "string", "format": "byte"},
    "float64": {"type": "number", "format": "double"},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "Quantity": {
        "description": "A number with an optional suffix, e.g. 100m, 1.5 or 2Gi.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    "IntOrString": {
        "description": "An integer of 32 bits, or a string.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    "Raw": {"type": "object"},
    "SchemaOrArray": {},
    "SchemaOrBool": {},
    "SchemaOrStrings": {},
}
_NAMED = {
    "Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
}
"""Scalars that are components, because `kubectl explain` shows the name as the type."""
_SHARDS = "meta.v1.ShardInfo"
"""The type of a field that no served release has."""
_PACKAGES = {
    "meta": "io.k8s.apimachinery.pkg.apis",
    "apiregistration": "io.k8s.kube-aggregator.pkg.apis",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis",
}


def component_name(message: str) -> str:
    """`core.v1.Secret` is `io.k8s.api.core.v1.Secret` in Kubernetes' documents."""
    if message in _NAMED:
        return _NAMED[message]
    return f"{_PACKAGES.get(message.partition('.')[0], 'io.k8s.api')}.{message}"


def components(message: str, refer: Refer) -> Iterator[tuple[str, Json]]:
    """A message and all that it refers to, except metadata: name and schema of each, with references."""
    waiting, seen = [message], {message, META_MESSAGE, _SHARDS}
    while waiting:
        current = waiting.pop()
        if current in _NAMED:
            yield component_name(current), dict(_SCALARS[current])
            continue
        yield component_name(current), _schema(current, refer)
        for field in json_fields_of(current):
            is_component = field.type in _NAMED or (field.is_message and not wrapped_list(field.type))
            if is_component and field.type not in seen:
                seen.add(field.type)
                waiting.append(field.type)


def inlined(message: str) -> Json:
    """The schema of a kind without references and without metadata; recursive messages are cut."""
    return _inlined(message, frozenset())


def _inlined(message: str, above: frozenset[str]) -> Json:
    if message in _NAMED:
        return dict(_SCALARS[message])
    if message in above:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = _schema(message, lambda inner: _inlined(inner, above | {message}))
    if not above:
        schema["properties"].pop("metadata", None)
    return schema


def _schema(message: str, refer: Refer) -> Json:
    schema: Json = {"type": "object", "description": _read_descriptions().get(message, "")}
    if own := [field for field in json_fields_of(message) if field.type != _SHARDS]:
        schema["properties"] = {field.name: _property(message, field, refer) for field in own}
    return schema | {name: words for name, words in keywords(message).items() if name != "properties"}


def _property(message: str, field: Field, refer: Refer) -> Json:
    # Raw values are objects, but examples and defaults in a schema have any type.
    is_any = field.type == "Raw" and message == "apiextensions.v1.JSONSchemaProps"
    made = {} if is_any else _value(field.type, refer)
    if field.is_map:
        made = {"type": "object", "additionalProperties": made}
    elif field.repeated:
        made = {"type": "array", "items": made}
    made |= keywords(message).get("properties", {}).get(field.name, {})
    words = _read_descriptions().get(f"{message}.{field.name}") or _read_descriptions().get(f"*.{field.name}")
    return {"description": words, **made} if words else made


def _value(type_: str, refer: Refer) -> Json:
    if type_ in _NAMED:
        return refer(type_)
    if type_ in _SCALARS:
        return dict(_SCALARS[type_])
    inner = wrapped_list(type_)
    if inner is not None:
        return {"type": "array", "items": _value(inner.type, refer)}
    return refer(type_)


@cache
def _read_descriptions() -> dict[str, str]:
    """Our descriptions of messages and of their fields."""
    text = _DESCRIPTIONS_FILE.read_text(encoding="utf-8")
    lines = (line.partition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: words for name, _, words in lines}
