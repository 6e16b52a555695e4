"""AST of a checked CEL expression, as the library's messages.

Source: cel-spec `proto/cel/expr/checked.proto` and `syntax.proto` (numbers of messages and fields).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from certwright.kube.apiserver.cel.overloads import (
    descriptor,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

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


class Tree(NamedTuple):
    """An expression (a message `Expr`), and of its nodes by their ids: the types, as messages name them
    (`list(string)`), and the offsets in the text, in characters."""

    root: Any
    types: dict[int, str]
    places: dict[int, int]


def read(serialized: bytes) -> Tree:
    """Decode the AST from the library's message (an `Any` with a `CheckedExpr`)."""
    classes = messages()
    checked = classes["Checked"].FromString(classes["Any"].FromString(serialized).value)
    return Tree(
        checked.root,
        {entry.key: _type_name(entry.type) for entry in checked.types},
        {place.key: place.offset for place in checked.source.places},
    )


def inside(tree: Tree, skipped: int) -> Tree:
    """What a tree that is one `cel.bind` binds its variable for.

    `skipped`: the characters before its text.
    """
    assert tree.root.HasField("loop"), "cel.bind makes a comprehension"
    places = {key: place - skipped for key, place in tree.places.items()}
    return tree._replace(root=tree.root.loop.result, places=places)


def parts(root: Any) -> Iterator[Any]:
    """An expression and all its descendants, each before its own parts."""
    waiting = [root]
    while waiting:
        part = waiting.pop()
        yield part
        for name in ("select", "call", "list", "struct", "loop"):
            if part.HasField(name):
                waiting += reversed(list(_children(getattr(part, name))))


def _children(node: Any) -> Iterator[Any]:
    for field, value in node.ListFields():
        if field.message_type is None:
            continue
        for child in value if field.is_repeated else (value,):
            if field.message_type.name == "Entry":
                yield from _children(child)
            else:
                yield child


_PRIMITIVES = ("dyn", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("dyn", "any", "timestamp", "duration")


def _type_name(kind: Any) -> str:
    fields = kind.ListFields()
    if not fields:
        return "dyn"
    ((field, value),) = fields
    match field.name:
        case "primitive" | "wrapper":
            return _PRIMITIVES[value]
        case "well_known":
            return _WELL_KNOWN[value]
        case "list":
            return f"list({_type_name(value.item)})"
        case "map":
            return f"map({_type_name(value.key)}, {_type_name(value.value)})"
        case "abstract":
            parameters = ", ".join(map(_type_name, value.parameters))
            return f"{value.name}({parameters})" if parameters else value.name
        case "message" | "parameter":
            return str(value)
        case _:
            return "null"
