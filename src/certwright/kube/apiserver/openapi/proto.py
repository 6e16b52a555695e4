"""The OpenAPI v2 document in protobuf: the only form that kubectl requests.

kubectl requests the document for an unknown kind, and before it merges a Secret or a ConfigMap.

Source: gnostic's `OpenAPIv2.proto` (numbers of messages and fields); Protocol Buffers encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from certwright.kube.apiserver.protobuf.wire import put_piece, put_tag, put_varint

Json = Mapping[str, Any]

MEDIA_TYPES = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
"""The media types that clients request. The first is not a valid media type, which Go refuses, so responses
carry the second."""

Put = Callable[[int, Any], bytes]
"""Encodes a value as the field of that number."""


def _bytes(number: int, value: bytes) -> bytes:
    return put_piece(put_tag(number, 2), value)


def _string(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _strings(number: int, values: list[str]) -> bytes:
    return b"".join(_string(number, value) for value in values)


def _integer(number: int, value: int) -> bytes:
    return put_tag(number, 0) + put_varint(int(value))


def _double(number: int, value: float) -> bytes:
    return put_tag(number, 1) + struct.pack("<d", value)


def _any(number: int, value: Any) -> bytes:
    # Its second field is YAML, and JSON is YAML.
    return _bytes(number, _bytes(2, msgspec.json.encode(value)))


def _anys(number: int, values: list[Any]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _named(put: Put) -> Put:
    """A map: a message that repeats pairs of name and value as its field 1."""
    return lambda number, values: _bytes(number, b"".join(_pairs(1, values, put)))


def _pairs(number: int, values: Json, put: Put) -> Iterator[bytes]:
    for name, value in values.items():
        yield _bytes(number, _string(1, name) + put(2, value))


def _message(fields: Mapping[str, tuple[int, Put]], extensions: int = 0) -> Put:
    """A message with these fields; keys that begin with `x-` go into the field numbered `extensions`."""

    def put(number: int, value: Json) -> bytes:
        return _bytes(number, b"".join(_encoded(value, fields, extensions)))

    return put


def _encoded(value: Json, fields: Mapping[str, tuple[int, Put]], extensions: int) -> Iterator[bytes]:
    for key, item in value.items():
        if key in fields:
            number, put = fields[key]
            yield put(number, item)
        elif extensions and key.startswith("x-"):
            yield from _pairs(extensions, {key: item}, _any)


def _wrapped(put: Put) -> Put:
    """A message with the value as field 1."""
    return lambda number, value: _bytes(number, put(1, value))


def _schema(number: int, value: Json) -> bytes:
    return _put_schema(number, value)


def _additional(number: int, value: Any) -> bytes:
    return _bytes(number, _integer(2, value) if isinstance(value, bool) else _schema(1, value))


_put_schema = _message(
    {
        "$ref": (1, _string),
        "format": (2, _string),
        "title": (3, _string),
        "description": (4, _string),
        "default": (5, _any),
        "multipleOf": (6, _double),
        "maximum": (7, _double),
        "exclusiveMaximum": (8, _integer),
        "minimum": (9, _double),
        "exclusiveMinimum": (10, _integer),
        "maxLength": (11, _integer),
        "minLength": (12, _integer),
        "pattern": (13, _string),
        "maxItems": (14, _integer),
        "minItems": (15, _integer),
        "uniqueItems": (16, _integer),
        "maxProperties": (17, _integer),
        "minProperties": (18, _integer),
        "required": (19, _strings),
        "enum": (20, _anys),
        "additionalProperties": (21, _additional),
        "type": (22, _wrapped(_string)),
        "items": (23, _wrapped(_schema)),
        "properties": (25, _named(_schema)),
    },
    extensions=31,
)
_query = _message(
    {
        "required": (1, _integer),
        "in": (2, _string),
        "description": (3, _string),
        "name": (4, _string),
        "type": (6, _string),
        "uniqueItems": (20, _integer),
    }
)
_in_path = _message(
    {
        "required": (1, _integer),
        "in": (2, _string),
        "description": (3, _string),
        "name": (4, _string),
        "type": (5, _string),
        "uniqueItems": (19, _integer),
    }
)
_body = _message(
    {
        "description": (1, _string),
        "name": (2, _string),
        "in": (3, _string),
        "required": (4, _integer),
        "schema": (5, _schema),
    }
)


def _parameter(number: int, value: Json) -> bytes:
    """A parameter: one in the body, or elsewhere; that may be in the query or in the path."""
    if value["in"] == "body":
        return _bytes(number, _body(1, value))
    where = _in_path(4, value) if value["in"] == "path" else _query(3, value)
    return _bytes(number, _bytes(2, where))


def _parameters(number: int, values: list[Json]) -> bytes:
    # Wrapped once more: a parameter could be a reference.
    return b"".join(_bytes(number, _parameter(1, value)) for value in values)


_response = _message({"description": (1, _string), "schema": (2, _wrapped(_schema))})


def _responses(number: int, values: Json) -> bytes:
    """Answers by their code; they could be references, too."""
    return _bytes(number, b"".join(_pairs(1, values, _wrapped(_response))))


_operation = _message(
    {
        "tags": (1, _strings),
        "description": (3, _string),
        "operationId": (5, _string),
        "produces": (6, _strings),
        "consumes": (7, _strings),
        "parameters": (8, _parameters),
        "responses": (9, _responses),
        "schemes": (10, _strings),
    },
    extensions=13,
)
_path = _message(
    {
        "get": (2, _operation),
        "put": (3, _operation),
        "post": (4, _operation),
        "delete": (5, _operation),
        "patch": (8, _operation),
        "parameters": (9, _parameters),
    }
)


def _paths(number: int, values: Json) -> bytes:
    return _bytes(number, b"".join(_pairs(2, values, _path)))


_DOCUMENT: dict[str, tuple[int, Put]] = {
    "swagger": (1, _string),
    "info": (2, _message({"title": (1, _string), "version": (2, _string)})),
    "paths": (8, _paths),
    "definitions": (9, _named(_schema)),
}


def encode(document: Json) -> bytes:
    """The message `openapi.v2.Document` with the content of the JSON document."""
    return b"".join(_encoded(document, _DOCUMENT, 0))
