"""Scale subresource of custom resources: the number of replicas, for autoscalers and `kubectl scale`.

A write changes one number of the object. The managed fields of a Scale contain one field of the object under
another path, so they are mapped from the object to the Scale and back. Mutating webhooks receive the object,
not the Scale.

Source: Kubernetes documentation, "Scale subresource"; API reference, Scale v1 autoscaling; apimachinery
`pkg/util/managedfields/scalehandler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import msgspec

from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    Cause,
    Details,
    FieldError,
    InternalError,
    invalid,
)
from certwright.kube.apiserver.base.json_values import Json, NotOfKind, encode_sorted, wrong_type
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.fieldmanager import entries, managed
from certwright.kube.apiserver.fieldmanager.entries import Entry
from certwright.kube.apiserver.fieldmanager.fieldpath import Node, difference
from certwright.kube.apiserver.kinds.native import native_kind
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend, Call, not_found
from certwright.kube.apiserver.model.definitions import ResourceDefinition, Subresource
from certwright.kube.apiserver.model.negotiation import WHOLE
from certwright.kube.apiserver.model.objects import decode_json
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.representations.tables import DEFAULT_AGE, printer_columns
from certwright.kube.apiserver.requests import bodies
from certwright.kube.apiserver.requests.patch import APPLY
from certwright.kube.apiserver.verbs import updates
from certwright.kube.apiserver.verbs.shaping import check_address, check_type, refuse_body, refuse_patch
from certwright.kube.util.http_messages import Response

KIND: Final = ("autoscaling", "v1", "Scale")
_MOST = 2**31 - 1
_UNSET = -(2**31)
"""Stands for a missing number, as in Kubernetes: a write must set it."""


def subresource(paths: Mapping[str, str]) -> Subresource:
    """The subresource of a version whose definition has these JSONPaths of the numbers, such as
    `.spec.replicas`."""

    def shape(new: Json, old: Json) -> Json:
        """The object that `_with_scale` made, with the generation updated."""
        changed = {**new, "metadata": {**old["metadata"]}}
        if changed != {**old, "metadata": changed["metadata"]}:
            changed["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return changed

    return Subresource(name="scale", kind=KIND, shape=shape, scale=dict(paths))


def errors(paths: Mapping[str, str], obj: Json, old: Json | None) -> list[FieldError]:
    """The errors of numbers that a Scale cannot represent."""
    field_errors = []
    # A write to the status shares its spec with the stored object, and is checked for the status only.
    only_status = old is not None and "spec" in obj and obj["spec"] is old.get("spec")
    for name in ("statusReplicasPath",) if only_status else ("specReplicasPath", "statusReplicasPath"):
        try:
            value = _number(obj, paths[name])
        except _Unexpected as error:
            field_errors.append(invalid(paths[name], 0, str(error)))
            continue
        if value < 0:
            field_errors.append(invalid(paths[name], value, "should be a non-negative integer"))
        elif value > _MOST:
            field_errors.append(invalid(paths[name], value, f"should be less than or equal to {_MOST}"))
    try:
        _selector(obj, paths)
    except _Unexpected as error:
        field_errors.append(invalid(paths["labelSelectorPath"], "", str(error)))
    return field_errors


class _Unexpected(Exception):
    """A value of another type at a path."""

    def __init__(self, keys: list[str], value: Any, expected: str) -> None:
        super().__init__(wrong_type(".".join(keys), expected, value))


_ABSENT = object()


def _find(obj: Any, path: str) -> Any:
    """The value at a path, or `_ABSENT`. Raises `_Unexpected` for another type on the path."""
    keys = _keys(path)
    for index, key in enumerate(keys):
        if obj is None:
            return _ABSENT
        if type(obj) is not dict:
            raise _Unexpected(keys[: index + 1], obj, "an object")
        if key not in obj:
            return _ABSENT
        obj = obj[key]
    return obj


def _number(obj: Json, path: str) -> int:
    value = _find(obj, path)
    if value is _ABSENT:
        return 0
    if type(value) is not int:
        raise _Unexpected(_keys(path), value, "an integer of 64 bits")
    return value


def _selector(obj: Json, paths: Mapping[str, str]) -> str:
    path = paths.get("labelSelectorPath") or ""
    value = _find(obj, path) if path else _ABSENT
    if value is _ABSENT:
        return ""
    if type(value) is not str:
        raise _Unexpected(_keys(path), value, "a string")
    return value


def _keys(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


# --- verbs ------------------------------------------------------------------------------------------------


@cache
def definition() -> ResourceDefinition:
    """The definition of the kind Scale."""
    group, version, kind = KIND
    replicas = (
        {"name": name, "type": "integer", "jsonPath": f".{part}.replicas", "description": text}
        for name, part, text in (
            ("Desired", "spec", "Number of desired replicas"),
            ("Available", "status", "Number of actual replicas"),
        )
    )
    columns = printer_columns((*replicas, DEFAULT_AGE))
    return native_kind(f"{group}/{version}", kind, "scales", columns=columns)


async def get(backend: Backend, call: Call) -> Response:
    """GET: 200 with the Scale."""
    row = await backend.store.get(call.key)
    if row is None:
        raise not_found(call.definition, call.route.name)
    obj, path = objects.to_object(call.definition, row), _paths(call)["specReplicasPath"]
    scale = shown(call, obj)
    if _find(obj, path) is _ABSENT:
        text = f'the spec replicas field "{path}" does not exist'
        details = Details(causes=(Cause(message=text),))
        raise InternalError(f"Internal error occurred: {text}", details=details)
    return _answer(backend, call, scale)


async def update(backend: Backend, call: Call) -> Response:
    """PUT: 200 with the new Scale."""
    bodies.check(call)
    inner = replace(call, definition=definition())
    body = call.request.body

    def change(old: Json) -> Json:
        sent, duplicates = bodies.read_object(inner)
        check_type(inner, sent)
        if text := bodies.strict_errors(call, definition().schema.process(sent), duplicates):
            raise refuse_body(inner, text)
        check_address(call, sent.get("metadata") or {})
        return _with_scale(backend, call, inner, sent, old, applied=False)

    return await _write(backend, call, change, pinned=b'"resourceVersion"' in body)


async def patch(backend: Backend, call: Call) -> Response:
    """PATCH by JSON patch, merge patch or apply: 200 with the new Scale."""
    inner = replace(call, definition=definition())
    applied = updates.check_media(call) == APPLY
    patched = updates.read_patch(backend, inner)

    def change(old: Json) -> Json:
        sent = patched.change(_sendable(backend, call, old))
        shown = objects.encode_json(sent)
        try:
            unknown = definition().schema.process(sent)
        except NotOfKind as error:
            raise refuse_patch(_shown_as(call, shown), error.detail) from None
        if text := bodies.strict_errors(call, unknown, []):
            raise refuse_patch(_shown_as(call, shown), text)
        return _with_scale(backend, call, inner, sent, old, applied=applied)

    return await _write(backend, call, change, pinned=patched.pinned)


VERBS = {"get": get, "update": update, "patch": patch}


async def _write(backend: Backend, call: Call, change: Callable[[Json], Json], *, pinned: bool) -> Response:
    full_call = replace(call, form=WHOLE)
    answer = await updates.modify(
        backend, full_call, updates.Update(change, pinned, refuse_patch, owned=True)
    )
    return _answer(backend, call, shown(call, objects.decode_json(bytes(answer.body))))


def _shown_as(call: Call, body: bytes) -> Call:
    return replace(call, request=msgspec.structs.replace(call.request, body=body))


def _sendable(backend: Backend, call: Call, obj: Json) -> Json:
    """The Scale that a client changes: with its managed fields, and `_UNSET` for a missing number."""
    scale = shown(call, obj)
    if _find(obj, _paths(call)["specReplicasPath"]) is _ABSENT:
        scale["spec"]["replicas"] = _UNSET
    stored = obj["metadata"].get(MANAGED)
    entries.put(scale["metadata"], of_scale(backend, call, stored))
    return scale


def _with_scale(backend: Backend, call: Call, inner: Call, new: Json, old: Json, *, applied: bool) -> Json:
    """The stored object with the number and the managed fields of a written Scale."""
    path, meta = _paths(call)["specReplicasPath"], new.get("metadata") or {}
    if not applied:
        managed.on_update(backend, inner, new, _sendable(backend, call, old))
    replicas = (new.get("spec") or {}).get("replicas", 0)
    if replicas == _UNSET:
        raise BadRequest(f'the spec replicas field "{path}" cannot be empty')
    changed = {**old, "metadata": dict(old["metadata"])}
    holder, keys = changed, _keys(path)
    for key in keys[:-1]:
        # The nodes on the path are shared with the old object, so they are copied.
        part = holder.get(key)
        holder[key] = dict(part) if type(part) is dict else {}
        holder = holder[key]
    holder[keys[-1]] = replicas
    for name in ("name", "namespace", "uid", "resourceVersion"):
        if meta.get(name):
            changed["metadata"][name] = meta[name]
    stored = old["metadata"].get(MANAGED)
    entries.put(changed["metadata"], of_parent(backend, call, stored, meta.get(MANAGED)))
    return changed


def _paths(call: Call) -> Mapping[str, str]:
    part = call.definition.subresource("scale")
    assert part is not None, "found by its name"
    return part.scale


def shown(call: Call, obj: Json) -> Json:
    """The Scale of an object. Raises `ApiError` for values of other types."""
    paths, meta = _paths(call), obj["metadata"]
    try:
        spec, status = _number(obj, paths["specReplicasPath"]), _number(obj, paths["statusReplicasPath"])
        selector = _selector(obj, paths)
    except _Unexpected as error:
        raise ApiError(str(error)) from None
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "apiVersion": f"{KIND[0]}/{KIND[1]}",
        "kind": KIND[2],
        "metadata": {name: meta[name] for name in shown if name in meta},
        "spec": {"replicas": spec} if spec else {},
        "status": {"replicas": status, **({"selector": selector} if selector else {})},
    }


def _answer(backend: Backend, call: Call, scale: Json) -> Response:
    inner = replace(call, definition=definition())
    row = objects.unstored(call.key, scale)._replace(
        revision=int(scale["metadata"].get("resourceVersion", 0))
    )
    return responses.object_response(inner, row, backend.clock)


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
    """The path of the number in that version: empty without a Scale, None if the version is not served."""
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
