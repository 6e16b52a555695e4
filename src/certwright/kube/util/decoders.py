"""Decoders for typed data, safe to create and use in any thread.

msgspec builds the type information of a class on first use and publishes it before it is complete. If a
second thread decodes to the same class during that time, it reads a null pointer, and the process ends with
SIGSEGV (seen with msgspec 0.22). Here type information is built under one lock. All typed decoding of the
program MUST go through this module; `tests/kit/test_decoders.py` fails for a call of msgspec's own functions
elsewhere.
"""

from __future__ import annotations

from threading import RLock
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding the bytes of others raises: not of the type, not UTF-8, nested too deeply."""

# Reentrant: building may import a module that creates its own decoders.
_lock = RLock()
_json: dict[Any, msgspec.json.Decoder[Any]] = {}
_msgpack: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


@overload
def json_decoder(type_: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(type_: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of JSON to `type_`, created on first use and kept."""
    decoder = _json.get(type_)
    if decoder is None:
        with _lock:
            decoder = _json[type_] = msgspec.json.Decoder(type_)
    return decoder


@overload
def msgpack_decoder(type_: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of MessagePack to `type_`; the rest as for `json_decoder`."""
    decoder = _msgpack.get(type_)
    if decoder is None:
        with _lock:
            decoder = _msgpack[type_] = msgspec.msgpack.Decoder(type_)
    return decoder


def decoded_or_none(decoder: msgspec.json.Decoder[T], content: bytes | msgspec.Raw) -> T | None:
    """The decoded value; None for content that is no JSON of that type. For filters, which leave the report
    of the error to the decoder of the whole object."""
    try:
        return decoder.decode(content)
    except UNDECODABLE:
        return None


def convert(value: Any, type_: type[T]) -> T:
    """JSON values as a `type_`. Raises `msgspec.ValidationError`."""
    if type_ not in _json:
        json_decoder(type_)
    return msgspec.convert(value, type_)
