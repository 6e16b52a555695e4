"""Request bodies and the parameters of writes, decoded as strictly as the client requests.

Bodies are JSON, YAML or protobuf. Source: Kubernetes documentation, "Kubernetes API Concepts", validation for
unrecognized or duplicate fields; API reference, CreateOptions, UpdateOptions and PatchOptions v1 meta.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from certwright.kube.api import manifests
from certwright.kube.api.errors import (
    BadRequest,
    FieldError,
    forbidden,
    invalid,
    invalid_object,
    not_supported,
    required,
    too_long,
)
from certwright.kube.apiserver.base.json_values import (
    Json,
    NotOfKind,
    decode_as_go,
    whole_as_integer,
    with_bounded_integers,
    wrong_type,
)
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.negotiation import JSON, PROTOBUF, YAML, content_type, unsupported
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.model.offload import LARGE
from certwright.kube.apiserver.protobuf import codec
from certwright.kube.util.durations import parse_duration
from certwright.kube.util.encoding import holds_private_key, quoted

_OBJECT_TYPES = (JSON, YAML, PROTOBUF)
_CUSTOM_TYPES = (JSON, YAML)

MAX_DEPTH = 200
"""Nesting limit of lists and objects; Go has 10,000, which no real object needs. YAML has less."""


def read_json(body: bytes, *, custom: bool = False) -> Any:
    """The value of a JSON text. Raises `BadRequest`.

    `custom`: of a custom resource, where Kubernetes writes 1.0 as 1.
    """
    try:
        value = decode_as_go(body, typed=not custom)
    except RecursionError:
        raise BadRequest(_TOO_DEEP) from None
    except (msgspec.MsgspecError, ValueError) as error:
        value = _read_laxly(body, error)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and is_too_deep(value):
        raise BadRequest(_TOO_DEEP)
    return value


_TOO_DEEP = f"the body is nested deeper than {MAX_DEPTH} levels"


def is_too_deep(value: Any) -> bool:
    """Whether a value is nested deeper than `MAX_DEPTH`. Recursive code may rely on that limit."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for item in level
            if type(item) is dict or type(item) is list
            for inner in (item.values() if type(item) is dict else item)
        ]
        if not level:
            return False
    return True


def _read_laxly(body: bytes, error: Exception) -> Any:
    """Invalid UTF-8 and escapes that are no characters are replaced, as Go does."""
    try:
        text = body.decode(errors="replace")
        value = json.loads(text, parse_float=whole_as_integer, parse_constant=_no_constant)
        return _without_surrogates(with_bounded_integers(value, body))
    except RecursionError:
        raise BadRequest(_TOO_DEEP) from None
    except ValueError:
        raise BadRequest(f"the body is not valid JSON: {error}") from None


def _no_constant(text: str) -> Any:
    """JSON has no NaN and no Infinity (RFC 8259 §6); Python's decoder accepts them."""
    raise ValueError(text)


def _without_surrogates(value: Any) -> Any:
    """Replaces halves of surrogate pairs by U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value


def check_media(call: Call) -> str:
    """The media type of the object in the body. Raises `UnsupportedMediaType`."""
    media = content_type(call.request.headers)
    if media not in _OBJECT_TYPES:
        raise unsupported(_OBJECT_TYPES)
    if media == PROTOBUF and call.definition.custom:
        raise unsupported(_CUSTOM_TYPES)
    return media


def read_object(call: Call) -> tuple[Json, list[str]]:
    """The object in the body, and the message about duplicate fields for a strict client. An apiVersion or
    kind that is missing in protobuf is the path's.

    Raises `UnsupportedMediaType` and `BadRequest`.
    """
    media, body = check_media(call), call.request.body
    if media == PROTOBUF:
        definition = call.definition
        try:
            return codec.decode(body, api_version=definition.api_version, kind=definition.kind), []
        except codec.Unreadable as error:
            if not error.kind:
                raise unrecognized(call, error.message) from None
            version = error.api_version.rpartition("/")[2]
            raise unreadable(call, error.kind, version, error.message) from None
    texts: list[str] = []
    try:
        if media == JSON:
            value = read_json(body, custom=call.definition.custom)
        else:
            value, texts = read_yaml(body)
    except BadRequest as error:
        where = "couldn't get version/kind; " if media == JSON else ""
        raise unrecognized(call, f"{where}{error}") from None
    if value is None:
        shown = quotable(call, call.request.body.decode(errors="replace"))
        raise unrecognized(call, f"Object 'Kind' is missing in '{shown}'")
    if text := headless(value):
        raise unrecognized(call, text)
    if (value.get("apiVersion") or "").count("/") > 1:
        raise unrecognized(call, f"unexpected GroupVersion string: {value['apiVersion']}")
    return value, repeats(call, value) if media == JSON else texts


def read_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The first value of a YAML text, and Go's messages for duplicate keys. Raises `BadRequest`."""
    try:
        value, repeats = manifests.read_first(body)
    except ValueError as error:
        raise BadRequest(f"the body is not valid YAML: {error}") from None
    lines = [f"  line {repeat.line}: key {quoted(repeat.key)} already set in map" for repeat in repeats]
    return value, ["\n".join([_YAML_ERRORS, *lines])] if lines else []


_YAML_ERRORS = "yaml: unmarshal errors:"


_SHOWN = 30  # maximum bytes of a body quoted in errors


_CONFIDENTIAL = frozenset({"secrets", "certificates.cert-manager.io", "tokenreviews.authentication.k8s.io"})
"""Resources whose objects may contain keys, passwords and tokens."""


def quotable(call: Call, text: str) -> str:
    """An object, or a part of one, as an error may quote it: every error that does so MUST call this
    function.

    Kubernetes quotes anything. Logs of clients and CI keep errors, and must not contain keys.
    """
    is_confidential = call.definition.resource in _CONFIDENTIAL or holds_private_key(text)
    return "<omitted: it may hold a secret>" if is_confidential else text


def headless(value: Any) -> str:
    """Why a value has no valid apiVersion and kind; empty if it has."""
    if type(value) is not dict:
        return f"couldn't get version/kind; {wrong_type('the body', 'an object', value)}"
    for name in ("apiVersion", "kind"):
        if value.get(name) is not None and type(value[name]) is not str:
            return f"couldn't get version/kind; {wrong_type(name, 'a string', value[name])}"
    return ""


def unrecognized(call: Call, detail: str) -> BadRequest:
    """The body has no apiVersion or kind, or is not an object at all."""
    body, kind = call.request.body, call.definition.kind
    start = body[:_SHOWN]
    shown = start.decode(errors="replace") if body.startswith(b"{") else start.hex()
    shown = (quotable(call, shown) + " ..." if len(body) > _SHOWN else shown) or "<empty>"
    return BadRequest(f"the object provided is unrecognized (must be of type {kind}): {detail} ({shown})")


def read_options(call: Call, kind: str) -> Any:
    """The options in the body of a request that names its object by the path alone, such as DELETE.

    Raises `UnsupportedMediaType` and `BadRequest`.
    """
    media, body = content_type(call.request.headers), call.request.body
    if media not in _OBJECT_TYPES:
        raise unsupported(_OBJECT_TYPES)
    if media == JSON:
        try:
            return read_json(body)
        except BadRequest as error:
            raise BadRequest(f"couldn't get version/kind; {error}") from None
    if media == YAML:
        return read_yaml(body)[0]
    return codec.decode(body, api_version="v1", kind=kind)


def _may_repeat(body: bytes, value: Json) -> bool:
    """Whether a field may be duplicate: then fewer fields were decoded than the text has.

    This checks the text only (a colon after a quote), so that the costly pass is nearly always skipped; it
    serves warnings. Refusals (`Strict`) never rely on it.
    """
    if len(body) > LARGE:
        return body.count(b'":') != _count_colons(value)
    written = encode_json(value)
    # Programs often send the same bytes.
    return written != body and body.count(b'":') != written.count(b'":')


def _count_colons(value: Any) -> int:
    """The number of colons after a quote in the JSON of `value`, without encoding it: numbers may take long
    to encode, and no other Python code would run meanwhile."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if type(item) is dict:
            count += len(item) + sum(key.count('":') for key in item)
            waiting += item.values()
        elif type(item) is list:
            waiting += item
        elif type(item) is str:
            count += item.count('":')
    return count


class _Pairs(list[tuple[str, Any]]):
    """The members of an object in their original order, duplicates included."""


_AS_WRITTEN = json.JSONDecoder(object_pairs_hook=_Pairs)


def repeats(call: Call, value: Any) -> list[str]:
    """Go's messages for the duplicate fields in one object of the call's JSON, which is `value`.

    Empty where the client ignores them.
    """
    strictness, body = field_validation(call), call.request.body
    if strictness == "Ignore" or (strictness == "Warn" and not _may_repeat(body, value)):
        return []
    messages: dict[str, None] = {}
    waiting: list[tuple[str, Any, bool]] = [("", _AS_WRITTEN.decode(body.decode(errors="replace")), False)]
    while waiting:
        path, item, again = waiting.pop()
        if again:
            messages[f'duplicate field "{path}"'] = None
        if isinstance(item, _Pairs):
            seen, dot = set[str](), f"{path}." if path else ""
            members = []
            for name, inner in item:
                members.append((dot + name, inner, name in seen))
                seen.add(name)
            waiting += reversed(members)
        elif isinstance(item, list):
            waiting += reversed([(f"{path}[{index}]", inner, False) for index, inner in enumerate(item)])
    return list(messages)


def field_validation(call: Call) -> str:
    """`Strict`, `Warn` or `Ignore`, once `check` has accepted the parameters."""
    return call.query.get("fieldValidation") or "Warn"


def strict_errors(call: Call, unknown: list[str], repeats: Sequence[str]) -> str:
    """The error about unknown or duplicate fields for a strict client; empty: none.

    For clients that request warnings these become warnings. `repeats` are texts, `unknown` are paths.
    """
    if not unknown and not repeats:
        return ""
    texts = [*repeats, *(f'unknown field "{path}"' for path in unknown)]
    match field_validation(call):
        case "Strict":
            return "strict decoding error: " + ", ".join(texts)
        case "Warn":
            for text in texts:
                # Each error of YAML is a warning of its own.
                lines = text.splitlines()[1:] if text.startswith(_YAML_ERRORS) else [text]
                call.warnings += [line.strip() for line in lines if line.strip() not in call.warnings]
    return ""


def unreadable(call: Call, kind: str, version: str, detail: str) -> NotOfKind:
    """The body is not of the kind that the path names."""
    # A decoded custom object has the kind in its body.
    expected = kind if call.definition.custom else call.definition.kind
    return NotOfKind(kind, version, detail, expected=expected)


MAX_MANAGER_BYTES = 128
_STRICTNESS = ("", "Ignore", "Strict", "Warn")
_MAX_PARAMETERS = 100


def check(call: Call, *, applies: bool = False) -> None:
    """Raise `Invalid` for invalid parameters of a create, update or patch.

    `applies`: the patch is a server-side apply, which must name its field manager and may be forced.
    """
    query = call.query
    if not query and not applies:
        return
    errors: list[FieldError] = []
    manager = query.get("fieldManager", "")
    if applies and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    elif call.verb == "patch" and not applies and "force" in query:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    errors += check_manager(manager)
    if "dryRun" in query:
        errors += check_dry_run(values_of(call, "dryRun"))
    strictness = query.get("fieldValidation", "")
    if strictness not in _STRICTNESS:
        errors.append(not_supported("fieldValidation", strictness, _STRICTNESS))
    if errors:
        raise invalid_object("meta.k8s.io", f"{call.verb.capitalize()}Options", "", errors)


def values_of(call: Call, name: str) -> list[str]:
    """All values of a repeatable parameter."""
    query = call.request.target.partition("?")[2]
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    return [value for key, value in pairs if key == name]


def check_dry_run(values: list[str]) -> list[FieldError]:
    """The errors of `dryRun`: the only valid stage is `All`."""
    return [] if set(values) <= {"All"} else [not_supported("dryRun", values, ("All",))]


def check_manager(name: str, path: str = "fieldManager") -> list[FieldError]:
    """The errors of a field manager's name."""
    errors: list[FieldError] = []
    if len(name) <= MAX_MANAGER_BYTES and name.isprintable() and name.isascii():
        return errors
    if len(name.encode(errors="surrogatepass")) > MAX_MANAGER_BYTES:
        errors.append(too_long(path, MAX_MANAGER_BYTES))
    position = 0
    for mark in name:
        if not mark.isprintable():
            text = f"invalid character U+{ord(mark):04X} (at position {position})"
            errors.append(invalid(path, name, text))
        position += len(mark.encode(errors="surrogatepass"))
    return errors


def check_timeout(query: Mapping[str, str]) -> None:
    """Check that the parameter `timeout`, which every request may have, is a duration. Raises `BadRequest`.
    The duration itself is not applied: it could only shorten the time of a request."""
    if timeout := query.get("timeout"):
        try:
            parse_duration(timeout)
        except ValueError as error:
            raise BadRequest(f"invalid timeout specified in the request URL - {error}") from None
