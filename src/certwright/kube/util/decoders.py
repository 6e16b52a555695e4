"""Decoders for typed data, safe to create and use in any thread.

msgspec builds the type information of a class on first use and publishes it before it is complete. If a
second thread decodes to the same class during that time, it reads a null pointer, and the process ends with
SIGSEGV (seen with msgspec 0.22). Here type information is built under one lock. All typed decoding of the
program MUST go through this module; `tests/kit/test_decoders.py` fails for a call of msgspec's own functions
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
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
    """The decoded value; None if the content is not JSON of that type. For filters: the decoder of the whole
    object reports the error."""
    try:
        return decoder.decode(content)
    except UNDECODABLE:
        return None


def convert(value: Any, type_: type[T]) -> T:
    """JSON values, or an object with the same attributes, as a `type_`. Raises `msgspec.ValidationError`."""
    if type_ not in _json:
        json_decoder(type_)
    return msgspec.convert(value, type_, from_attributes=True)


def protobuf_messages(package: str, tables: Mapping[str, str], *, syntax: str = "proto3") -> dict[str, Any]:
    """The classes of protobuf messages by name, made at run time: without generated code, and without an
    entry in the descriptor pool that all libraries of a process share.

    `tables` has the fields of each message as `name type number`, with `*` before a repeated type. The
    library is loaded here, because most servers need none of it.
    """
    # Its types are another package's; classes made at run time have none anyway.
    descriptor_pb2: Any = import_module("google.protobuf.descriptor_pb2")
    pool: Any = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    make_class: Any = import_module("google.protobuf.message_factory").GetMessageClass
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        for field in filter(None, fields.split(", ")):
            field_name, kind, number = field.split()
            label = types.LABEL_REPEATED if kind.startswith("*") else types.LABEL_OPTIONAL
            made = message.field.add(name=field_name, number=int(number), label=label)
            kind = kind.removeprefix("*")
            if kind in _PROTOBUF_SCALARS:
                made.type = getattr(types, f"TYPE_{kind.upper()}")
            else:
                made.type, made.type_name = types.TYPE_MESSAGE, f".{package}.{kind}"
    pool.Add(file)
    return {name: make_class(pool.FindMessageTypeByName(f"{package}.{name}")) for name in tables}


_PROTOBUF_SCALARS: Final = ("bytes", "string", "bool", "int64", "int32")
