"""Client-side apply as a three-way merge of JSON objects.

Inputs: the last applied object (from an annotation), the new object, and the live object. Fields that other
clients added stay; fields that the user has removed are deleted.

Source: Kubernetes documentation, "Declarative Management of Kubernetes Objects", "How apply calculates
differences"; the result is a JSON merge patch (RFC 7386).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's own annotation, so that both programs can be used on one object."""

# Go's encoding/json writes these as escapes; kubectl compares the annotation as text.
_GO_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\N{LINE SEPARATOR}": "\\u2028",
        "\N{PARAGRAPH SEPARATOR}": "\\u2029",
    }
)


def three_way_patch(
    last: Mapping[str, Any], desired: Mapping[str, Any], live: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON merge patch from `live` to `desired`, given the `last` applied object.

    Empty if nothing changes. Lists are replaced as a whole, a limit of merge patches.
    """
    patch = {name: None for name in last if name not in desired and live.get(name) is not None}
    return patch | _additions(last, desired, live)


def _additions(
    last: Mapping[str, Any], desired: Mapping[str, Any], live: Mapping[str, Any]
) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for name, value in desired.items():
        there = live.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            before = last.get(name)
            inner = three_way_patch(before if isinstance(before, Mapping) else {}, value, there)
            if inner:
                patch[name] = inner
        elif _differs(value, there):
            patch[name] = value
    return patch


def _differs(desired: Any, live: Any) -> bool:
    # In Python True == 1, but not in JSON.
    return desired != live or (isinstance(desired, bool) != isinstance(live, bool))


def with_last_applied(desired: Mapping[str, Any]) -> dict[str, Any]:
    """`desired` with itself in its annotation, byte for byte as in kubectl."""
    metadata = dict(desired.get("metadata") or {})
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != LAST_APPLIED}
    bare = {**desired, "metadata": {**metadata, "annotations": annotations}}
    text = msgspec.json.encode(bare, order="deterministic").decode().translate(_GO_ESCAPES) + "\n"
    return {**desired, "metadata": {**metadata, "annotations": {**annotations, LAST_APPLIED: text}}}


def last_applied(live: Mapping[str, Any]) -> dict[str, Any] | None:
    """The last applied object, from the annotation; None if it is missing or invalid."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    try:
        last = msgspec.json.decode(annotations.get(LAST_APPLIED, ""))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return last if isinstance(last, dict) else None
