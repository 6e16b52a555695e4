"""Limits of CEL expressions, whose authors are not trusted: a budget of processor time, and linear functions.

The library evaluates an expression without yielding to other threads, and without a time limit. So compiled
expressions are rewritten: every loop calls `tick`, and functions for which the library may take quadratic
time are replaced by ours, with the same results.

Source: cel-spec `proto/cel/expr/checked.proto` and `syntax.proto` (numbers of messages and fields).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from certwright.kube.apiserver.cel import ast
from certwright.kube.apiserver.cel.functions import FUNCTIONS
from certwright.kube.apiserver.cel.overloads import Function, member, plain

_PAUSE_EVERY_S, _PAUSE_S = 0.002, 0.001
"""Seconds of processor time between pauses, and their length."""


class Meter:
    """A budget of processor time for the thread that evaluates.

    Wall time would refuse cheap objects on a machine that stalls. `clock` returns the thread's processor time
    in seconds. `pauses`: yield the interpreter to other threads; not for the event loop's thread, because the
    others wait for it.
    """

    def __init__(
        self, budget_s: float, clock: Callable[[], float] = time.thread_time, *, pauses: bool = True
    ) -> None:
        self.budget_s = budget_s
        self._clock = clock
        now = clock()
        self._deadline = now + budget_s
        self._pause_at = now + _PAUSE_EVERY_S if pauses else math.inf

    @property
    def shown(self) -> str:
        """The budget, as messages show it."""
        return f"{self.budget_s:g} s"

    @property
    def is_exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self._clock() > self._deadline

    def tick(self) -> None:
        """Pause now and then to yield to other threads. Raises `ValueError` once the budget is used up."""
        now = self._clock()
        if now > self._deadline:
            raise ValueError("no processor time is left")
        if now > self._pause_at:
            self._pause_at = now + _PAUSE_EVERY_S
            # The event loop wants the interpreter several times for one request, so one turn is not enough.
            time.sleep(_PAUSE_S)


class _Current(threading.local):
    meter: Meter | None = None


_current = _Current()


@contextmanager
def metered(meter: Meter | None) -> Iterator[None]:
    """Let `tick` check this budget in the present thread."""
    before, _current.meter = _current.meter, meter
    try:
        yield
    finally:
        _current.meter = before


def tick(condition: bool) -> bool:
    """The condition of a loop's next iteration, unchanged. Raises `ValueError` once the budget is used up."""
    if _current.meter is not None:
        _current.meter.tick()
    return condition


TICK = "k8s.tick"
"""The function that every loop calls with its condition, and that returns it."""


def rewrite(serialized: bytes) -> bytes | None:
    """The serialized expression with our functions in it; None without a change."""
    classes = ast.messages()
    outer = classes["Any"].FromString(serialized)
    checked = classes["Checked"].FromString(outer.value)
    parts = list(ast.parts(checked.root))
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
    parts = _split_parts(text, separator, most)
    if len(parts) > _MOST_PARTS:
        raise ValueError(f"split: more than {_MOST_PARTS} parts")
    return parts


def _split_parts(text: str, separator: str, most: int) -> list[str]:
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


def _insert_entry(made: Mapping[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    return _insert_entries(made, {key: value})


def _insert_entries(made: Mapping[Any, Any], more: Mapping[Any, Any]) -> dict[Any, Any]:
    for key in more:
        if key in made:
            raise ValueError(f"insert failed: key {key} already exists")
    return {**made, **more}


_TWO_TEXTS, _TWO_LISTS = ("string", "string"), ("list(dyn)", "list(dyn)")

REPLACEMENTS: Mapping[str, Sequence[Function]] = {
    "contains": [member(*_TWO_TEXTS, gives="bool", run=lambda text, part: part in text)],
    "indexOf": [
        member(*_TWO_TEXTS, gives="int", run=_index_of),
        member(*_TWO_TEXTS, "int", gives="int", run=_index_of),
        member("list(dyn)", "dyn", gives="int", run=FUNCTIONS["indexOf"][0].run),
    ],
    "lastIndexOf": [
        member(*_TWO_TEXTS, gives="int", run=_last_index_of),
        member(*_TWO_TEXTS, "int", gives="int", run=_last_index_of),
        member("list(dyn)", "dyn", gives="int", run=FUNCTIONS["lastIndexOf"][0].run),
    ],
    "replace": [
        member(*_TWO_TEXTS, "string", gives="string", run=_replace),
        member(*_TWO_TEXTS, "string", "int", gives="string", run=_replace),
    ],
    "split": [
        member(*_TWO_TEXTS, gives="list(string)", run=_split),
        member(*_TWO_TEXTS, "int", gives="list(string)", run=_split),
    ],
    "sets.contains": [
        plain(*_TWO_LISTS, gives="bool", run=lambda items, part: _as_set(part) <= _as_set(items))
    ],
    "sets.equivalent": [
        plain(*_TWO_LISTS, gives="bool", run=lambda items, other: _as_set(items) == _as_set(other))
    ],
    "sets.intersects": [
        plain(
            *_TWO_LISTS,
            gives="bool",
            run=lambda items, other: not _as_set(items).isdisjoint(_as_set(other)),
        )
    ],
    # The library lacks it, and its own macros `transformMap` and `transformMapEntry` call it.
    "cel.@mapInsert": [
        plain("map(dyn)", "dyn", "dyn", gives="map(dyn)", run=_insert_entry),
        plain("map(dyn)", "map(dyn)", gives="map(dyn)", run=_insert_entries),
    ],
}
"""The functions that ours replace, by their names in CEL."""
RENAMED = {name: f"k8s.{name.removeprefix('cel.@')}" for name in REPLACEMENTS}
"""The names of the replacements."""
