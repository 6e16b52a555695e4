"""The CustomResourceDefinitions of our kinds, generated from the structs.

Our API server serves the same objects that install on a Kubernetes cluster. Descriptions, enums
and patterns come from the fields' `doc`, required lists from fields without a default, so that there is a
single source.

Source: Kubernetes API reference, CustomResourceDefinition v1 apiextensions; cert-manager `deploy/crds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from certwright import __version__
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import Condition, ObjectMeta
from certwright.resources.crd_rules import with_rules
from certwright.resources.names import VERSION_LABEL
from certwright.resources.pod import QUANTITY_PATTERN
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATES,
    CHALLENGES,
    CLUSTER_ISSUER_SETS,
    CLUSTER_ISSUERS,
    DELIVERIES,
    ISSUER_SETS,
    ISSUERS,
    ORDERS,
    OUR_KINDS,
)

Schema = dict[str, Any]

_API_VERSION: Final = "Group and version of the object's kind; written by the client, checked by the server."
_KIND: Final = "Kind of the object, in CamelCase; written by the client, checked by the server."

_PLAIN: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    bytes: {"type": "string", "format": "byte"},
    datetime: {"type": "string", "format": "date-time"},
    # The server validates metadata; a CRD may not describe it further.
    ObjectMeta: {"type": "object"},
    Any: {"x-kubernetes-preserve-unknown-fields": True},
}
# Servers do not enforce `format: int32`, and clients in Go fail to decode a list with a larger number.
_INT32: Final[Schema] = {"minimum": -(2**31), "maximum": 2**31 - 1}
_QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": QUANTITY_PATTERN,
    "x-kubernetes-int-or-string": True,
}


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All definitions. Read-only, because they share parts. The first call takes some milliseconds."""
    return [_definition(kind) for kind in OUR_KINDS]


def _definition(kind: AnyKind) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "categories": list(kind.categories),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    schema = object_schema(kind.type)
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [dict(column) for column in _COLUMNS[kind.kind]],
        "schema": {"openAPIV3Schema": with_rules(kind.kind, kind.group, schema)},
    }
    if "issuerRef" in schema["properties"]["spec"]["properties"]:
        version["selectableFields"] = [
            {"jsonPath": f".spec.issuerRef.{part}"} for part in ("group", "kind", "name")
        ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # `cmctl version` reads the label.
        "metadata": {"name": kind.resource, "labels": {VERSION_LABEL: __version__}},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def object_schema(type_: Any) -> Schema:
    """The structural schema of a top-level struct, with `apiVersion`, `kind` and `metadata`."""
    schema = _struct(type_)
    head: Schema = {
        "apiVersion": {"description": _API_VERSION, "type": "string"},
        "kind": {"description": _KIND, "type": "string"},
    }
    # Not even a description of metadata is allowed here.
    properties = head | schema["properties"] | {"metadata": dict(_PLAIN[ObjectMeta])}
    return schema | {"properties": properties}


@cache
def _struct(type_: Any) -> Schema:
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for item in msgspec.structs.fields(type_):
        schema = _of(item.type)
        if schema.pop("needed", item.required):
            required.append(item.encode_name)
        properties[item.encode_name] = schema
    # Under `python -OO` there are no docstrings; a schema without descriptions is still correct.
    result: Schema = {
        "description": " ".join((type_.__doc__ or "").split("\n\n")[0].split()),
        "type": "object",
    }
    if required:
        result["required"] = sorted(required)
    return result | {"properties": dict(sorted(properties.items()))}


def _of(annotation: Any) -> Schema:
    """The schema of a field's annotation; the field's own description wins over its type's."""
    if get_origin(annotation) is Annotated:
        inner, meta = get_args(annotation)
        words = dict(meta.extra_json_schema or {})
        if words.get("format") == "int32":
            words = _INT32 | words
        schema = _of(inner)
        if "items" in words:
            schema["items"] = schema["items"] | _listed(words.pop("items"))
        if words.pop("atomic", False):
            schema["x-kubernetes-map-type"] = "atomic"
        if keys := words.pop("map_keys", ()):
            schema |= _map_list(keys)
        return schema | {"description": meta.description} | _listed(words)
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return _of(members[0])
        # The only union in the API is a quantity, `int | str`.
        return dict(_QUANTITY)
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        kind = _map_list(("type",)) if element is Condition else {"x-kubernetes-list-type": "atomic"}
        return {"type": "array", "items": _of(element)} | kind
    if get_origin(annotation) is not None:
        return {"type": "object", "additionalProperties": _of(get_args(annotation)[1])}
    if annotation in _PLAIN:
        return dict(_PLAIN[annotation])
    return _struct(annotation)


def _map_list(keys: tuple[str, ...]) -> Schema:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _listed(words: Mapping[str, Any]) -> Schema:
    return {word: list(value) if isinstance(value, tuple) else value for word, value in words.items()}


def _condition_column(name: str, kind: str, part: str, *, priority: int = 0) -> dict[str, Any]:
    return _column(name, f'.status.conditions[?(@.type == "{kind}")].{part}', priority=priority)


def _column(name: str, path: str, *, priority: int = 0) -> dict[str, Any]:
    column = {"name": name, "type": "string", "jsonPath": path}
    return column | {"priority": priority} if priority else column


_AGE: Final = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "How long ago the object was created.",
}
_READY: Final = _condition_column("Ready", "Ready", "status")
_STATUS: Final = _condition_column("Status", "Ready", "message", priority=1)
_ISSUER: Final = _column("Issuer", ".spec.issuerRef.name", priority=1)
_ACTIVE: Final = _column("Active", ".status.active.name")
_STATE: Final = _column("State", ".status.state")
_REASON: Final = _column("Reason", ".status.reason", priority=1)

_COLUMNS: Final[Mapping[str, tuple[dict[str, Any], ...]]] = {
    CERTIFICATES.kind: (
        _READY,
        _column("Secret", ".spec.secretName"),
        _ISSUER,
        _STATUS,
        # Not of type date, which shows an age: a future moment would show as <invalid>.
        _column("Expiration", ".status.notAfter", priority=1),
        _AGE,
    ),
    CERTIFICATE_REQUESTS.kind: (
        _condition_column("Approved", "Approved", "status"),
        _condition_column("Denied", "Denied", "status"),
        _READY,
        _column("Issuer", ".spec.issuerRef.name"),
        _column("Requester", ".spec.username"),
        _STATUS,
        _AGE,
    ),
    ISSUERS.kind: (_READY, _STATUS, _AGE),
    CLUSTER_ISSUERS.kind: (_READY, _STATUS, _AGE),
    ISSUER_SETS.kind: (_READY, _ACTIVE, _STATUS, _AGE),
    CLUSTER_ISSUER_SETS.kind: (_READY, _ACTIVE, _STATUS, _AGE),
    DELIVERIES.kind: (
        _condition_column("Delivered", "Delivered", "status"),
        _condition_column("Deployed", "Deployed", "status"),
        _column("Root", ".spec.root"),
        _column("Path", ".spec.path"),
        _condition_column("Status", "Delivered", "message", priority=1),
        _AGE,
    ),
    ORDERS.kind: (_STATE, _ISSUER, _REASON, _AGE),
    CHALLENGES.kind: (_STATE, _column("Domain", ".spec.dnsName"), _REASON, _AGE),
}
