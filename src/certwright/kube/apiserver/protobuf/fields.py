"""Messages of the built-in kinds: their fields, and the keywords of their schemas; loaded on first use.

Source: the Go types of `k8s.io/api`, the OpenAPI documents that Kubernetes publishes (`data/README.md`).
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from certwright.kube.util.decoders import json_decoder

# Not by importlib.resources, which loads zipfile: 0.4 MB in each server.
_DATA = Path(__file__).parents[1] / "data"
_REPEATED, _MAP, _POINTER, _OMIT_EMPTY, _OMIT_ZERO, _INLINE, _LIST = (1 << bit for bit in range(7))
_STRUCTS = frozenset({"Time", "MicroTime", "Quantity", "IntOrString", "Raw"})


class Field(NamedTuple):
    """A field. `type` is a scalar, a type with a special JSON form, or the name of a message."""

    number: int
    name: str
    type: str
    bits: int

    @property
    def repeated(self) -> bool:
        """Whether the field is repeated, which is a list in JSON."""
        return bool(self.bits & _REPEATED)

    @property
    def is_map(self) -> bool:
        """Whether it is an object in JSON, with any keys."""
        return bool(self.bits & _MAP)

    @property
    def pointer(self) -> bool:
        """Whether an absent value differs from the zero value."""
        return bool(self.bits & _POINTER)

    @property
    def inline(self) -> bool:
        """Whether the fields of its message stand in the parent's JSON object."""
        return bool(self.bits & _INLINE)

    @property
    def wraps_list(self) -> bool:
        """Whether its message is, in JSON, this list."""
        return bool(self.bits & _LIST)

    @property
    def single(self) -> bool:
        """Neither list, map nor pointer: client-go always writes it."""
        return not self.bits & (_REPEATED | _MAP | _POINTER)

    @property
    def is_message(self) -> bool:
        """Whether its type is the name of a message."""
        return "." in self.type

    @property
    def omits_zero(self) -> bool:
        """Whether a zero value is left out of the JSON object: Go's omitempty never leaves out a struct."""
        if self.single and (self.is_message or self.type in _STRUCTS):
            return bool(self.bits & _OMIT_ZERO)
        return bool(self.bits & (_OMIT_EMPTY | _OMIT_ZERO))


_SCHEMA = "apiextensions.v1.JSONSchemaProps"
UNIONS: dict[str, tuple[Field, ...]] = {
    "SchemaOrArray": (Field(1, "schema", _SCHEMA, 4), Field(2, "other", _SCHEMA, 1)),
    "SchemaOrBool": (Field(1, "other", "bool", 0), Field(2, "schema", _SCHEMA, 4)),
    "SchemaOrStrings": (Field(1, "schema", _SCHEMA, 4), Field(2, "other", "string", 1)),
}
"""Messages of two fields of which JSON shows one: a schema, or its alternative."""


META_MESSAGE = "meta.v1.ObjectMeta"


class _File(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, list[tuple[int, str, str, int]]]


@cache
def _file() -> _File:
    packed = (_DATA / "protobuf.json.zlib").read_bytes()
    return json_decoder(_File).decode(zlib.decompress(packed))


def message_of(api_version: str, kind: str) -> str | None:
    """The name of a kind's message; None for a kind that has no protobuf form here."""
    kinds = _file().kinds
    return kinds.get(f"{api_version} {kind}") or kinds.get(kind)


def fields_of(message: str) -> tuple[Field, ...]:
    """The fields of a message, in order of their numbers."""
    return tuple(Field(*row) for row in _file().messages[message])


@cache
def json_fields_of(message: str) -> tuple[Field, ...]:
    """The fields of a message, as they are in its JSON: inline ones in place."""
    all_fields: list[Field] = []
    for field in fields_of(message):
        all_fields += json_fields_of(field.type) if field.inline else (field,)
    return tuple(all_fields)


def wrapped_list(message: str) -> Field | None:
    """The only field of a message that is a list in JSON, None for any other message."""
    first = json_fields_of(message)
    return first[0] if len(first) == 1 and first[0].wraps_list else None


def keywords(message: str) -> dict[str, Any]:
    """The keywords of a message's OpenAPI schema beyond types, e.g. `required`, and under `properties` those
    of its fields: list type, map keys, patch strategy, merge key, map type, default."""
    return _keywords().get(message, {})


@cache
def _keywords() -> dict[str, dict[str, Any]]:
    packed = (_DATA / "openapi.json.zlib").read_bytes()
    return json_decoder(dict[str, dict[str, Any]]).decode(zlib.decompress(packed))
