"""Events under their two names: `v1` and `events.k8s.io/v1`, one stored form.

Source: Kubernetes API reference, Event v1 events; Kubernetes `pkg/apis/events/v1/conversion.go`.
"""

from __future__ import annotations

import msgspec

from certwright.kube.apiserver.base.json_values import Json

_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""The fields of a core Event and their names in the newer group."""

OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}
"""The inverse mapping."""
_ALWAYS_THERE = {"reportingComponent": "", "reportingInstance": ""}
_LEFT_OUT_WHEN_EMPTY = ("reportingController", "reportingInstance")


def to_new(body: bytes) -> bytes:
    """A stored body converted to events.k8s.io."""
    content = _renamed(body, _NEW_NAMES)
    for name in _LEFT_OUT_WHEN_EMPTY:
        if not content.get(name):
            content.pop(name, None)
    return msgspec.json.encode(content)[1:-1]


def to_stored(body: bytes) -> bytes:
    """A body of events.k8s.io converted to the stored form."""
    return msgspec.json.encode({**_ALWAYS_THERE, **_renamed(body, OLD_NAMES)})[1:-1]


def _renamed(body: bytes, names: dict[str, str]) -> Json:
    content: Json = msgspec.json.decode(b"{" + body + b"}")
    return {names.get(name, name): value for name, value in content.items()}


def source(event: Json) -> str:
    """The program that reports a stored event, as field selectors know it."""
    component = (event.get("source") or {}).get("component") or event.get("reportingComponent")
    return str(component or "")


def field_readers() -> dict[str, str]:
    """Field selectors of events.k8s.io → the stored field that each means."""
    about = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return {
        **{f"regarding.{name}": f"involvedObject.{name}" for name in about},
        "reportingController": "reportingComponent",
    }
