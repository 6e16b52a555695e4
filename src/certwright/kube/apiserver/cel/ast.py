"""AST of a checked CEL expression, decoded from the library's message.

Source: cel-spec `proto/cel/expr/checked.proto` and `syntax.proto` (numbers of messages and fields).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from certwright.kube.apiserver.cel.overloads import (
    descriptor,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

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

# --- messages ----------------------------------------------------------------------------------------------

# Fields that are not listed here stay as they are: protobuf keeps unknown fields.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Any": {"value": (2, "bytes")},
    "Checked": {
        "references": (2, "Reference*"),
        "types": (3, "TypeEntry*"),
        "root": (4, "Expr"),
        "source": (5, "Source"),
    },
    "Reference": {"key": (1, "int64")},
    "TypeEntry": {"key": (1, "int64"), "type": (2, "Type")},
    "Source": {"places": (4, "Place*")},
    "Place": {"key": (1, "int64"), "offset": (2, "int64")},
    "Type": {
        "null": (2, "int64"),
        "primitive": (3, "int64"),
        "wrapper": (4, "int64"),
        "well_known": (5, "int64"),
        "list": (6, "ListType"),
        "map": (7, "MapType"),
        "message": (9, "string"),
        "parameter": (10, "string"),
        "abstract": (14, "AbstractType"),
    },
    "ListType": {"item": (1, "Type")},
    "MapType": {"key": (1, "Type"), "value": (2, "Type")},
    "AbstractType": {"name": (1, "string"), "parameters": (2, "Type*")},
    "Expr": {
        "id": (2, "int64"),
        "constant": (3, "Constant"),
        "name": (4, "Name"),
        "select": (5, "Select"),
        "call": (6, "Call"),
        "list": (7, "List"),
        "struct": (8, "Struct"),
        "loop": (9, "Loop"),
    },
    "Constant": {"integer": (3, "int64"), "text": (6, "string"), "bytes": (7, "bytes")},
    "Name": {"name": (1, "string")},
    "Select": {"operand": (1, "Expr"), "field": (2, "string")},
    "Call": {"target": (1, "Expr"), "function": (2, "string"), "args": (3, "Expr*")},
    "List": {"elements": (1, "Expr*")},
    "Struct": {"name": (1, "string"), "entries": (2, "Entry*")},
    "Entry": {"key": (3, "Expr"), "value": (4, "Expr")},
    "Loop": {
        "range": (2, "Expr"),
        "start": (4, "Expr"),
        "condition": (5, "Expr"),
        "step": (6, "Expr"),
        "result": (7, "Expr"),
    },
}


@cache
def messages() -> dict[str, Any]:
    """The classes of the library's messages, by name."""
    types = descriptor.FieldDescriptor
    scalars = {"bytes": types.TYPE_BYTES, "string": types.TYPE_STRING, "int64": types.TYPE_INT64}
    file = descriptor_pb2.FileDescriptorProto(name="cel_expr.proto", package="expr", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = types.LABEL_REPEATED if kind.endswith("*") else types.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            kind = kind.removesuffix("*")
            made.type = scalars.get(kind, types.TYPE_MESSAGE)
            if kind not in scalars:
                made.type_name = f".expr.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"expr.{name}"))
        for name in _MESSAGES
    }


# --- reading -----------------------------------------------------------------------------------------------


def read(serialized: bytes) -> Tree:
    """Decode the AST from the library's message (an `Any` with a `CheckedExpr`)."""
    classes = messages()
    checked = classes["Checked"].FromString(classes["Any"].FromString(serialized).value)
    return Tree(
        _part(checked.root),
        {entry.key: _type(entry.type) for entry in checked.types},
        {place.key: place.offset for place in checked.source.places},
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


def _type(raw: Any) -> Type:
    if raw.HasField("primitive") or raw.HasField("wrapper"):
        return Type(_PRIMITIVES[raw.primitive or raw.wrapper])
    if raw.HasField("well_known"):
        return Type(_WELL_KNOWN[raw.well_known])
    if raw.HasField("list"):
        return Type("list", "", (_type(raw.list.item),))
    if raw.HasField("map"):
        return Type("map", "", (_type(raw.map.key), _type(raw.map.value)))
    if raw.HasField("message"):
        return Type("struct", raw.message)
    if raw.HasField("parameter"):
        return Type("parameter", raw.parameter)
    if raw.HasField("abstract"):
        return Type("abstract", raw.abstract.name, tuple(map(_type, raw.abstract.parameters)))
    return Type("null") if raw.HasField("null") else DYN


def _part(raw: Any) -> Part:
    key = raw.id
    if raw.HasField("name"):
        return Name(key, raw.name.name)
    if raw.HasField("select"):
        return Select(key, _part(raw.select.operand), raw.select.field)
    if raw.HasField("call"):
        target = _part(raw.call.target) if raw.call.HasField("target") else None
        return Call(key, raw.call.function, target, tuple(map(_part, raw.call.args)))
    if raw.HasField("list"):
        return MakeList(key, tuple(map(_part, raw.list.elements)))
    if raw.HasField("struct"):
        entries = raw.struct.entries
        if raw.struct.name:
            return MakeStruct(key, tuple(_part(entry.value) for entry in entries))
        return MakeMap(key, tuple((_part(entry.key), _part(entry.value)) for entry in entries))
    if raw.HasField("loop"):
        loop = raw.loop
        return Loop(key, *map(_part, (loop.range, loop.start, loop.condition, loop.step, loop.result)))
    if raw.constant.HasField("text"):
        return Constant(key, raw.constant.text)
    if raw.constant.HasField("bytes"):
        return Constant(key, raw.constant.bytes)
    return Constant(key, raw.constant.integer if raw.constant.HasField("integer") else None)
