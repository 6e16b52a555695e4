"""The scale subresource of custom resources: how many, read and written by whoever scales anything.

A write changes one number of the object. Admission webhooks are shown the object, not the Scale; a
server-side apply of a Scale is refused.

Source: Kubernetes documentation, "Scale subresource"; API reference, Scale v1 autoscaling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from certwright.apiserver import objects
from certwright.apiserver.backend import Backend, Call, conflict, not_found
from certwright.apiserver.definitions import Json, Subresource
from certwright.apiserver.representations.negotiation import JSON, content_type, unsupported
from certwright.apiserver.verbs import bodies, forms
from certwright.apiserver.verbs import updates as verbs
from certwright.apiserver.verbs.patch import (
    JSON_PATCH,
    MERGE,
    PatchFailed,
    PatchMalformed,
    json_patch,
    merge_patch,
)
from certwright.kit.exchange import Request, Response
from certwright.resources.errors import BadRequest, Cause, Details, FieldError, InternalError, invalid
from certwright.store.contract import Row

KIND = ("autoscaling", "v1", "Scale")
_API_VERSION = "autoscaling/v1"
_MOST = 2**31 - 1


def subresource(paths: Mapping[str, str]) -> Subresource:
    """The subresource of a version whose definition says where the numbers are (JSONPaths, such as
    `.spec.replicas`)."""
    keys = _keys(paths["specReplicasPath"])

    def shape(new: Json, old: Json) -> Json:
        """The stored object with the number of the new one."""
        meta = dict(old["metadata"])
        wanted, changed = _at(new, keys), {**old, "metadata": meta}
        if wanted != _at(old, keys):
            _put(changed, keys, wanted)
            meta["generation"] = meta.get("generation", 0) + 1
        return changed

    return Subresource(name="scale", kind=KIND, shape=shape, scale=dict(paths))


def errors(obj: Json, paths: Mapping[str, str]) -> list[FieldError]:
    """What of an object's numbers no Scale can show."""
    found = []
    for name in ("specReplicasPath", "statusReplicasPath"):
        value = _at(obj, _keys(paths[name]))
        if type(value) is not int:
            continue
        if value < 0:
            found.append(invalid(paths[name], value, "should be a non-negative integer"))
        elif value > _MOST:
            found.append(invalid(paths[name], value, f"should be less than or equal to {_MOST}"))
    return found


def _keys(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def _at(obj: Any, keys: list[str]) -> Any:
    for key in keys:
        obj = obj.get(key) if type(obj) is dict else None
    return obj


def _put(obj: Json, keys: list[str], value: Any) -> None:
    # What is on the way is shared with the old object, so it is copied.
    for key in keys[:-1]:
        part = obj.get(key)
        obj[key] = dict(part) if type(part) is dict else {}
        obj = obj[key]
    obj[keys[-1]] = value


# --- verbs ------------------------------------------------------------------------------------------------


async def get(backend: Backend, call: Call) -> Response:
    """GET: 200 with the Scale."""
    row = await backend.store.get(call.key)
    if row is None:
        raise not_found(call.definition, call.route.name)
    obj, path = objects.to_object(call.definition, row), _paths(call)["specReplicasPath"]
    if _at(obj, _keys(path)) is None:
        text = f'the spec replicas field "{path}" does not exist'
        details = Details(causes=(Cause(message=text),))
        raise InternalError(f"Internal error occurred: {text}", details=details)
    return _answer(call, _scale(call, obj))


async def update(backend: Backend, call: Call) -> Response:
    """PUT: 200 with the Scale as it is then."""
    return await _write(backend, call, lambda _: bodies.read_json(call.request.body))


async def patch(backend: Backend, call: Call) -> Response:
    """PATCH, by JSON patch or merge patch: 200 with the Scale as it is then."""
    media = content_type(call.request.headers)
    change = {JSON_PATCH: json_patch, MERGE: merge_patch}.get(media)
    if change is None:
        raise unsupported((JSON_PATCH, MERGE))
    wanted = bodies.read_json(call.request.body)

    def patched(scale: Json) -> Any:
        try:
            return change(scale, wanted)
        except (PatchMalformed, PatchFailed) as error:
            raise BadRequest(f"error decoding patch: {error}") from None

    return await _write(backend, call, patched)


VERBS = {"get": get, "update": update, "patch": patch}


async def _write(backend: Backend, call: Call, change: Callable[[Json], Any]) -> Response:
    row = await backend.store.latest(call.key)
    if row is None:
        raise not_found(call.definition, call.route.name)
    scale = _scale(call, objects.to_object(call.definition, row))
    wanted = change(scale)
    replicas = _wanted_replicas(call, wanted)
    version = _check_preconditions(call, wanted, row)
    body: Json = {}
    _put(body, _keys(_paths(call)["specReplicasPath"]), replicas)
    if version:
        body["metadata"] = {"resourceVersion": version}
    request = Request(
        "PATCH",
        call.request.target,
        {**call.request.headers, "content-type": MERGE, "accept": JSON},
        objects.encode_json(body),
        call.request.user,
    )
    answer = await verbs.patch(backend, replace(call, request=request, verb="patch"))
    if answer.status != 200:
        return answer
    return _answer(call, _scale(call, objects.decode_json(bytes(answer.body))))


def _check_preconditions(call: Call, wanted: Json, row: Row) -> str:
    """The revision that the client means, if it says so."""
    meta = wanted.get("metadata")
    if type(meta) is not dict:
        return ""
    uid = objects.uid_of(row.meta)
    if meta.get("uid") and meta["uid"] != uid:
        text = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {uid}"
        raise conflict(call.definition, call.route.name, text)
    version = meta.get("resourceVersion") or ""
    if version and version != str(row.revision):
        raise conflict(call.definition, call.route.name)
    return str(version)


def _wanted_replicas(call: Call, wanted: Any) -> int:
    if type(wanted) is not dict or wanted.get("kind", "Scale") != "Scale":
        raise BadRequest("the body must be of kind Scale")
    if wanted.get("apiVersion", _API_VERSION) != _API_VERSION:
        raise BadRequest(f"the API version in the data ({wanted['apiVersion']}) is not {_API_VERSION}")
    name = (wanted.get("metadata") or {}).get("name", call.route.name)
    if name != call.route.name:
        raise BadRequest(
            f"the name of the object ({name}) does not match the name on the URL ({call.route.name})"
        )
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if type(replicas) is not int:
        raise BadRequest("spec.replicas must be an integer")
    return replicas


def _paths(call: Call) -> Mapping[str, str]:
    part = call.definition.subresource("scale")
    assert part is not None, "found by its name"
    return part.scale


def _scale(call: Call, obj: Json) -> Json:
    paths, meta = _paths(call), obj["metadata"]
    status: Json = {"replicas": _count(obj, paths["statusReplicasPath"])}
    if selector := _at(obj, _keys(paths["labelSelectorPath"])) if paths.get("labelSelectorPath") else "":
        status["selector"] = str(selector)
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": _API_VERSION,
        "metadata": {name: meta[name] for name in shown if name in meta},
        "spec": {"replicas": count} if (count := _count(obj, paths["specReplicasPath"])) else {},
        "status": status,
    }


def _count(obj: Json, path: str) -> int:
    value = _at(obj, _keys(path))
    if value is None:
        return 0
    if type(value) is not int:
        raise BadRequest(
            f"{path} accessor error: {value!r} is of the type {type(value).__name__}, expected int64"
        )
    return value


def _answer(call: Call, scale: Json) -> Response:
    return Response(200, forms.headers(call), objects.encode_json(scale))
