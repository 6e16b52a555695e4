"""The CustomResourceDefinitions that both servers serve, and objects of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "test.dev"

STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}


def an_object(**properties: Json) -> Json:
    """The schema of an object with these properties."""
    return {"type": "object", "properties": properties}


def a_list(items: Any, list_type: str = "", keys: Sequence[str] = (), **words: Any) -> Json:
    """The schema of a list; `keys` are those of a list of the type `map`."""
    typed = {"x-kubernetes-list-type": list_type} if list_type else {}
    keyed = {"x-kubernetes-list-map-keys": list(keys)} if keys else {}
    return {"type": "array", "items": items, **typed, **keyed, **words}


def crd(
    plural: str,
    schema: Json,
    *,
    kind: str = "",
    group: str = GROUP,
    scope: str = "Namespaced",
    names: Json | None = None,
    **version: Any,
) -> Json:
    """A CustomResourceDefinition with one version, v1."""
    kind = kind or plural.removesuffix("s").capitalize()
    v1 = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **(names or {})},
            "versions": [v1],
        },
    }


_SCALE: Json = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
_WIDGET_SPEC: Json = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100},
        "colour": {"type": "string", "default": "red", "enum": ["red", "green", "blue"]},
        "owner": {"type": "string", "maxLength": 20},
        "note": {"type": "string", "nullable": True},
        "ratio": {"type": "number", "multipleOf": 0.5},
        "enabled": {"type": "boolean", "default": True},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "since": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": a_list(STRING, "set", maxItems=4),
        "args": a_list(STRING, "atomic"),
        "words": a_list(STRING),
        "parts": a_list(
            {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": STRING,
                    "count": {"type": "integer", "default": 1},
                    "labels": {"type": "object", "additionalProperties": STRING},
                },
            },
            "map",
            ["name"],
        ),
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "whole": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": STRING, "b": STRING},
        },
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"depth": {"type": "integer", "default": 3}, "name": STRING},
        },
        "free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": an_object(a=STRING)},
        },
        "embedded": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {"spec": an_object(x=INTEGER)},
        },
        "choice": {
            "type": "object",
            "properties": {"a": STRING, "b": STRING},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "replicas": {"type": "integer", "format": "int32"},
    },
}
_WIDGET_STATUS: Json = {
    "type": "object",
    "properties": {
        "phase": STRING,
        "ready": {"type": "boolean"},
        "replicas": {"type": "integer"},
        "selector": STRING,
        "conditions": a_list(
            an_object(type=STRING, status=STRING, message=STRING) | {"required": ["type", "status"]},
            "map",
            ["type"],
        ),
    },
}
WIDGETS = crd(
    "widgets",
    {
        "type": "object",
        "required": ["spec"],
        "description": "A widget.",
        "properties": {"spec": _WIDGET_SPEC, "status": _WIDGET_STATUS},
    },
    names={"shortNames": ["wd"], "categories": ["all"]},
    subresources={
        "status": {},
        "scale": {**_SCALE, "labelSelectorPath": ".status.selector"},
    },
    additionalPrinterColumns=[
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large."},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
        {"name": "Enabled", "type": "boolean", "jsonPath": ".spec.enabled"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
        {"name": "Since", "type": "date", "jsonPath": ".spec.since", "format": "date-time"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "First", "type": "string", "jsonPath": ".spec.words[0]"},
        {"name": "Words", "type": "string", "jsonPath": ".spec.words"},
        {"name": "Limits", "type": "string", "jsonPath": ".spec.limits"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
    selectableFields=[{"jsonPath": ".spec.owner"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.enabled"}],
)
"""Namespaced, with status and scale, and with most that a structural schema can say."""

GAUGES = crd(
    "gauges",
    an_object(
        spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        status={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ),
    scope="Cluster",
)
"""In no namespace, without subresources, and with any content."""

RULES = crd(
    "rules",
    an_object(
        spec={
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.low <= self.high", "message": "low must not be above high"},
                {
                    "rule": "!has(self.name) || self.name.startsWith('x-')",
                    "messageExpression": "'bad name: ' + self.name",
                    "reason": "FieldValueForbidden",
                    "fieldPath": ".name",
                },
            ],
            "properties": {
                "low": {"type": "integer", "default": 0},
                "high": {"type": "integer", "default": 10},
                "name": {"type": "string", "maxLength": 30},
                "fixed": {
                    "type": "string",
                    "maxLength": 30,
                    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}],
                },
                "items": a_list(
                    an_object(n=INTEGER) | {"x-kubernetes-validations": [{"rule": "self.n > 0"}]}, maxItems=5
                ),
            },
        }
    ),
    group="cel.test.dev",
)
"""With CEL rules."""

_TWINS_SCHEMA = an_object(spec=an_object(a=STRING, b={"type": "string", "default": "b"}))
TWINS = crd("twins", _TWINS_SCHEMA, kind="Twin")
TWINS["spec"]["versions"].append(
    {
        "name": "v1beta1",
        "served": True,
        "storage": False,
        "deprecated": True,
        "schema": {"openAPIV3Schema": an_object(spec=an_object(a=STRING))},
    }
)
TWINS["spec"]["versions"].append(
    {
        "name": "v1alpha1",
        "served": False,
        "storage": False,
        "schema": {"openAPIV3Schema": an_object(spec=an_object(a=STRING))},
    }
)
"""In two served versions without conversion, one of them deprecated, and one that is not served."""

_ITEM = an_object(name=STRING, note=STRING, tags=a_list(STRING))
_PORT: Json = {
    "type": "object",
    "required": ["port"],
    "properties": {
        "port": INTEGER,
        "protocol": {"type": "string", "default": "TCP"},
        "note": STRING,
        "deep": an_object(x=STRING, y=STRING),
    },
}
_OWNED_SPEC = an_object(
    text=STRING,
    number=INTEGER,
    mixed={"x-kubernetes-int-or-string": True},
    either={"x-kubernetes-preserve-unknown-fields": True},
    names=a_list(STRING, "set"),
    whole=a_list(_ITEM),
    ports=a_list(_PORT, "map", ["port", "protocol"]),
    map={"type": "object", "additionalProperties": STRING},
    maps={"type": "object", "additionalProperties": an_object(x=STRING, y=INTEGER)},
    block={"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": STRING, "y": STRING}},
    anything={
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"known": an_object(x=STRING)},
    },
    deep=an_object(x=STRING, y=an_object(z=STRING, w=INTEGER)),
    replicas={"type": "integer", "format": "int32"},
)
_OWNED_STATUS = an_object(
    phase=STRING,
    replicas={"type": "integer", "format": "int32"},
    conditions=a_list(an_object(type=STRING, status=STRING) | {"required": ["type"]}, "map", ["type"]),
)
OWNED = crd(
    "owneds",
    an_object(spec=_OWNED_SPEC, status=_OWNED_STATUS),
    group="owned.dev",
    subresources={"status": {}, "scale": _SCALE},
)
"""With every way of owning lists and maps."""

ALL = (WIDGETS, GAUGES, RULES, TWINS, OWNED)

GAUGES_PATH = "/apis/test.dev/v1/gauges"


def in_namespace(namespace: str, plural: str = "widgets", *, group: str = GROUP, version: str = "v1") -> str:
    """The path of a collection."""
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}"


def collection(definition: Json, namespace: str) -> str:
    """The path of the collection of a definition."""
    spec = definition["spec"]
    base = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
    if spec["scope"] == "Cluster":
        return f"{base}/{spec['names']['plural']}"
    return f"{base}/namespaces/{namespace}/{spec['names']['plural']}"


def widget(name: str, /, *, meta: Json | None = None, **spec: Any) -> Json:
    """A Widget; its size is 1 unless said otherwise."""
    return {
        "apiVersion": "test.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name, **(meta or {})},
        "spec": {"size": 1, **spec},
    }


def gauge(name: str, /, *, meta: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "test.dev/v1",
        "kind": "Gauge",
        "metadata": {"name": name, **(meta or {})},
        "spec": spec,
    }


def twin(name: str, /, *, version: str = "v1", **spec: Any) -> Json:
    return {"apiVersion": f"test.dev/{version}", "kind": "Twin", "metadata": {"name": name}, "spec": spec}


def owned(name: str, /, *, meta: Json | None = None, **parts: Any) -> Json:
    """An Owned, with such a spec or status."""
    return {
        "apiVersion": "owned.dev/v1",
        "kind": "Owned",
        "metadata": {"name": name, **(meta or {})},
        **parts,
    }
