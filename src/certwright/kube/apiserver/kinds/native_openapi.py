"""OpenAPI schemas of the built-in kinds: one component per message, with our descriptions.

Source: OpenAPI 3.0.3; the component names of Kubernetes' own documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from certwright.kube.apiserver.kinds.messages import META_MESSAGE, fields, wrapped_list
from certwright.kube.apiserver.kinds.native_lists import ATOMIC_MAPS, ATOMIC_MESSAGES, merge_of
from certwright.kube.apiserver.protobuf.fields import Field

Json = dict[str, Any]

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
    "Quantity": {"type": "string", "format": "quantity"},  # may be given as a number, too
    "IntOrString": {"type": "string", "format": "int-or-string"},
    "Duration": {"type": "string"},
    "Raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_DEFAULTS = {
    ("core.v1.ServicePort", "protocol"): "TCP",
    ("core.v1.ContainerPort", "protocol"): "TCP",
}
# Always written, and yet not required of a client.
_NOT_REQUIRED = frozenset(
    {
        ("core.v1.Event", "reportingComponent"),
        ("core.v1.Event", "reportingInstance"),
        ("discovery.v1.EndpointSlice", "ports"),
        ("rbac.v1.ClusterRole", "rules"),
        ("rbac.v1.Role", "rules"),
    }
)


def component_name(message: str) -> str:
    """`core.v1.Secret` is `io.k8s.api.core.v1.Secret` in Kubernetes' documents."""
    if message.startswith("meta."):
        return f"io.k8s.apimachinery.pkg.apis.{message}"
    if message.startswith("apiregistration."):
        return f"io.k8s.kube-aggregator.pkg.apis.{message}"
    return f"io.k8s.api.{message}"


def components(message: str, refer: Refer) -> Iterator[tuple[str, Json]]:
    """A message and all that it refers to, except metadata: name and schema of each, with references."""
    waiting, seen = [message], {message, META_MESSAGE}
    while waiting:
        current = waiting.pop()
        yield component_name(current), _schema(current, refer)
        for field in fields(current):
            if field.is_message and field.type not in seen and not wrapped_list(field.type):
                seen.add(field.type)
                waiting.append(field.type)


def inlined(message: str) -> Json:
    """The schema of a kind without references and without metadata; recursive messages are cut."""
    return _inlined(message, frozenset())


def _inlined(message: str, above: frozenset[str]) -> Json:
    if message in above:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = _schema(message, lambda inner: _inlined(inner, above | {message}))
    if not above:
        schema["properties"].pop("metadata", None)
    return schema


def _schema(message: str, refer: Refer) -> Json:
    schema: Json = {"type": "object", "description": _read_descriptions().get(message, "")}
    schema["properties"] = {field.name: _property(message, field, refer) for field in fields(message)}
    required = sorted(
        field.name
        for field in fields(message)
        if not field.optional and (message, field.name) not in _NOT_REQUIRED
    )
    if required:
        schema["required"] = required
    if message in ATOMIC_MESSAGES:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _property(message: str, field: Field, refer: Refer) -> Json:
    made = _value(field.type, refer)
    if field.is_map:
        made = {"type": "object", "additionalProperties": made}
        if (message, field.name) in ATOMIC_MAPS:
            made["x-kubernetes-map-type"] = "atomic"
    elif field.repeated:
        made = {"type": "array", "items": made, **_merging(message, field)}
    if (message, field.name) in _DEFAULTS:
        made["default"] = _DEFAULTS[message, field.name]
    words = _read_descriptions().get(f"{message}.{field.name}") or _read_descriptions().get(f"*.{field.name}")
    return {"description": words, **made} if words else made


def _value(type_: str, refer: Refer) -> Json:
    if type_ in _SCALARS:
        return dict(_SCALARS[type_])
    inner = wrapped_list(type_)
    if inner is not None:
        return {"type": "array", "items": _value(inner.type, refer)}
    return refer(type_)


def _merging(message: str, field: Field) -> Json:
    merge = merge_of(message, field.name)
    said: Json = {"x-kubernetes-list-type": merge.list_type}
    if merge.map_keys:
        said["x-kubernetes-list-map-keys"] = list(merge.map_keys)
    if merge.patch_key is not None:
        said["x-kubernetes-patch-strategy"] = "merge"
        if merge.patch_key:
            said["x-kubernetes-patch-merge-key"] = merge.patch_key
    return said


@cache
def _read_descriptions() -> dict[str, str]:
    """Our descriptions of messages and of their fields."""
    text = _DESCRIPTIONS_FILE.read_text(encoding="utf-8")
    lines = (line.partition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: words for name, _, words in lines}
