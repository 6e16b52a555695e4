"""Field sets in the wire form of `fieldsV1`: nested objects.

A node maps a path element to its node: `f:name` (a field), `k:{...}` (a list item by its keys), `v:...` (a
list item by its value), `i:0` (a list item by its index). An empty node is a member of the set; a node with
child nodes is a member if it has `.` too. No function changes its arguments; results may share parts with
them.

Source: Kubernetes API reference, FieldsV1 v1 meta; structured-merge-diff `fieldpath`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from certwright.kube.apiserver.fieldmanager.schema import Type
from certwright.kube.apiserver.model.objects import decode_json, encode_json, go_json

Node = dict[str, Any]
SELF = "."
_KINDS = "fkvi"


class FieldsError(ValueError):
    """A value or a field set that does not have its type's form; the text gives the cause."""


def is_member(node: Node) -> bool:
    """Whether the field of this node itself is in the set."""
    return not node or SELF in node


def union(fields: Node, other: Node) -> Node:
    """The union of two sets."""
    if not fields or not other:
        return fields or other
    merged = dict(fields)
    for name, node in other.items():
        merged[name] = _joined(merged[name], node) if name in merged else node
    return merged


def union_of(sets: list[Node]) -> Node:
    """The union of many sets, at least one, in pairs: a chain would copy the first sets each time."""
    while len(sets) > 1:
        rest = sets[len(sets) // 2 * 2 :]
        sets = [union(*pair) for pair in zip(sets[::2], sets[1::2], strict=False)] + rest
    return sets[0]


def _joined(fields: Node, other: Node) -> Node:
    joined = union(fields, other)
    if joined and SELF not in joined and (is_member(fields) or is_member(other)):
        return {SELF: {}, **joined}
    return joined


def difference(fields: Node, other: Node) -> Node:
    """The members of `fields` that `other` lacks; a field stays if only child nodes of it are in `other`."""
    if not fields or not other:
        return fields
    left: Node = {}
    for name, node in fields.items():
        if name not in other:
            left[name] = node
        elif name != SELF:
            member = is_member(node) and not is_member(other[name])
            _keep(left, name, difference(_below(node), other[name]), member=member)
    return left


def recursive_difference(fields: Node, other: Node) -> Node:
    """As `difference`, but with a field everything below it goes."""
    left: Node = {}
    for name, node in fields.items():
        if name not in other:
            left[name] = node
        elif name != SELF and not is_member(other[name]):
            _keep(left, name, recursive_difference(_below(node), other[name]), member=is_member(node))
    return left


def intersection(fields: Node, other: Node) -> Node:
    """The intersection of two sets."""
    both: Node = {}
    for name in fields.keys() & other.keys():
        if name != SELF:
            member = is_member(fields[name]) and is_member(other[name])
            _keep(both, name, intersection(fields[name], other[name]), member=member)
    return both


def _below(node: Node) -> Node:
    return {name: child for name, child in node.items() if name != SELF} if SELF in node else node


def _keep(into: Node, name: str, below: Node, *, member: bool) -> None:
    if below:
        into[name] = {SELF: {}, **below} if member and SELF not in below else below
    elif member:
        into[name] = {}


def with_named_fields(fields: Node, kind: Type | None) -> Node:
    """`fields` and every field that the type knows by name and that contains fields of `fields`."""
    named_fields: Node = {}
    for name, node in fields.items():
        child = _child(kind, name)
        made = with_named_fields(node, child) if node else node
        known = kind is not None and name[:2] == "f:" and name[2:] in kind.fields
        named_fields[name] = {SELF: {}, **made} if made and known and SELF not in made else made
    return named_fields


def _child(kind: Type | None, name: str) -> Type | None:
    if kind is None:
        return None
    return kind.child(name[2:]) if name[:2] == "f:" and kind.maps else kind.item if name[:2] == "k:" else None


def reconciled(fields: Node, kind: Type | None) -> Node:
    """`fields` with each field that has become atomic since they were written owned as a whole."""
    reconciled_fields: Node = {}
    for name, node in fields.items():
        child = _child(kind, name)
        if node and child is not None:
            atomic = child.lists == "atomic" if not child.maps else child.maps == "atomic"
            reconciled_fields[name] = {} if atomic else reconciled(node, child)
        else:
            reconciled_fields[name] = node
    return reconciled_fields


def paths(fields: Node, prefix: str = "") -> Iterator[str]:
    """The members as Kubernetes writes them in messages, those nearer to the root first."""
    names = sorted(
        (name for name in fields if name != SELF), key=lambda name: (_KINDS.find(name[0]), name[2:])
    )
    for name in names:
        if is_member(fields[name]):
            yield prefix + _shown(name)
    for name in names:
        yield from paths(fields[name], prefix + _shown(name))


def _shown(name: str) -> str:
    kind, rest = name[0], name[2:]
    if kind == "f":
        return f".{rest}"
    if kind == "i":
        return f"[{rest}]"
    value = decode_json(rest.encode())
    if kind == "v":
        return f"[={_quoted(value)}]"
    return "[" + ",".join(f"{key}={_quoted(item)}" for key, item in value.items()) + "]"


def _quoted(value: Any) -> str:
    return encode_json(value).decode()


def key_element(values: dict[str, Any]) -> str:
    """The path element of a list item with these keys."""
    return f"k:{go_json(values)}"


def value_element(value: Any) -> str:
    """The path element of an item of a set, whose whole numbers have no point."""
    if type(value) is float and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return f"v:{go_json(value)}"


def read(node: Any) -> Node:
    """A set that a client sent, in canonical form. Raises `FieldsError`."""
    if type(node) is not dict:
        raise FieldsError("a set of fields must be an object")
    fields: Node = {}
    for name, child in node.items():
        if name == SELF:
            fields[SELF] = {}
            continue
        if len(name) < 2 or name[1] != ":":
            raise FieldsError(f"missing colon: {name}")
        # Fields of later versions are dropped, as Kubernetes does.
        if name[0] in _KINDS:
            fields[_read_element(name)] = read(child if child is not None else {})
    return {} if fields.keys() == {SELF} else fields


def _read_element(name: str) -> str:
    kind, rest = name[0], name[2:]
    if kind == "f":
        return name
    try:
        value = decode_json(rest.encode())
    except ValueError as error:
        raise FieldsError(f"{name}: {error}") from None
    if kind == "v":
        return value_element(value)
    if kind == "k" and type(value) is dict:
        return key_element(value)
    if kind == "i" and type(value) is int:
        return name
    raise FieldsError(f"{name} is not a path element")
