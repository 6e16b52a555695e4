"""Typed values: their form and field sets, the difference of two, one merged into another, one without a set.

Source: structured-merge-diff `typed` (validate, tofieldset, compare, merge, remove); KEP-555; Kubernetes
documentation, "Server-Side Apply", merge strategy.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Mapping
from typing import Any, Final, NamedTuple

from certwright.kube.apiserver.base.json_values import same, wrong_type
from certwright.kube.apiserver.fieldmanager.fieldpath import (
    SELF,
    FieldsError,
    Node,
    is_member,
    key_element,
    paths,
    value_element,
)
from certwright.kube.apiserver.fieldmanager.schema import ATOMIC, Type

_CONTAINERS = (dict, list)
_ABSENT: Final = object()
_NOT_SCALAR: Final[dict[type, str]] = {
    dict: "associative list without keys has an element that's a map type",
    list: "not supported: associative list with lists as elements",
    type(None): "associative list without keys has an element that's an explicit null",
}
LEAF: Final[Node] = {}
"""The node of a field with nothing below it. It is in many sets, and is not changed."""


def element_of(kind: Type, item: Any) -> str:
    """The path element of an item of a list that is a set or a map. Raises `FieldsError`."""
    if kind.lists == "set":
        if item is None or type(item) in _CONTAINERS:
            raise FieldsError(_NOT_SCALAR[type(item)])
        return value_element(item)
    if type(item) is not dict:
        what = "a null element" if item is None else "non-map elements"
        raise FieldsError(f"associative list with keys may not have {what}")
    values = {key: item[key] for key in kind.keys if key in item}
    for key, default in kind.defaults.items():
        values.setdefault(key, default)
    if not values:
        names = " ".join(f'"{key}"' for key in kind.keys)
        raise FieldsError(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    return key_element(values)


# --- form -------------------------------------------------------------------------------------------------

_SCALAR_NAMES = {"string": "a string", "numeric": "a number", "boolean": "a boolean"}
_SCALAR_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "numeric": (int, float), "boolean": (bool,)}


def check_typed(kind: Type, value: Any) -> None:
    """Raise `FieldsError`, whose text names every part of a value that does not have its type's form."""
    errors: list[str] = []
    _check(kind, value, "", errors)
    if len(errors) == 1:
        raise FieldsError(errors[0])
    if errors:
        raise FieldsError("\n  ".join(["errors:", *errors]))


def _check(kind: Type, value: Any, path: str, errors: list[str]) -> None:
    if value is None:
        return
    if type(value) is dict and kind.maps:
        for name, item in value.items():
            child = kind.child(name)
            if child is None:
                # Kubernetes checks such a map no further.
                errors.append(f"{path}.{name}: field not declared in schema")
                return
            # Most are texts.
            if type(item) is not str or child.scalar != "string":
                _check(child, item, f"{path}.{name}", errors)
    elif type(value) is list and kind.lists:
        _check_list(kind, value, path, errors)
    elif kind.scalar == "untyped":
        if type(value) in _CONTAINERS:
            errors.append(wrong_type(path, "a scalar", value))
    elif type(value) not in _SCALAR_TYPES.get(kind.scalar, ()):
        form = _SCALAR_NAMES[kind.scalar] if kind.scalar else "an object" if kind.maps else "a list"
        errors.append(wrong_type(path, form, value))


def _check_list(kind: Type, value: list[Any], path: str, errors: list[str]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        place = f"[{index}]"
        if kind.lists != "atomic":
            try:
                element = element_of(kind, item)
            except FieldsError as error:
                errors.append(f"{path}: element {index}: {error}")
                return
            place = next(paths({element: {}}))
            if element in seen:
                errors.append(f"{path}: duplicate entries for key {place}")
            seen.add(element)
        _check(kind.item or ATOMIC, item, path + place, errors)


# --- field sets -------------------------------------------------------------------------------------------


def _parts(kind: Type, value: Any) -> bool:
    """Whether a value that is present and not empty is granular."""
    if type(value) is dict:
        return kind.maps == "granular"
    return type(value) is list and kind.lists in ("map", "set")


def everything(kind: Type, value: Any) -> Node:
    """The node of a new value with all its descendants."""
    if not value or type(value) not in _CONTAINERS or not _parts(kind, value):
        return LEAF
    return {SELF: LEAF, **below(kind, value)}


def below(kind: Type, value: Any) -> Node:
    """All fields below a map or list owned in parts."""
    if type(value) is dict:
        fields, element = kind.fields, kind.element
        if not fields and element is not None and not element.maps and not element.lists:
            return {"f:" + name: LEAF for name in value}
        return {
            "f:" + name: (
                everything(fields.get(name) or element or ATOMIC, child)
                if type(child) in _CONTAINERS
                else LEAF
            )
            for name, child in value.items()
        }
    item = kind.item or ATOMIC
    return {
        name: everything(item, items[0]) if len(items) == 1 else LEAF
        for name, items in _by_element(kind, value).items()
    }


def _by_element(kind: Type, items: list[Any]) -> dict[str, list[Any]]:
    items_by_element: dict[str, list[Any]] = {}
    for item in items:
        items_by_element.setdefault(element_of(kind, item), []).append(item)
    return items_by_element


def to_field_set(kind: Type, value: Any) -> Node:
    """The fields that an applier of this object claims: leaves, list items, and names unknown to the type."""
    fields: Node = {}
    if type(value) is dict and kind.maps == "granular":
        for name, child in value.items():
            node = _applied(kind.child(name) or ATOMIC, child)
            if node is not None:
                open_ended = name not in kind.fields
                fields[f"f:{name}"] = {SELF: {}, **node} if node and open_ended else node
            elif name not in kind.fields:
                fields[f"f:{name}"] = {}
    elif type(value) is list and kind.lists in ("set", "map"):
        for name, items in _by_element(kind, value).items():
            node = _applied(kind.item or ATOMIC, items[0]) if len(items) == 1 else {}
            fields[name] = {SELF: {}, **node} if node else {}
    return fields


def _applied(kind: Type, value: Any) -> Node | None:
    """The node of a value; None where nothing is claimed (an empty granular list)."""
    if type(value) not in _CONTAINERS or not _parts(kind, value):
        return {}
    if value:
        return to_field_set(kind, value) or None
    return {} if type(value) is dict else None


# --- difference of two objects ------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """The difference of two objects: fields `touched` (new or changed) and `removed`."""

    touched: Node
    removed: Node

    def add(self, name: str, inner: Comparison) -> None:
        """Record a change below a field."""
        if inner.touched:
            self.touched[name] = inner.touched
        if inner.removed:
            self.removed[name] = inner.removed


def compare_objects(
    kind: Type, old: Mapping[str, Any], new: Mapping[str, Any], hidden: Container[str] = ()
) -> Comparison:
    """Compare two granular maps, without the names that are `hidden`."""
    comparison = Comparison({}, {})
    fields, element = kind.fields, kind.element
    for name, value in new.items():
        if name in hidden:
            continue
        before = old.get(name, _ABSENT)
        if before is _ABSENT:
            comparison.touched["f:" + name] = everything(fields.get(name) or element or ATOMIC, value)
        elif before is not value and not _equal(before, value):
            _differ(comparison, "f:" + name, fields.get(name) or element or ATOMIC, before, value)
    for name, before in old.items():
        if name not in new and name not in hidden:
            comparison.removed["f:" + name] = everything(fields.get(name) or element or ATOMIC, before)
    return comparison


def _differ(comparison: Comparison, name: str, kind: Type, old: Any, new: Any) -> None:
    """Compare two values that are both present and not the same."""
    if type(new) is not type(old):
        # A value of another form; null is the empty value of any.
        had = below(kind, old) if old and _parts(kind, old) else LEAF
        has = below(kind, new) if new and _parts(kind, new) else LEAF
        if had:
            comparison.removed[name] = had
        if has and old is None:
            comparison.touched[name] = has
        elif has or not (had and new is None):
            comparison.touched[name] = {SELF: LEAF, **has} if has else LEAF
    elif type(new) is dict and kind.maps == "granular":
        comparison.add(name, compare_objects(kind, old, new))
    elif type(new) is list and kind.lists != "atomic" and kind.lists:
        comparison.add(name, _compare_lists(kind, old, new))
    else:
        comparison.touched[name] = LEAF


def _compare_lists(kind: Type, old: list[Any], new: list[Any]) -> Comparison:
    comparison, item = Comparison({}, {}), kind.item or ATOMIC
    before, after = _by_element(kind, old), _by_element(kind, new)
    for name in {**before, **after}:
        _compare_items(comparison, name, item, before.get(name, []), after.get(name, []))
    return comparison


def _compare_items(comparison: Comparison, name: str, kind: Type, old: list[Any], new: list[Any]) -> None:
    """Compare the items of one element: one on each side, or more if a client has sent duplicates."""
    if len(old) == len(new) == 1:
        if not _equal(old[0], new[0]):
            _differ(comparison, name, kind, old[0], new[0])
        return
    if len(old) > 1 and len(new) > 1:
        if not same(old, new):
            comparison.touched[name] = LEAF
        return
    if old:
        comparison.removed[name] = everything(kind, old[0]) if len(old) == 1 else LEAF
    if new:
        comparison.touched[name] = everything(kind, new[0]) if len(new) == 1 else LEAF


def _equal(old: Any, new: Any) -> bool:
    """Whether two values are the same; 1 and 1.0 are, 1 and true are not."""
    return bool(old == new) and (type(old) is type(new) or bool not in (type(old), type(new)))


# --- merge and removal ------------------------------------------------------------------------------------


def merge(kind: Type, live: Any, config: Any) -> Any:
    """`config` over `live`, both there. Parts of both are in the result; None where nothing is left."""
    if type(config) is dict and kind.maps == "granular" and (live or config):
        merged = dict(live) if type(live) is dict else {}
        for name, value in config.items():
            merged[name] = merge(kind.child(name) or ATOMIC, merged[name], value) if name in merged else value
        return merged
    if type(config) is list and kind.lists in ("set", "map") and (live or config):
        return _merge_lists(kind, live if type(live) is list else [], config)
    if config is None and live and type(live) in (dict, list) and kind.maps != "atomic" != kind.lists:
        # A null does not affect the parts.
        return live
    return config


def _merge_lists(kind: Type, live: list[Any], config: list[Any]) -> Any:
    """Items of both lists: the items of `config` in its order, between them the other items of `live` at
    their places."""
    item = kind.item or ATOMIC
    before = [(element_of(kind, value), value) for value in live]
    after = {element_of(kind, value): value for value in config}
    names = list(after)
    known = dict(before)
    twice = {name for name, count in Counter(name for name, _ in before).items() if count > 1}
    shared = deque(name for name in names if name in known)
    merged: list[Any] = []
    done: set[str] = set()

    def take(name: str) -> None:
        done.add(name)
        replaced = name not in known or name in twice
        merged.append(after[name] if replaced else merge(item, known[name], after[name]))
        if shared and shared[0] == name:
            shared.popleft()

    left, right = 0, 0
    while left < len(before) or right < len(names):
        if left < len(before):
            name, value = before[left]
            if right < len(names) and name == names[right]:
                take(name)
                left, right = left + 1, right + 1
                continue
            if name in after and right < len(names) and shared and shared[0] != name:
                left += 1
                continue
            if name not in after:
                merged.append(value)
                left += 1
                continue
            if name in done:
                left += 1
        if right < len(names):
            take(names[right])
            right += 1
    return merged or None


def remove_items(kind: Type, value: Any, fields: Node) -> Any:
    """`value` less the items and fields in `fields`; None when nothing is left of a map or list."""
    if type(value) is dict:
        if kind.maps == "atomic":
            return None
        left: dict[str, Any] = {}
        for name, child in value.items():
            node = fields.get(f"f:{name}")
            if node is None:
                left[name] = child
            elif not is_member(node):
                left[name] = remove_items(kind.child(name) or ATOMIC, child, node)
        return left or None
    if type(value) is not list:
        return value
    if kind.lists == "atomic":
        return None
    items: list[Any] = []
    for item in value:
        node = fields.get(element_of(kind, item))
        if node is None:
            items.append(item)
        elif not is_member(node):
            items.append(remove_items(kind.item or ATOMIC, item, node))
    return items or None
