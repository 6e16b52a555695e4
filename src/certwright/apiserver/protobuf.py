"""Kubernetes' protobuf for the built-in kinds: bodies in, answers out.

An object is four bytes (`k8s` and zero) and a message that says apiVersion and kind and holds the object's
own message. Nothing imports this module but who has such a body, or owes one.

Source: Kubernetes documentation, "Kubernetes API Concepts", protobuf encoding; apimachinery
`pkg/runtime/serializer/protobuf`.
"""

from __future__ import annotations

from typing import Any

from certwright.apiserver import protobuf_decode, protobuf_encode, protobuf_fields, protobuf_scalars
from certwright.apiserver.protobuf_wire import Malformed, Reading, put_piece
from certwright.resources.errors import BadRequest

Json = dict[str, Any]

MAGIC = b"k8s\x00"


class NoSuchForm(Exception):
    """An object that has no protobuf form: its kind has none, or a value is not of its field's type."""


def decode(body: bytes, *, api_version: str = "", kind: str = "") -> Json:
    """The object in a body, as JSON would have it, with apiVersion and kind.

    `api_version` and `kind` stand in for those that the body leaves out. Raises `BadRequest`, which names the
    field and the offset at fault.
    """
    if not body.startswith(MAGIC):
        raise BadRequest("the body does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        return _decode(body[4:], api_version, kind)
    except Malformed as error:
        raise BadRequest(f"the body is not a valid protobuf message: {error}") from None


def _decode(envelope: bytes, api_version: str, kind: str) -> Json:
    reading = Reading(envelope)
    found = reading.small(0, len(envelope))
    type_meta = found.get(1)
    if isinstance(type_meta, tuple):
        named = reading.small(*type_meta)
        api_version = _text(reading, named.get(1)) or api_version
        kind = _text(reading, named.get(2)) or kind
    name = protobuf_fields.message_of(api_version, kind)
    if name is None:
        raise BadRequest(f'no kind "{kind}" is registered for version "{api_version}" in protobuf')
    raw = found.get(2, (0, 0))
    if not isinstance(raw, tuple):
        raise Malformed(0, "the envelope holds no message")
    obj: Json = {"apiVersion": api_version, "kind": kind}
    begin, end = raw
    inner = Reading(envelope[begin:end])
    protobuf_decode.read_message(inner, 0, end - begin, protobuf_decode.message(name), obj, 0)
    return obj


def _text(reading: Reading, piece: int | tuple[int, int] | None) -> str:
    return protobuf_scalars.read_text(reading, *piece) if isinstance(piece, tuple) else ""


def encode(obj: Json) -> bytes:
    """The body that says what `obj` says. Raises `NoSuchForm`."""
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
        return protobuf_encode.message(message)(obj)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NoSuchForm(f"a value does not fit: {type(error).__name__}") from None


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """An object's message with what must be known of it around it."""
    type_meta = put_piece(b"\x0a", api_version.encode()) + put_piece(b"\x12", kind.encode())
    return b"".join((MAGIC, put_piece(b"\x0a", type_meta), put_piece(b"\x12", raw), b"\x1a\x00\x22\x00"))
