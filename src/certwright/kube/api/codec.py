"""Codec: objects to JSON and back.

Structs have neither `apiVersion` nor `kind`; they are written from the `Kind` here. Unknown fields are
dropped on decoding: controllers therefore change objects by patches, and never write back a complete decoded
object.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.util.decoders import convert, json_decoder

T = TypeVar("T")


class DecodeError(ValueError):
    """The bytes are not an object of that kind. The text is one sentence."""


@lru_cache(maxsize=128)
def _head(api_version: str, kind: str) -> bytes:
    return b'{"apiVersion":%s,"kind":%s' % (msgspec.json.encode(api_version), msgspec.json.encode(kind))


def encode(kind: Kind[T], obj: T) -> bytes:
    """`obj` as JSON, with `apiVersion` and `kind` in front."""
    if isinstance(obj, dict):
        return msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind} | obj)
    body = msgspec.json.encode(obj)
    head = _head(kind.api_version, kind.kind)
    return head + b"}" if len(body) == 2 else head + b"," + body[1:]


def decode(kind: Kind[T], raw: bytes | msgspec.Raw) -> T:
    """The object decoded from `raw` (JSON).

    Null counts as absent and 1.0 as 1, as in Kubernetes. Raises `DecodeError`.
    """
    try:
        return json_decoder(kind.type).decode(raw)
    except msgspec.ValidationError:
        return _decode_slowly(kind, raw)
    except RecursionError:
        raise _too_deep(kind) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(f"this is not JSON: {error}") from None


def _decode_slowly(kind: Kind[T], raw: bytes | msgspec.Raw) -> T:
    try:
        content = msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep(kind) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(f"this is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DecodeError(f"{_a(kind)} is an object in braces, not {type(content).__name__}")
    return from_dict(kind, content)


def from_dict(kind: Kind[T], content: dict[str, Any]) -> T:
    """The object decoded from a dict of JSON values; null counts as absent. Raises `DecodeError`."""
    if kind.type is dict:
        return cast(T, content)
    try:
        return convert(content, kind.type)
    except (msgspec.ValidationError, RecursionError):
        return _convert_slowly(kind, content)


def _convert_slowly(kind: Kind[T], content: dict[str, Any]) -> T:
    # Perhaps only a null or 1.0, which JSON writers may send.
    try:
        return convert(_plain(content), kind.type)
    except msgspec.ValidationError as error:
        raise DecodeError(_sentence(kind, error)) from None
    except RecursionError:
        raise _too_deep(kind) from None


def _too_deep(kind: AnyKind) -> DecodeError:
    # Which of JSON and structs reaches its limit first depends on the version of Python.
    return DecodeError(f"{_a(kind)} is not nested as deeply as this")


def _plain(value: Any) -> Any:
    """Without nulls in objects, and with whole floats as integers."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _sentence(kind: AnyKind, error: msgspec.ValidationError) -> str:
    what, _, where = str(error).partition(" - at `$")
    place = where.rstrip("`").lstrip(".") or "the top"
    return f"this is not {_a(kind)}: at {place}: {what.replace('`', '')}"


def _a(kind: AnyKind) -> str:
    return f"an {kind.kind}" if kind.kind[0] in "AEIO" else f"a {kind.kind}"
