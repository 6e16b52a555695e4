"""Protobuf decoder: from messages to objects in their JSON form.

For each message there is a table from tag to the function that decodes one field, built on first use. The
result omits and contains the same fields as client-go's JSON.

Source: `data/README.md`; Kubernetes documentation, "Kubernetes API Concepts", protobuf encoding.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.protobuf import scalars
from certwright.kube.apiserver.protobuf.fields import UNIONS, Field, fields_of, wrapped_list
from certwright.kube.apiserver.protobuf.wire import (
    DELIMITED,
    FIXED64,
    MAX_DEPTH,
    VARINT,
    Malformed,
    Reading,
    signed,
)

Read = Callable[[Reading, int, int, int], Any]
"""Decodes the bytes from one offset to another, at a depth."""
Take = Callable[[Reading, Json, int, int, int], None]
"""Decodes the bytes of a field into an object, at a depth."""
TakeNumber = Callable[[Json, Any], None]
"""Stores a number from the wire in an object."""


class Message:
    """The decoder of one message: its fields by tag, those of a given length and the numbers."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.names = {field.number: field.name for field in fields}
        self.pieces: dict[int, Take] = {}
        self.numbers: dict[int, TakeNumber] = {}
        self.missing: list[tuple[str, Callable[[], Any]]] = []
        for field in fields:
            tag = field.number << 3
            if field.type in _NUMBERS:
                self.numbers[tag | (FIXED64 if field.type == "float64" else VARINT)] = _number_taker(field)
                if field.repeated:
                    self.pieces[tag | DELIMITED] = _packed_taker(field)
            else:
                self.pieces[tag | DELIMITED] = _piece_taker(field)
            if field.inline:
                self.missing += message(field.type).missing
            elif not field.omits_zero and not field.wraps_list:
                self.missing.append((field.name, _zero(field)))


@cache
def message(name: str) -> Message:
    """The message of that name."""
    return Message(UNIONS[name] if name in UNIONS else fields_of(name))


_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int32": lambda value: signed(value, 32),
    "int64": lambda value: signed(value, 64),
    "float64": lambda value: int(value) if value.is_integer() and abs(value) < 1e15 else value,
}
"""The numbers as they are in JSON, from those on the wire."""


def read_message(reading: Reading, pos: int, end: int, how: Message, into: Json, depth: int) -> None:
    """Read the message between two offsets into an object. Raises `Malformed`."""
    reading.spend(pos)
    if depth > MAX_DEPTH:
        raise Malformed(pos, "it is nested too deeply")
    while pos < end:
        start = pos
        tag, pos = reading.varint(pos)
        try:
            if (take := how.pieces.get(tag)) is not None:
                begin, pos = reading.piece(pos, end)
                take(reading, into, begin, pos, depth)
            elif (take_number := how.numbers.get(tag)) is not None:
                value, pos = reading.varint(pos) if tag & 7 == VARINT else _double(reading, pos)
                if pos > end:
                    raise Malformed(start, "a number goes beyond the end of its message")
                take_number(into, value)
            else:
                unknown, pos = reading.tag(start)
                if unknown.number in how.names:
                    raise Malformed(start, f"it cannot be of wire type {unknown.wire}")
                reading.spend(start)
                pos = reading.skip(unknown, pos, end)
        except Malformed as error:
            error.within(how.names.get(tag >> 3, ""))
            raise
    for name, make in how.missing:
        if name not in into:
            into[name] = make()


def _double(reading: Reading, pos: int) -> tuple[float, int]:
    value: float = struct.unpack_from("<d", reading.data, pos)[0]
    if not math.isfinite(value):
        raise Malformed(pos, "JSON has no such number")
    return value, pos + 8


def _zero(field: Field) -> Callable[[], Any]:
    """Makes the JSON value of an absent field."""
    if not field.single or field.type in ("bytes", "Time", "MicroTime", "Raw"):
        return lambda: None
    if field.is_message:
        return lambda: {name: make() for name, make in message(field.type).missing}
    values = {"string": "", "bool": False, "Quantity": "0"}
    value = values.get(field.type, 0)
    return lambda: value


def _number_taker(field: Field) -> TakeNumber:
    name, convert = field.name, _NUMBERS[field.type]
    if field.repeated:
        return lambda into, value: into.setdefault(name, []).append(convert(value))
    if not field.omits_zero or field.pointer:
        return lambda into, value: into.__setitem__(name, convert(value))

    def take(into: Json, value: Any) -> None:
        if converted := convert(value):
            into[name] = converted
        else:
            into.pop(name, None)

    return take


def _packed_taker(field: Field) -> Take:
    take = _number_taker(field)

    def take_all(reading: Reading, into: Json, pos: int, end: int, _: int) -> None:
        while pos < end:
            value, pos = reading.varint(pos)
            if pos > end:
                raise Malformed(pos, "a number goes beyond the end of its list")
            take(into, value)

    return take_all


def _piece_taker(field: Field) -> Take:
    if field.is_map:
        return _map_taker(field)
    if field.repeated:
        return _list_taker(field)
    if field.inline:
        how = message(field.type)
        return lambda reading, into, pos, end, depth: read_message(reading, pos, end, how, into, depth + 1)
    if field.is_message and not wrapped_list(field.type):
        return _message_taker(field)
    name, read = field.name, _reader(field.type)
    if not field.omits_zero or field.pointer:
        return lambda reading, into, pos, end, depth: into.__setitem__(name, read(reading, pos, end, depth))

    def take(reading: Reading, into: Json, pos: int, end: int, depth: int) -> None:
        value = read(reading, pos, end, depth)
        if value or value == 0:
            into[name] = value
        else:
            into.pop(name, None)

    return take


def _message_taker(field: Field) -> Take:
    name, type_name = field.name, field.type

    def take(reading: Reading, into: Json, pos: int, end: int, depth: int) -> None:
        # A message that comes in two parts is one: the fields of the second are added.
        nested = into.setdefault(name, {})
        read_message(reading, pos, end, message(type_name), nested, depth + 1)

    return take


def _list_taker(field: Field) -> Take:
    name, read = field.name, _reader(field.type)

    def take(reading: Reading, into: Json, pos: int, end: int, depth: int) -> None:
        items = into.setdefault(name, [])
        try:
            items.append(read(reading, pos, end, depth))
        except Malformed as error:
            error.within(f"[{len(items)}]")
            raise

    return take


def _map_taker(field: Field) -> Take:
    name, read = field.name, _reader(field.type)

    def take(reading: Reading, into: Json, pos: int, end: int, depth: int) -> None:
        entry = reading.small(pos, end)
        reading.left += 1  # an entry is not counted as a message
        key, value = entry.get(1, (pos, pos)), entry.get(2, (pos, pos))
        if not isinstance(key, tuple) or not isinstance(value, tuple):
            raise Malformed(pos, "an entry must have texts or messages in it")
        text = scalars.read_text(reading, *key)
        try:
            into.setdefault(name, {})[text] = read(reading, *value, depth)
        except Malformed as error:
            error.within(f"[{text}]")
            raise

    return take


_PLAIN: dict[str, Read] = {
    "string": scalars.read_text,
    "bytes": scalars.read_bytes,
    "Time": scalars.read_time,
    "MicroTime": scalars.read_micro_time,
    "Quantity": scalars.read_quantity,
    "IntOrString": scalars.read_int_or_string,
    "Raw": scalars.read_raw,
}


def _reader(type_name: str) -> Read:
    """The decoder of that type."""
    if plain := _PLAIN.get(type_name):
        return plain
    if type_name in UNIONS:
        boolean = type_name == "SchemaOrBool"

        def read(reading: Reading, pos: int, end: int, depth: int) -> Any:
            union = _nested(type_name, reading, pos, end, depth)
            schema, other = union.get("schema"), union.get("other")
            if boolean:
                return other if schema is None else schema
            return other or schema

        return read
    if wrapped_list(type_name):
        return lambda *piece: _nested(type_name, *piece).get("", [])
    return lambda *piece: _nested(type_name, *piece)


def _nested(type_name: str, reading: Reading, pos: int, end: int, depth: int) -> Json:
    into: Json = {}
    read_message(reading, pos, end, message(type_name), into, depth + 1)
    return into
