"""An applied configuration laid over an object: what it says wins, what it does not say stays.

Source: Kubernetes documentation, "Server-Side Apply", merge strategy; structured-merge-diff `typed/merge`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from certwright.apiserver.ownership.fields_set import FieldsError, paths
from certwright.apiserver.ownership.fields_type import ATOMIC, Type
from certwright.apiserver.ownership.fields_walk import element_of

_SCALAR_NAMES = {"string": "string", "numeric": "numeric (int or float)", "boolean": "boolean"}


def check_typed(kind: Type, value: Any, path: str = "", *, duplicates: bool = False) -> None:
    """Raise `FieldsError` where a value does not have the form its type says.

    `duplicates`: whether a list that is a set or a map may hold one element twice.
    """
    if value is None:
        return
    if type(value) is dict:
        if not kind.maps:
            raise FieldsError(f"{path}: expected {_expected(kind)}, got &{{{value}}}")
        _check_map(kind, value, path, duplicates=duplicates)
    elif type(value) is list:
        if not kind.lists:
            raise FieldsError(f"{path}: expected {_expected(kind)}, got &{{{value}}}")
        _check_list(kind, value, path, duplicates=duplicates)
    else:
        _check_scalar(kind, value, path)


def _check_map(kind: Type, value: dict[str, Any], path: str, *, duplicates: bool) -> None:
    for name, item in value.items():
        child = kind.child(name)
        if child is None:
            raise FieldsError(f"{path}.{name}: field not declared in schema")
        check_typed(child, item, f"{path}.{name}", duplicates=duplicates)


def _check_list(kind: Type, value: list[Any], path: str, *, duplicates: bool) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        place = f"[{index}]"
        if kind.lists != "atomic":
            try:
                element = element_of(kind, item)
            except FieldsError as error:
                raise FieldsError(f"{path}: element {index}: {error}") from None
            place = next(paths({element: {}}))
            if element in seen and not duplicates:
                raise FieldsError(f"{path}: duplicate entries for key {place}")
            seen.add(element)
        check_typed(kind.item or ATOMIC, item, path + place, duplicates=duplicates)


def _check_scalar(kind: Type, value: Any, path: str) -> None:
    wanted = kind.scalar
    right = {
        "": False,
        "string": type(value) is str,
        "numeric": type(value) in (int, float),
        "boolean": type(value) is bool,
        "untyped": True,
    }[wanted]
    if not right:
        raise FieldsError(f"{path}: expected {_expected(kind)}, got {_shown(value, wanted)}")


def _expected(kind: Type) -> str:
    if kind.scalar:
        return _SCALAR_NAMES.get(kind.scalar, "any scalar")
    return "map" if kind.maps else "list"


def _shown(value: Any, wanted: str) -> str:
    # Go prints the type of what is not a number, and its own wrapper of what is not a string.
    if wanted == "numeric":
        return {str: "string", bool: "bool"}.get(type(value), type(value).__name__)
    text = {True: "true", False: "false"}.get(value, str(value)) if type(value) is bool else str(value)
    return f"&value.valueUnstructured{{Value:{text}}}" if wanted == "string" else f"&{{{text}}}"


def merge(kind: Type, live: Any, config: Any) -> Any:
    """`config` over `live`, both there. Parts of both are in the result; None where nothing is left."""
    if type(config) is dict and kind.maps == "granular" and (live or config):
        return _merge_maps(kind, live if type(live) is dict else {}, config)
    if type(config) is list and kind.lists in ("set", "map") and (live or config):
        return _merge_lists(kind, live if type(live) is list else [], config)
    if config is None and live and type(live) in (dict, list) and kind.maps != "atomic" != kind.lists:
        # A null says nothing of the parts.
        return live
    return config


def _merge_maps(kind: Type, live: dict[str, Any], config: dict[str, Any]) -> Any:
    merged = dict(live)
    for name, value in config.items():
        merged[name] = merge(kind.child(name) or ATOMIC, live[name], value) if name in live else value
    return merged


def _merge_lists(kind: Type, live: list[Any], config: list[Any]) -> Any:
    """Items of both: those of `config` in its order, the others of `live` where they stood between them."""
    item = kind.item or ATOMIC
    before = [(element_of(kind, value), value) for value in live]
    after = {element_of(kind, value): value for value in config}
    wanted = list(after)
    known = dict(before)
    twice = {name for index, (name, _) in enumerate(before) if name in dict(before[:index])}
    shared = deque(name for name in wanted if name in known)
    merged: list[Any] = []
    done: set[str] = set()

    def take(name: str) -> None:
        done.add(name)
        whole = name not in known or name in twice
        merged.append(after[name] if whole else merge(item, known[name], after[name]))
        if shared and shared[0] == name:
            shared.popleft()

    left, right = 0, 0
    while left < len(before) or right < len(wanted):
        if left < len(before):
            name, value = before[left]
            if right < len(wanted) and name == wanted[right]:
                take(name)
                left, right = left + 1, right + 1
                continue
            if name in after and right < len(wanted) and shared and shared[0] != name:
                left += 1
                continue
            if name not in after:
                merged.append(value)
                left += 1
                continue
            if name in done:
                left += 1
        if right < len(wanted):
            take(wanted[right])
            right += 1
    return merged or None
