"""Protobuf codec of the built-in kinds: decodes request bodies, encodes responses.

An object is four bytes (`k8s` and zero) and an envelope with apiVersion, kind and the object's own message.
This module is imported only for such a body or response.

Source: Kubernetes documentation, "Kubernetes API Concepts", protobuf encoding; apimachinery
`pkg/runtime/serializer/protobuf`.
"""

from __future__ import annotations

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.protobuf import decode as protobuf_decode
from certwright.kube.apiserver.protobuf import encode as protobuf_encode
from certwright.kube.apiserver.protobuf import fields as protobuf_fields
from certwright.kube.apiserver.protobuf import scalars
from certwright.kube.apiserver.protobuf.wire import Malformed, Reading, put_piece

MAGIC = b"k8s\x00"


class NoSuchForm(Exception):
    """An object that has no protobuf form: its kind has none, or a value is not of its field's type."""


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
        return protobuf_encode.message(message)(obj)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NoSuchForm(f"a value does not fit: {type(error).__name__}") from None


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Wrap an object's message in the envelope."""
    type_meta = put_piece(b"\x0a", api_version.encode()) + put_piece(b"\x12", kind.encode())
    return b"".join((MAGIC, put_piece(b"\x0a", type_meta), put_piece(b"\x12", raw), b"\x1a\x00\x22\x00"))
