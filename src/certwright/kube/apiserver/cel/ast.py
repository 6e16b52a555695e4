"""AST of a checked CEL expression, as the library's messages.

Source: cel-spec `proto/cel/expr/checked.proto` and `syntax.proto` (numbers of messages and fields).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from certwright.kube.util.decoders import protobuf_messages

# Fields that are not listed here stay as they are: protobuf keeps unknown fields.
_MESSAGES = {
    "Any": "value bytes 2",
    "Checked": "references *Reference 2, types *TypeEntry 3, root Expr 4, source Source 5",
    "Reference": "key int64 1",
    "TypeEntry": "key int64 1, type Type 2",
    "Source": "places *Place 4",
    "Place": "key int64 1, offset int64 2",
    "Type": "null int64 2, primitive int64 3, wrapper int64 4, well_known int64 5, list ListType 6, "
    "map MapType 7, message string 9, parameter string 10, abstract AbstractType 14",
    "ListType": "item Type 1",
    "MapType": "key Type 1, value Type 2",
    "AbstractType": "name string 1, parameters *Type 2",
    "Expr": "id int64 2, constant Constant 3, name Name 4, select Select 5, call Call 6, list List 7, "
    "struct Struct 8, loop Loop 9",
    "Constant": "integer int64 3, text string 6, bytes bytes 7",
    "Name": "name string 1",
    "Select": "operand Expr 1, field string 2",
    "Call": "target Expr 1, function string 2, args *Expr 3",
    "List": "elements *Expr 1",
    "Struct": "name string 1, entries *Entry 2",
    "Entry": "key Expr 3, value Expr 4",
    "Loop": "range Expr 2, start Expr 4, condition Expr 5, step Expr 6, result Expr 7",
}


@cache
def messages() -> dict[str, Any]:
    """The classes of the library's messages, by name."""
    return protobuf_messages("expr", _MESSAGES, syntax="proto2")


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
    """The expression for which a tree of one `cel.bind` binds its variable.

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


def uses(root: Any, variable: str) -> bool:
    """Whether an expression uses a variable, or a field of it by a name with dots."""
    return any(part.name.name.partition(".")[0] == variable for part in parts(root))


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
