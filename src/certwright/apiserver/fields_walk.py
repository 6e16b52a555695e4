"""Objects and sets of fields: what a value holds, what has changed between two, what is left without some.

Source: structured-merge-diff `typed` (compare, remove, tofieldset); KEP-555.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certwright.apiserver.fields_set import (
    SELF,
    FieldsError,
    Node,
    is_member,
    key_element,
    value_element,
)
from certwright.apiserver.fields_type import ATOMIC, Type
from certwright.apiserver.objects import same

_CONTAINERS = (dict, list)


def element_of(kind: Type, item: Any) -> str:
    """The path element of an item of a list that is a set or a map. Raises `FieldsError`."""
    if kind.lists == "set":
        if item is None or type(item) in _CONTAINERS:
            raise FieldsError("associative list without keys has an element that is not a scalar")
        return value_element(item)
    if type(item) is not dict:
        raise FieldsError("associative list with keys may not have non-map elements")
    values = {key: item[key] for key in kind.keys if key in item}
    for key, default in kind.defaults.items():
        values.setdefault(key, default)
    if not values:
        raise FieldsError(
            f'associative list with keys has an element that omits all key fields ["{" ".join(kind.keys)}"] '
            "(and doesn't have default values for any key fields)"
        )
    return key_element(values)


def _parts(kind: Type, value: Any) -> bool:
    """Whether a value that is there and not empty is owned in parts."""
    if type(value) is dict:
        return kind.maps == "granular"
    return type(value) is list and kind.lists in ("map", "set")


def everything(kind: Type, value: Any) -> Node:
    """The node of a value that has just come: it and all below it."""
    if not value or type(value) not in _CONTAINERS or not _parts(kind, value):
        return {}
    return {SELF: {}, **below(kind, value)}


def below(kind: Type, value: Any) -> Node:
    """All fields below a map or list owned in parts."""
    found: Node = {}
    if type(value) is dict:
        for name, child in value.items():
            deep = type(child) in _CONTAINERS
            found[f"f:{name}"] = everything(kind.child(name) or ATOMIC, child) if deep else {}
        return found
    for name, items in _by_element(kind, value).items():
        found[name] = everything(_item(kind), items[0]) if len(items) == 1 else {}
    return found


def _item(kind: Type) -> Type:
    return kind.item or ATOMIC


def _by_element(kind: Type, items: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(element_of(kind, item), []).append(item)
    return found


class Comparison:
    """What has changed from one object to the other: fields `touched` (come or changed) and `removed`."""

    __slots__ = ("removed", "touched")

    def __init__(self) -> None:
        self.touched: Node = {}
        self.removed: Node = {}

    def maps(self, kind: Type, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Compare two maps that are owned in parts."""
        for name, value in new.items():
            if name not in old:
                self.touched[f"f:{name}"] = everything(kind.child(name) or ATOMIC, value)
            elif old[name] is not value and not _equal(old[name], value):
                self._differ(f"f:{name}", kind.child(name) or ATOMIC, old[name], value)
        for name in old.keys() - new.keys():
            self.removed[f"f:{name}"] = everything(kind.child(name) or ATOMIC, old[name])

    def _differ(self, name: str, kind: Type, old: Any, new: Any) -> None:
        """Two values that are both there and not the same."""
        if not (old or new) or not (_parts(kind, old) or _parts(kind, new)):
            self.touched[name] = {}
            return
        inner = Comparison()
        if type(old) is type(new):
            inner.maps(kind, old, new) if type(new) is dict else inner._lists(kind, old, new)
        else:
            inner._forms(kind, old, new)
        if inner.touched:
            self.touched[name] = inner.touched if inner.touched.keys() != {SELF} else {}
        if inner.removed:
            self.removed[name] = inner.removed

    def _forms(self, kind: Type, old: Any, new: Any) -> None:
        """A value that has taken another form; null is the empty value of any."""
        if old is not None and _parts(kind, old):
            self.removed = below(kind, old)
        if new is not None and _parts(kind, new):
            self.touched = below(kind, new)
        if old is not None and new is not None:
            self.touched = {SELF: {}, **self.touched}

    def _lists(self, kind: Type, old: list[Any], new: list[Any]) -> None:
        before, after = _by_element(kind, old), _by_element(kind, new)
        for name in {**before, **after}:
            self._items(name, kind, before.get(name, []), after.get(name, []))

    def _items(self, name: str, kind: Type, old: list[Any], new: list[Any]) -> None:
        """Items of one element: one of each as a rule, more where a client has sent it twice."""
        if len(old) <= 1 and len(new) <= 1:
            self._item(name, _item(kind), old, new)
        elif len(old) > 1 and len(new) > 1:
            if not same(old, new):
                self.touched[name] = {}
        elif len(old) > 1:
            self.removed[name] = {}
            if new:
                self.touched[name] = everything(_item(kind), new[0])
        else:
            self.touched[name] = {}
            if old:
                self.removed[name] = everything(_item(kind), old[0])

    def _item(self, name: str, kind: Type, old: list[Any], new: list[Any]) -> None:
        if not old:
            self.touched[name] = everything(kind, new[0])
        elif not new:
            self.removed[name] = everything(kind, old[0])
        elif not _equal(old[0], new[0]):
            self._differ(name, kind, old[0], new[0])


def _equal(old: Any, new: Any) -> bool:
    """Whether two values are the same; 1 and 1.0 are, 1 and true are not."""
    if old != new:
        return False
    if type(old) is type(new) and type(old) is not dict and type(old) is not list:
        return True
    return bool not in (type(old), type(new))


def applied_fields(kind: Type, value: Any) -> Node:
    """What an applier that sends this object claims: its leaves, its list items, names the type has not."""
    found: Node = {}
    if type(value) is dict and kind.maps == "granular":
        for name, child in value.items():
            node = _applied(kind.child(name) or ATOMIC, child)
            if node is not None:
                open_ended = name not in kind.fields
                found[f"f:{name}"] = {SELF: {}, **node} if node and open_ended else node
            elif name not in kind.fields:
                found[f"f:{name}"] = {}
    elif type(value) is list and kind.lists in ("set", "map"):
        for name, items in _by_element(kind, value).items():
            node = _applied(_item(kind), items[0]) if len(items) == 1 else {}
            found[name] = {SELF: {}, **node} if node else {}
    return found


def _applied(kind: Type, value: Any) -> Node | None:
    """The node of a value; None where nothing is claimed (an empty list that is owned in parts)."""
    if type(value) not in _CONTAINERS or not _parts(kind, value):
        return {}
    if value:
        return applied_fields(kind, value) or None
    return {} if type(value) is dict else None


def without(kind: Type, value: Any, fields: Node) -> Any:
    """`value` less the items and fields in `fields`; None when nothing is left of a map or list."""
    if type(value) is dict:
        return _map_without(kind, value, fields)
    return _list_without(kind, value, fields) if type(value) is list else value


def _map_without(kind: Type, value: dict[str, Any], fields: Node) -> Any:
    if kind.maps == "atomic":
        return None
    left: dict[str, Any] = {}
    for name, child in value.items():
        node = fields.get(f"f:{name}")
        if node is None:
            left[name] = child
        elif not is_member(node):
            left[name] = without(kind.child(name) or ATOMIC, child, node)
    return left or None


def _list_without(kind: Type, value: list[Any], fields: Node) -> Any:
    if kind.lists == "atomic":
        return None
    left: list[Any] = []
    for item in value:
        node = fields.get(element_of(kind, item))
        if node is None:
            left.append(item)
        elif not is_member(node):
            left.append(without(_item(kind), item, node))
    return left or None
