"""Protobuf encoder: from objects in their JSON form to messages, byte for byte as client-go encodes them.

Fields are in order of their numbers, map keys sorted, and a field that is neither list, map nor pointer is
always written, even if empty.

Source: `data/README.md`; Protocol Buffers encoding guide.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.protobuf import scalars
from certwright.kube.apiserver.protobuf.fields import UNIONS, Field, fields_of
from certwright.kube.apiserver.protobuf.wire import DELIMITED, FIXED64, VARINT, put_piece, put_tag, put_varint

Put = Callable[[Any], bytes]
"""Makes of a value the bytes of its field, tag and all; of a type, the bytes without a tag."""


@cache
def message(name: str) -> Put:
    """The encoder of a message of that name, without tag and length."""
    return _message_put(UNIONS[name] if name in UNIONS else fields_of(name))


def _message_put(fields: Iterable[Field]) -> Put:
    # Sized on first use: a message may contain itself.
    steps: list[tuple[str | None, bytes, Put]] = []
    waiting = list(fields)

    def put(value: Json) -> bytes:
        if not steps and waiting:
            # The name in the object (None: the object itself), the default encoding, and the encoder.
            steps.extend(
                (None if field.inline else field.name, _absent(field), _field_put(field)) for field in waiting
            )
        parts = []
        for name, absent, encode in steps:
            item = value if name is None else value.get(name)
            parts.append(absent if item is None else encode(item))
        return b"".join(parts)

    return put


def _absent(field: Field) -> bytes:
    """The encoding of a field that JSON does not show."""
    if not field.single or field.type == "bytes":
        return b""
    if field.type in _NUMBERS:
        return _tag(field) + (bytes(8) if field.type == "float64" else b"\x00")
    if field.is_message:
        return put_piece(_tag(field), message(field.type)({}))
    return put_piece(_tag(field), _ZEROS.get(field.type, b""))


_NUMBERS: dict[str, Put] = {
    "bool": lambda value: b"\x01" if value is True else b"\x00",
    "int32": put_varint,
    "int64": put_varint,
    "float64": lambda value: struct.pack("<d", value),
}
_PLAIN: dict[str, Put] = {
    "string": scalars.put_text,
    "bytes": scalars.put_bytes,
    "Time": scalars.put_time,
    "MicroTime": scalars.put_micro_time,
    "Quantity": scalars.put_quantity,
    "IntOrString": scalars.put_int_or_string,
    "Raw": scalars.put_raw,
    "Duration": scalars.put_duration,
}
_ZEROS = {
    "Quantity": scalars.put_quantity("0"),
    "IntOrString": scalars.put_int_or_string(0),
    "Duration": scalars.put_duration("0"),
}


def _tag(field: Field) -> bytes:
    wire = FIXED64 if field.type == "float64" else VARINT if field.type in _NUMBERS else DELIMITED
    return put_tag(field.number, wire)


def _field_put(field: Field) -> Put:
    tag, put = _tag(field), _type_put(field.type)
    if field.is_map:
        return _map_put(tag, put)
    if field.type in _NUMBERS:
        put_value: Put = lambda value: tag + put(value)  # noqa: E731 - one of two forms of the same thing
    else:
        put_value = lambda value: put_piece(tag, put(value))  # noqa: E731
    if field.repeated:
        return lambda values: b"".join([put_value(value) for value in values])
    return put_value


def _map_put(tag: bytes, put: Put) -> Put:
    def encode(values: Json) -> bytes:
        return b"".join(
            [
                put_piece(
                    tag,
                    put_piece(b"\x0a", key.encode())
                    + (b"" if values[key] is None else put_piece(b"\x12", put(values[key]))),
                )
                for key in sorted(values)
            ]
        )

    return encode


def _type_put(type_name: str) -> Put:
    """The encoder of that type, without tag and length."""
    if plain := _PLAIN.get(type_name) or _NUMBERS.get(type_name):
        return plain
    if type_name in UNIONS:
        return _union_put(type_name)
    put = message(type_name)
    if any(field.wraps_list for field in fields_of(type_name)):
        return lambda items: put({"": items})
    return put


def _union_put(type_name: str) -> Put:
    put = message(type_name)

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            return put({"other": value})
        # A schema in place of a yes or no means yes.
        return put({"schema": value, "other": True} if type_name == "SchemaOrBool" else {"schema": value})

    return encode
