"""Request bodies: read as JSON or YAML, and as strictly as the client wants.

Source: Kubernetes documentation, "Kubernetes API Concepts", validation for unrecognized or duplicate fields.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from certwright.apiserver.backend import Call
from certwright.apiserver.objects import Json, decode_json, encode_json
from certwright.apiserver.representations.negotiation import JSON, PROTOBUF, YAML, content_type, unsupported
from certwright.resources import manifests
from certwright.resources.errors import BadRequest, invalid_object, not_supported

_OBJECT_TYPES = (JSON, YAML, PROTOBUF)
_CUSTOM_TYPES = (JSON, YAML)


def read_json(body: bytes) -> Any:
    """The value of a JSON text. Raises `BadRequest`, whatever is wrong with it."""
    try:
        return decode_json(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def read_object(call: Call) -> tuple[Json, list[str]]:
    """The object in the body, and the paths of its duplicate fields.

    Raises `UnsupportedMediaType` and `BadRequest`.
    """
    media, body = content_type(call.request.headers), call.request.body
    if media not in _OBJECT_TYPES:
        raise unsupported(_OBJECT_TYPES)
    if media == PROTOBUF:
        if call.definition.custom:
            raise unsupported(_CUSTOM_TYPES)
        return _read_protobuf(call), []
    try:
        value = read_value(body, media)
    except BadRequest as error:
        raise unrecognized(call, f"couldn't get version/kind; json parse error: {error}") from None
    _check_head(call, value)
    strictness = field_validation(call)
    duplicates: list[str] = []
    if media == JSON and (strictness == "Strict" or (strictness == "Warn" and _may_repeat(body, value))):
        duplicates = duplicate_paths(body)
    return value, duplicates


_JSON_TYPES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
_GO_HEAD = (
    r"""struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"""
)
_SHOWN = 30  # bytes of a body that errors repeat


def _check_head(call: Call, value: Any) -> None:
    """Whether the value is an object that can say what it is, in the words of Go's decoder."""
    if value is None:
        raise unrecognized(call, "Object 'Kind' is missing in 'null'")
    if type(value) is not dict:
        what = f"{_JSON_TYPES[type(value)]} into Go value of type {_GO_HEAD}"
        raise unrecognized(
            call, f"couldn't get version/kind; json parse error: json: cannot unmarshal {what}"
        )
    for name in ("apiVersion", "kind"):
        if value.get(name) is not None and type(value[name]) is not str:
            what = f"{_JSON_TYPES[type(value[name])]} into Go struct field .{name} of type string"
            text = f"couldn't get version/kind; json parse error: json: cannot unmarshal {what}"
            raise unrecognized(call, text)


def unrecognized(call: Call, detail: str) -> BadRequest:
    """The body does not say what it is, or is not an object at all."""
    body, kind = call.request.body, call.definition.kind
    start = body[:_SHOWN]
    shown = start.decode(errors="replace") if body.startswith(b"{") else start.hex()
    shown = (shown + " ..." if len(body) > _SHOWN else shown) or "<empty>"
    return BadRequest(f"the object provided is unrecognized (must be of type {kind}): {detail} ({shown})")


def _read_protobuf(call: Call) -> Json:
    """The object in a protobuf body; of apiVersion and kind, what it leaves out is the path's."""
    # Only clients in Go send these: the tables are not read for others.
    from certwright.apiserver.representations import protobuf

    definition = call.definition
    try:
        return protobuf.decode(call.request.body, api_version=definition.api_version, kind=definition.kind)
    except protobuf.Unreadable as error:
        if not error.kind:
            raise unrecognized(call, error.message) from None
        version = error.api_version.rpartition("/")[2]
        raise unreadable(call, error.kind, version, error.message) from None


def read_options(call: Call, kind: str) -> Any:
    """The options in the body of a request that names its object by the path alone, such as DELETE.

    Raises `UnsupportedMediaType` and `BadRequest`.
    """
    media = content_type(call.request.headers)
    if media not in _OBJECT_TYPES:
        raise unsupported(_OBJECT_TYPES)
    if media != PROTOBUF:
        return read_value(call.request.body, media)
    # As above.
    from certwright.apiserver.representations import protobuf

    return protobuf.decode(call.request.body, api_version="v1", kind=kind)


def read_value(body: bytes, media: str) -> Any:
    """The value of a JSON or YAML body. Raises `BadRequest`."""
    if media == JSON:
        return read_json(body)
    try:
        return manifests.read_value(body)
    except ValueError as error:
        raise BadRequest(f"the body is not valid YAML: {error}") from None


def _may_repeat(body: bytes, value: Json) -> bool:
    """Whether a field may occur twice: then fewer fields came out than went in.

    This looks at the text only (a colon after a quote), so that the costly pass is left out nearly always; it
    serves warnings. Refusals (`Strict`) never rest on it.
    """
    return body.count(b'":') != encode_json(value).count(b'":')


class _Pairs(dict[str, Any]):
    """An object that knows which of its names came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs] if len(self) != len(pairs) else []
        self.repeated = sorted({name for name in names if names.count(name) > 1})


_DUPLICATES = json.JSONDecoder(object_pairs_hook=_Pairs)


def duplicate_paths(body: bytes) -> list[str]:
    """The paths of fields that occur more than once in one object of a JSON text that is valid."""
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("", _DUPLICATES.decode(body.decode()))]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _Pairs):
            dot = f"{path}." if path else ""
            found += [dot + name for name in value.repeated]
            waiting += [(dot + name, item) for name, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    return sorted(found)


def field_validation(call: Call) -> str:
    """`Strict`, `Warn` or `Ignore`. Raises `Invalid` for anything else."""
    wanted = call.query.get("fieldValidation") or "Warn"
    if wanted not in ("Strict", "Warn", "Ignore"):
        wrong = not_supported("fieldValidation", wanted, ("", "Ignore", "Strict", "Warn"))
        raise invalid_object("meta.k8s.io", f"{call.verb.capitalize()}Options", "", [wrong])
    return wanted


def strict_errors(call: Call, unknown: list[str], duplicates: list[str]) -> str:
    """What a strict client must be told of fields nobody knows or that came twice; empty: nothing.

    For clients that want warnings these become warnings.
    """
    if not unknown and not duplicates:
        return ""
    texts = [f'duplicate field "{path}"' for path in duplicates]
    texts += [f'unknown field "{path}"' for path in unknown]
    match field_validation(call):
        case "Strict":
            return "strict decoding error: " + ", ".join(texts)
        case "Warn":
            call.warnings += [text for text in texts if text not in call.warnings]
    return ""


def unreadable(call: Call, kind: str, version: str, detail: str) -> BadRequest:
    """The body cannot be taken for the kind that the path names."""
    return BadRequest(
        f'{kind} in version "{version}" cannot be handled as a {call.definition.kind}: {detail}'
    )
