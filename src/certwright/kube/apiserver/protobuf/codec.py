"""Protobuf codec of the built-in kinds: decodes request bodies, encodes responses as client-go does.

An object is four bytes (`k8s` and zero) and an envelope with apiVersion, kind and the object's own message.
Fields are encoded in order of their numbers, map keys sorted, and a field that is neither list, map nor
pointer is always written, even if empty.

Source: Kubernetes documentation, "Kubernetes API Concepts", protobuf encoding; apimachinery
`pkg/runtime/serializer/protobuf`; `data/README.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.protobuf import decode as protobuf_decode
from certwright.kube.apiserver.protobuf import fields as protobuf_fields
from certwright.kube.apiserver.protobuf import scalars
from certwright.kube.apiserver.protobuf.fields import UNIONS, Field, fields_of, wrapped_list
from certwright.kube.apiserver.protobuf.wire import (
    DELIMITED,
    FIXED64,
    VARINT,
    Malformed,
    Reading,
    put_piece,
    put_tag,
    put_varint,
)

Put = Callable[[Any], bytes]
"""Makes of a value the bytes of its field, tag and all; of a type, the bytes without a tag."""


@cache
def encoder_of(name: str) -> Put:
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
        return put_piece(_tag(field), encoder_of(field.type)({}))
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
}
_ZEROS = {
    "Quantity": scalars.put_quantity("0"),
    "IntOrString": scalars.put_int_or_string(0),
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
    put = encoder_of(type_name)
    if type_name not in UNIONS:
        return (lambda items: put({"": items})) if wrapped_list(type_name) else put

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            return put({"other": value})
        # A schema in place of a yes or no means yes.
        return put({"schema": value, "other": True} if type_name == "SchemaOrBool" else {"schema": value})

    return encode


MAGIC = b"k8s\x00"


class NoSuchForm(Exception):
    """An object without a protobuf form: its kind has none, or a value has another type than its field."""


class Unreadable(BadRequest):
    """An unreadable body. `kind` and `api_version` are empty if the error came before them."""

    def __init__(self, message: str, *, api_version: str = "", kind: str = "") -> None:
        super().__init__(message)
        self.api_version = api_version
        self.kind = kind


def decode(body: bytes, *, api_version: str = "", kind: str = "") -> Json:
    """The object in a body, in its JSON form, with apiVersion and kind.

    `api_version` and `kind` are the defaults for those missing in the body. Raises `Unreadable`, which names
    the field and the offset of the error.
    """
    if not body:
        raise Unreadable("empty data")
    if not body.startswith(MAGIC):
        raise Unreadable(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    if len(body) == len(MAGIC):
        raise Unreadable("empty body")
    try:
        envelope = body[len(MAGIC) :]
        reading = Reading(envelope)
        envelope_fields = reading.small(0, len(envelope))
        raw, type_meta, named = envelope_fields.get(2, (0, 0)), envelope_fields.get(1), ("", "")
        if isinstance(type_meta, tuple):
            fields = reading.small(*type_meta)
            named = _text(reading, fields.get(1)), _text(reading, fields.get(2))
        if not isinstance(raw, tuple):
            raise Malformed(0, "the envelope holds no object")
    except Malformed as error:
        raise Unreadable(f"the envelope is not a valid protobuf message: {error}") from None
    api_version, kind = named[0] or api_version, named[1] or kind
    name = protobuf_fields.message_of(api_version, kind)
    if name is None:
        text = f'no kind "{kind}" is registered for version "{api_version}"'
        raise Unreadable(text, api_version=api_version, kind=kind)
    obj: Json = {"apiVersion": api_version, "kind": kind}
    message = envelope[slice(*raw)]
    try:
        protobuf_decode.read_message(Reading(message), 0, len(message), protobuf_decode.message(name), obj, 0)
    except Malformed as error:
        text = f"the object is not a valid protobuf message: {error}"
        raise Unreadable(text, api_version=api_version, kind=kind) from None
    return obj


def _text(reading: Reading, piece: int | tuple[int, int] | None) -> str:
    return scalars.read_text(reading, *piece) if isinstance(piece, tuple) else ""


def encode(obj: Json) -> bytes:
    """Encode `obj` as a body. Raises `NoSuchForm`."""
    return envelope(obj.get("apiVersion", ""), obj.get("kind", ""), encode_message(obj))


def encode_message(obj: Json) -> bytes:
    """Only the object's own message. Raises `NoSuchForm`."""
    name = protobuf_fields.message_of(obj.get("apiVersion", ""), obj.get("kind", ""))
    if name is None:
        raise NoSuchForm("the kind has no protobuf form")
    return encode_as(name, obj)


def encode_as(message: str, obj: Json) -> bytes:
    """An object as the message of that name. Raises `NoSuchForm`."""
    try:
        return encoder_of(message)(obj)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NoSuchForm(f"a value does not fit: {type(error).__name__}") from None


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Wrap an object's message in the envelope."""
    type_meta = put_piece(b"\x0a", api_version.encode()) + put_piece(b"\x12", kind.encode())
    return b"".join((MAGIC, put_piece(b"\x0a", type_meta), put_piece(b"\x12", raw), b"\x1a\x00\x22\x00"))
