"""Field managers of a Scale's number: one field of the object, under another path and in another version.

Source: apimachinery `pkg/util/managedfields/scalehandler.go`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from certwright.kube.apiserver.base.json_values import encode_sorted
from certwright.kube.apiserver.fieldmanager import entries
from certwright.kube.apiserver.fieldmanager.entries import Entry
from certwright.kube.apiserver.fieldmanager.fields_set import Node, difference
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.objects import decode_json

_IN_SCALE: Node = {"f:spec": {"f:replicas": {}}}
_SCALE_VERSION = "autoscaling/v1"


def of_scale(backend: Backend, call: Call, stored: msgspec.Raw | None) -> msgspec.Raw | None:
    """The managers of the number, as managed fields of the Scale."""
    managers = []
    for entry in entries.read_entries(stored) if stored else ():
        where = _path(backend, call, entry.api_version)
        if where and _has(decode_json(entry.fields_v1), where):
            moved = msgspec.structs.replace(entry, api_version=_SCALE_VERSION)
            managers.append(entries.with_fields(moved, encode_sorted(_IN_SCALE)))
    return entries.write_entries(managers)


def of_parent(
    backend: Backend, call: Call, stored: msgspec.Raw | None, of_written: Any
) -> msgspec.Raw | None:
    """The object's managed fields after its Scale was written; `of_written` are those of the Scale."""
    # An updater's key contains the version, so that only appliers are found again, as in Kubernetes.
    left = {entry.key: entry for entry in (entries.read_entries(of_written) if of_written else ())}
    managers: list[Entry] = []
    for entry in entries.read_entries(stored) if stored else ():
        where = _path(backend, call, entry.api_version)
        if where is None:
            continue
        fields = decode_json(entry.fields_v1)
        if not where or not _has(fields, where) or left.pop(entry.key, None) is not None:
            managers.append(entry)
        elif rest := difference(fields, _node(where)):
            # Another manager has set the number since.
            managers.append(entries.with_fields(entry, encode_sorted(rest)))
    own = _path(backend, call, call.definition.api_version) or []
    for entry in left.values():
        if _has(decode_json(entry.fields_v1), ["f:spec", "f:replicas"]):
            # Without a time, as in Kubernetes, which looks for it where there is none.
            moved = msgspec.structs.replace(entry, api_version=call.definition.api_version, time=None)
            managers.append(entries.with_fields(moved, encode_sorted(_node(own))))
    return entries.write_entries(managers)


def _path(backend: Backend, call: Call, api_version: str) -> list[str] | None:
    """The path of the number in that version: empty where it has no Scale, None where it is not served."""
    group, _, version = api_version.rpartition("/")
    definition = backend.registry.find(group, version, call.definition.plural)
    if definition is None or definition.bucket != call.definition.bucket:
        return None
    part = definition.subresource("scale")
    path = part.scale["specReplicasPath"] if part is not None else ""
    return [f"f:{key}" for key in path.removeprefix(".").split(".")] if path else []


def _has(fields: Any, steps: list[str]) -> bool:
    for step in steps:
        if type(fields) is not dict or step not in fields:
            return False
        fields = fields[step]
    return True


def _node(steps: list[str]) -> Node:
    node: Node = {}
    for step in reversed(steps):
        node = {step: node}
    return node
