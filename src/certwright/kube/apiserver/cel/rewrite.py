"""Rewrites compiled expressions: adds a call of `TICK` to every loop, and renames replaced functions.

The library evaluates an expression without yielding to other threads, and without a time limit. A function of
ours that every iteration calls does both. Functions whose cost is not about linear in the size of their
arguments are replaced by ours.

Source: cel-spec `proto/cel/expr/checked.proto` and `syntax.proto` (numbers of messages and fields).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from certwright.kube.apiserver.cel.library import descriptor, descriptor_pb2, descriptor_pool, message_factory

TICK = "k8s.tick"
"""The function that every loop calls with its condition, and that returns it."""
RENAMED = {
    name: f"k8s.{name}"
    for name in (
        *("contains", "indexOf", "lastIndexOf", "replace", "split"),
        *("sets.contains", "sets.equivalent", "sets.intersects"),
    )
} | {"cel.@mapInsert": "k8s.mapInserts"}
"""The functions that ours replace. The library has no `cel.@mapInsert`, which its own macro calls."""

# Fields that are not listed here stay as they are: protobuf keeps unknown fields.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Any": {"value": (2, "bytes")},
    "Checked": {"references": (2, "Reference*"), "root": (4, "Expr")},
    "Reference": {"key": (1, "int64")},
    "Expr": {
        "id": (2, "int64"),
        "select": (5, "Select"),
        "call": (6, "Call"),
        "list": (7, "List"),
        "struct": (8, "Struct"),
        "loop": (9, "Loop"),
    },
    "Select": {"operand": (1, "Expr")},
    "Call": {"target": (1, "Expr"), "function": (2, "string"), "args": (3, "Expr*")},
    "List": {"elements": (1, "Expr*")},
    "Struct": {"entries": (2, "Entry*")},
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
def _classes() -> dict[str, Any]:
    types = descriptor.FieldDescriptor
    scalars = {"bytes": types.TYPE_BYTES, "string": types.TYPE_STRING, "int64": types.TYPE_INT64}
    file = descriptor_pb2.FileDescriptorProto(name="cel_expr.proto", package="expr", syntax="proto3")
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


def rewrite(serialized: bytes) -> bytes | None:
    """The serialized expression with our functions in it; None without a change."""
    classes = _classes()
    outer = classes["Any"].FromString(serialized)
    checked = classes["Checked"].FromString(outer.value)
    parts = list(_parts(checked.root))
    last, changed = max(part.id for part in parts), set[int]()
    # Children first: the parts of a condition are copied into the new one.
    for part in reversed(parts):
        if part.HasField("call") and part.call.function in RENAMED:
            part.call.function = RENAMED[part.call.function]
            changed.add(part.id)
        if part.HasField("loop"):
            last += 1
            condition = classes["Expr"](id=last)
            condition.call.function = TICK
            condition.call.args.add().CopyFrom(part.loop.condition)
            part.loop.condition.CopyFrom(condition)
            changed.add(last)
    if not changed:
        return None
    # Without a reference a function is resolved by name.
    kept = [reference for reference in checked.references if reference.key not in changed]
    del checked.references[:]
    checked.references.extend(kept)
    outer.value = checked.SerializeToString()
    return bytes(outer.SerializeToString())


def _parts(root: Any) -> Iterator[Any]:
    """An expression and all its descendants, each before its own parts."""
    waiting = [root]
    while waiting:
        part = waiting.pop()
        yield part
        for name in ("select", "call", "list", "struct", "loop"):
            if part.HasField(name):
                waiting += _children(getattr(part, name))


def _children(node: Any) -> Iterator[Any]:
    for field, value in node.ListFields():
        if field.message_type is None:
            continue
        for child in value if field.is_repeated else (value,):
            if field.message_type.name == "Entry":
                yield from _children(child)
            else:
                yield child
