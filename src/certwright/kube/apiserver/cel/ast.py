"""AST of a checked CEL expression, decoded from the library's message.

Source: cel-spec `proto/cel/expr/checked.proto` and `syntax.proto` (numbers of messages and fields); Protocol
Buffers encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

# --- what there is -----------------------------------------------------------------------------------------


class Type(NamedTuple):
    """The type of a node: `string`, `list` of its parameter, `struct` for messages of that name, …"""

    kind: str
    name: str = ""
    parameters: tuple[Type, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """A node of an expression. `key` is its key in the tables of `Tree`."""

    key: int


class Constant(Part, frozen=True):
    """A literal; for any type but text, bytes and integer only its kind is kept."""

    value: str | bytes | int | None


class Name(Part, frozen=True):
    """A variable."""

    name: str


class Select(Part, frozen=True):
    """A field selection, or the test whether the field is present."""

    of: Part
    field: str


class Call(Part, frozen=True):
    """A call of a function or operator; `target` is the receiver."""

    function: str
    target: Part | None
    args: tuple[Part, ...]


class MakeList(Part, frozen=True):
    """A list literal."""

    items: tuple[Part, ...]


class MakeMap(Part, frozen=True):
    """A map literal, with pairs of key and value."""

    entries: tuple[tuple[Part, Part], ...]


class MakeStruct(Part, frozen=True):
    """A message literal, with the values of its fields."""

    values: tuple[Part, ...]


class Loop(Part, frozen=True):
    """A comprehension: the expansion of the macros `all`, `exists`, `map` and the like."""

    over: Part
    start: Part
    condition: Part
    step: Part
    result: Part


class Tree(msgspec.Struct, frozen=True):
    """An expression, and the types of its nodes."""

    root: Part
    types: dict[int, Type]
    places: dict[int, int]
    """The offsets, in characters, of nodes in the text."""

    @property
    def parts(self) -> Iterator[Part]:
        """All nodes, the root first."""
        return parts(self.root)

    def type_of(self, part: Part) -> Type:
        """The type of a node; `dyn` where it is unknown."""
        return self.types.get(part.key, DYN)


DYN = Type("dyn")

# --- reading -----------------------------------------------------------------------------------------------


class _Message:
    """The fields of a message, by number: integers, or bytes."""

    def __init__(self, raw: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _read(raw):
            self._fields.setdefault(number, []).append(value)

    def has(self, number: int) -> bool:
        return number in self._fields

    def number(self, number: int) -> int:
        value = self._fields.get(number, [0])[-1]
        return value if isinstance(value, int) else 0

    def all(self, number: int) -> list[bytes]:
        return [value for value in self._fields.get(number, ()) if isinstance(value, bytes)]

    def bytes(self, number: int) -> bytes:
        return (self.all(number) or [b""])[-1]

    def text(self, number: int) -> str:
        return self.bytes(number).decode()

    def message(self, number: int) -> _Message:
        return _Message(self.bytes(number))

    def messages(self, number: int) -> list[_Message]:
        return [_Message(value) for value in self.all(number)]


def _read(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, at = _varint(raw, at)
            yield number, value
        elif form == 1:
            yield number, struct.unpack_from("<Q", raw, at)[0]
            at += 8
        else:
            length, at = _varint(raw, at)
            yield number, raw[at : at + length]
            at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def read(serialized: bytes) -> Tree:
    """Decode the AST from the library's message (an `Any` with a `CheckedExpr`)."""
    checked = _Message(serialized).message(2)
    return Tree(
        _part(checked.message(4)),
        {entry.number(1): _type(entry.message(2)) for entry in checked.messages(3)},
        {entry.number(1): entry.number(2) for entry in checked.message(5).messages(4)},
    )


def inside(tree: Tree, skipped: int) -> Tree:
    """What a tree that is one `cel.bind` binds its variable for.

    `skipped`: the characters before its text.
    """
    assert isinstance(tree.root, Loop), "cel.bind makes a comprehension"
    places = {key: place - skipped for key, place in tree.places.items()}
    return replace(tree, root=tree.root.result, places=places)


def parts(part: Part) -> Iterator[Part]:
    """A node and all its descendants."""
    yield part
    for child in _children(part):
        yield from parts(child)


def _children(part: Part) -> tuple[Part, ...]:
    match part:
        case Select():
            return (part.of,)
        case Call():
            return part.args if part.target is None else (part.target, *part.args)
        case MakeList():
            return part.items
        case MakeMap():
            return tuple(child for entry in part.entries for child in entry)
        case MakeStruct():
            return part.values
        case Loop():
            return part.over, part.start, part.condition, part.step, part.result
    return ()


_PRIMITIVES = ("dyn", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("dyn", "any", "timestamp", "duration")


def _type(raw: _Message) -> Type:
    if raw.has(3) or raw.has(4):
        return Type(_PRIMITIVES[raw.number(3) or raw.number(4)])
    if raw.has(5):
        return Type(_WELL_KNOWN[raw.number(5)])
    if raw.has(6):
        return Type("list", "", (_type(raw.message(6).message(1)),))
    if raw.has(7):
        return Type("map", "", (_type(raw.message(7).message(1)), _type(raw.message(7).message(2))))
    if raw.has(9):
        return Type("struct", raw.text(9))
    if raw.has(10):
        return Type("parameter", raw.text(10))
    if raw.has(14):
        abstract = raw.message(14)
        return Type("abstract", abstract.text(1), tuple(map(_type, abstract.messages(2))))
    return Type("null") if raw.has(2) else DYN


def _part(raw: _Message) -> Part:
    number = next((number for number in _PARTS if raw.has(number)), 3)
    return _PARTS[number](raw.number(2), raw.message(number))


def _constant(key: int, raw: _Message) -> Part:
    if raw.has(6):
        return Constant(key, raw.text(6))
    if raw.has(7):
        return Constant(key, raw.bytes(7))
    return Constant(key, _signed(raw.number(3)) if raw.has(3) else None)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _select(key: int, raw: _Message) -> Part:
    return Select(key, _part(raw.message(1)), raw.text(2))


def _call(key: int, raw: _Message) -> Part:
    target = _part(raw.message(1)) if raw.has(1) else None
    return Call(key, raw.text(2), target, tuple(map(_part, raw.messages(3))))


def _struct(key: int, raw: _Message) -> Part:
    entries = raw.messages(2)
    if raw.text(1):
        return MakeStruct(key, tuple(_part(entry.message(4)) for entry in entries))
    return MakeMap(key, tuple((_part(entry.message(3)), _part(entry.message(4))) for entry in entries))


def _loop(key: int, raw: _Message) -> Part:
    return Loop(key, *(_part(raw.message(number)) for number in (2, 4, 5, 6, 7)))


_PARTS: dict[int, Callable[[int, _Message], Part]] = {
    3: _constant,
    4: lambda key, raw: Name(key, raw.text(1)),
    5: _select,
    6: _call,
    7: lambda key, raw: MakeList(key, tuple(map(_part, raw.messages(1)))),
    8: _struct,
    9: _loop,
}
