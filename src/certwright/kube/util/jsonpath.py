"""JSONPath of printer columns, selectable fields and `certwright get`: from an object to the matching values.

Supported: `.name`, `['name']`, `.a\\.b` for a key with a dot, `[0]`, `[-1]`, `[*]`, and filters on
the items of a list such as `[?(@.type == "Ready")]` with `==`, `!=`, `<`, `<=`, `>`, `>=`.

Source: Kubernetes documentation, "JSONPath Support"; the subset is what CustomResourceDefinitions use.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Step = Callable[[list[Any]], list[Any]]
"""From the current values to the next ones."""

Find = Callable[[Any], Any]
"""From an object to the first matching value, or `MISSING`."""


FindAll = Callable[[Any], list[Any]]
"""From an object to all matching values."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""No value matches the path (null is a value)."""

_NAME = re.compile(r"\.((?:\\.|[^.\[\\])+)")
_QUOTED = re.compile(r"""\[\s*'((?:\\.|[^'\\])*)'\s*\]|\[\s*"((?:\\.|[^"\\])*)"\s*\]""")
_INDEX = re.compile(r"\[\s*(-?\d+)\s*\]")
_ALL = re.compile(r"\[\s*\*\s*\]|\.\*")
_FILTER = re.compile(
    r"""\[\?\(\s*@((?:\.[^\s=!<>"'()]+|\[[^\]]*\])*)\s*(==|!=|<=|>=|<|>)\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s)]+)\s*\)\]"""
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_path(path: str) -> Find:
    """Compile a path such as `.status.conditions[?(@.type=="Ready")].status`.

    Raises `ValueError` with the position of the syntax error.
    """
    find_all = compile_all(path)

    def find(value: Any) -> Any:
        values = find_all(value)
        return values[0] if values else MISSING

    return find


def compile_all(path: str) -> FindAll:
    """As `compile_path`, but to all matching values, in the order of the object."""
    if not path.startswith((".", "[")):
        raise ValueError(f"{path!r} must start with a dot")
    steps = tuple(_steps(path))

    def find_all(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            if not values:
                break
            values = step(values)
        return values

    return find_all


def simple_keys(path: str) -> tuple[str, ...]:
    """The keys of a path that consists of plain names only (`.spec.issuerRef.name`).

    Raises `ValueError` for any other path.
    """
    keys, at = [], 0
    while match := _NAME.match(path, at):
        keys.append(_unescape(match[1]))
        at = match.end()
    if not keys or at != len(path):
        raise ValueError(f"{path!r} is not a path of plain names such as .spec.name")
    return tuple(keys)


def _steps(path: str) -> Iterator[Step]:
    at = 0
    # A lone dot before a bracket, or at the end, has no effect.
    while at < len(path) and path[at:] != ".":
        if path.startswith(".[", at):
            at += 1
        step, at = _step(path, at)
        yield step


def _step(path: str, at: int) -> tuple[Step, int]:
    if match := _ALL.match(path, at):
        return _every, match.end()
    if match := _NAME.match(path, at):
        return _child(_unescape(match[1])), match.end()
    if match := _QUOTED.match(path, at):
        return _child(_unescape(match[1] or match[2] or "")), match.end()
    if match := _INDEX.match(path, at):
        return _index(int(match[1])), match.end()
    if match := _FILTER.match(path, at):
        return _filter(match[1], match[2], match[3]), match.end()
    raise ValueError(f"{path!r} is not understood from character {at + 1} on: {path[at:]!r}")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _child(key: str) -> Step:
    return lambda values: [value[key] for value in values if type(value) is dict and key in value]


def _index(index: int) -> Step:
    return lambda values: [
        value[index] for value in values if type(value) is list and -len(value) <= index < len(value)
    ]


def _every(values: list[Any]) -> list[Any]:
    return [item for value in values for item in _items(value)]


def _items(value: Any) -> list[Any]:
    if type(value) is dict:
        return list(value.values())
    return value if type(value) is list else []


def _filter(left: str, sign: str, right: str) -> Step:
    find = compile_path(left) if left else lambda value: value
    expected = _literal(right)
    compare = _COMPARE[sign]

    def holds(item: Any) -> bool:
        value = find(item)
        if value is MISSING:
            return False
        try:
            return compare(value, expected)
        except TypeError:
            return False

    return lambda values: [item for value in values for item in _items(value) if holds(item)]


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return _unescape(text[1:-1])
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"{text!r} is not a value; write strings in quotes") from error
