"""Linear-time replacements of CEL functions for which the library may take quadratic time, with the same
results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, cast

from certwright.kube.apiserver.cel.functions import FUNCTIONS

Overload = tuple[tuple[str, ...], str, Callable[..., Any]]
"""The types of the arguments, the type of the result, and the function."""


def _check_offset(text: str, offset: int) -> None:
    if not 0 <= offset <= len(text):
        raise ValueError(f"index out of range: {offset}")


def _index_of(text: str, part: str, offset: int = 0) -> int:
    _check_offset(text, offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is not None:
        _check_offset(text, offset)
        text = text[: offset + len(part)]
    # Python finds from the left in linear time, but not from the right.
    reverse_index = text[::-1].find(part[::-1])
    return -1 if reverse_index < 0 else len(text) - reverse_index - len(part)


_MOST_PARTS = 100_000
"""The library takes some 15 ms for this number, in which no other thread runs."""


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    parts = _parts(text, separator, most)
    if len(parts) > _MOST_PARTS:
        raise ValueError(f"split: more than {_MOST_PARTS} parts")
    return parts


def _parts(text: str, separator: str, most: int) -> list[str]:
    if most == 0:
        return []
    if not text:
        return [text]
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1)
    if most < 0 or most > len(text):
        return list(text)
    return [*text[: most - 1], text[most - 1 :]]


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, most)


def _comparable(value: Any) -> Hashable:
    """A key that is equal for values that CEL considers equal."""
    if isinstance(value, bool):
        return "bool", value  # in Python True == 1
    if isinstance(value, Mapping):
        return frozenset((_comparable(key), _comparable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return "list", tuple(map(_comparable, value))
    if hasattr(value, "SerializeToString"):
        return type(value).__name__, value.SerializeToString(deterministic=True)
    return cast(Hashable, value)


def _as_set(items: Sequence[Any]) -> set[Hashable]:
    return set(map(_comparable, items))


_TWO_TEXTS, _TWO_LISTS = ("string", "string"), ("list(dyn)", "list(dyn)")

REPLACEMENTS: Mapping[str, Sequence[Overload]] = {
    "contains": [(_TWO_TEXTS, "bool", lambda text, part: part in text)],
    "indexOf": [
        (_TWO_TEXTS, "int", _index_of),
        ((*_TWO_TEXTS, "int"), "int", _index_of),
        (("list(dyn)", "dyn"), "int", FUNCTIONS["indexOf"][0].run),
    ],
    "lastIndexOf": [
        (_TWO_TEXTS, "int", _last_index_of),
        ((*_TWO_TEXTS, "int"), "int", _last_index_of),
        (("list(dyn)", "dyn"), "int", FUNCTIONS["lastIndexOf"][0].run),
    ],
    "replace": [
        ((*_TWO_TEXTS, "string"), "string", _replace),
        ((*_TWO_TEXTS, "string", "int"), "string", _replace),
    ],
    "split": [
        (_TWO_TEXTS, "list(string)", _split),
        ((*_TWO_TEXTS, "int"), "list(string)", _split),
    ],
    "sets.contains": [(_TWO_LISTS, "bool", lambda items, part: _as_set(part) <= _as_set(items))],
    "sets.equivalent": [(_TWO_LISTS, "bool", lambda items, other: _as_set(items) == _as_set(other))],
    "sets.intersects": [
        (_TWO_LISTS, "bool", lambda items, other: not _as_set(items).isdisjoint(_as_set(other)))
    ],
}
"""By their names in CEL, as functions of all their arguments, including the receiver; `sets` have none."""
