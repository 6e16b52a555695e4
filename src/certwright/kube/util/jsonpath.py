"""JSONPath of printer columns, selectable fields and `certwright get`: from an object to the matching values.

A port of client-go's package, without its templates: names, `['a']`, indices, slices, unions, `*`, `..`,
and filters on the items of a list such as `[?(@.type == "Ready")]`. As there, a path that meets a value of
another type than it needs has no result at all, `['a.b']` are two names, and `["a"]` is invalid.

Source: client-go `util/jsonpath`; Kubernetes documentation, "JSONPath Support".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Step = Callable[[list[Any]], list[Any]]
"""From the current values to the next ones. Raises `_Failed`."""

Find = Callable[[Any], Any]
"""From an object to the first matching value, or `MISSING`."""


FindAll = Callable[[Any], list[Any]]
"""From an object to all matching values."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""No value matches the path (null is a value)."""


class _Failed(Exception):
    """A value has another type than a step needs. `values` is what an existence filter goes on with."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self.values = values


_NAME = re.compile(r"\.((?:\\.|[^.\[\\])+)")
_FIELD = re.compile(r"(?:\\.|[^ \t\r\n.,\[\]$@{}\\])*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[\d.]*")
_WORD = re.compile(r"[^ \t\r\n.,\[\]$@{}]*")
_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([0-7]{3})|(.?))", re.DOTALL)
_ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


def compile_path(path: str) -> Find:
    """Compile a path such as `.status.conditions[?(@.type=="Ready")].status`.

    Raises `ValueError` with the syntax error.
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
    steps = _Parser(path).steps()

    def find_all(value: Any) -> list[Any]:
        try:
            return _run(steps, [value])
        except _Failed:
            return []

    return find_all


def simple_keys(path: str) -> tuple[str, ...]:
    """The keys of a path that consists of plain names only (`.spec.issuerRef.name`).

    Raises `ValueError` for any other path.
    """
    keys, at = [], 0
    while match := _NAME.match(path, at):
        keys.append(re.sub(r"\\(.)", r"\1", match[1]))
        at = match.end()
    if not keys or at != len(path):
        raise ValueError(f"{path!r} is not a path of plain names such as .spec.name")
    return tuple(keys)


def _run(steps: list[Step], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
    return values


class _Parser:
    """Reads one expression, up to its end or a closing brace."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"{self._text!r} is not understood: {problem} at character {self._at + 1}")

    def steps(self) -> list[Step]:
        """Raises `ValueError`."""
        steps: list[Step] = []
        while self._at < len(self._text) and self._text[self._at] != "}":
            start = self._at
            if self._text.startswith("[?(", start):
                steps.append(self._filter())
            elif self._text.startswith("..", start):
                if steps and steps[-1] is _descend:
                    raise self._error("two recursive descents")
                self._at += 2
                steps.append(_descend)
                following = self._text[self._at : self._at + 1]
                if following == "_" or following.isalnum():
                    steps.append(self._field())
            else:
                self._at += 1
                steps += self._simple(self._text[start])
        return steps

    def _simple(self, mark: str) -> list[Step]:
        if mark in " @$":
            return []
        if mark == "[":
            return self._brackets()
        if mark in "\"'":
            return [_constant(self._quoted(mark))]
        if mark == ".":
            return [self._field()]
        self._at -= 1
        if mark in "+-" or mark.isdigit():
            return [_constant(self._number())]
        if mark == "_" or mark.isalnum():
            word = self._match(_WORD)
            return [_constant(word == "true") if word in ("true", "false") else _fail]
        raise self._error("unexpected character")

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, "the pattern matches an empty text"
        self._at = match.end()
        return match[0]

    def _field(self) -> Step:
        name = self._match(_FIELD)
        return _every if name == "*" else _child(name.replace("\\", ""))

    def _number(self) -> int | float:
        text = self._match(_NUMBER)
        try:
            return float(text) if "." in text or len(text) > 19 else int(text)
        except ValueError:
            raise self._error("invalid number") from None

    def _quoted(self, quote: str) -> str:
        start = self._at
        while True:
            end = self._text.find(quote, self._at)
            if end < 0 or "\n" in self._text[start:end]:
                raise self._error("a quote that is not closed")
            self._at = end + 1
            if self._text[end - 1] != "\\":
                return _ESCAPE.sub(lambda match: self._unescaped(match, quote), self._text[start:end])

    def _unescaped(self, match: re.Match[str], quote: str) -> str:
        plain, octets, character, octal, _ = match.groups()
        if plain in ("'", '"') and plain != quote:
            raise self._error("invalid escape")
        if plain:
            return _ESCAPES.get(plain, plain)
        digits = octets or character
        if not digits and not octal:
            raise self._error("invalid escape")
        return chr(int(digits, 16) if digits else int(octal, 8))

    def _brackets(self) -> list[Step]:
        end = self._text.find("]", self._at)
        if end < 0 or "\n" in self._text[self._at : end]:
            raise self._error("a bracket that is not closed")
        inside = self._text[self._at : end]
        if "," in inside:
            union = [_Parser(f"[{part.strip(' ')}]").steps() for part in inside.split(",")]
            self._at = end + 1
            return [lambda values: [value for steps in union for value in _run(steps, values)]]
        if key := _KEY.fullmatch(inside):
            self._at = end + 1
            return _Parser(f".{key[1]}").steps()
        bounds = _SLICE.fullmatch(":" if inside == "*" else inside)
        if bounds is None or "-" in (bounds[1], (bounds[2] or "")[1:], (bounds[3] or "")[1:]):
            raise self._error("an invalid index")
        self._at = end + 1
        numbers = [int(text.lstrip(":")[:20]) if text and text != ":" else None for text in bounds.groups()]
        return [_slice(numbers[0], numbers[1], numbers[2], is_index=bounds[2] is None)]

    def _filter(self) -> Step:
        self._at += len("[?(")
        start, pair, is_closed = self._at, "", False
        while True:
            mark = self._text[self._at : self._at + 1]
            if mark in ("", "\n"):
                raise self._error("a filter that is not closed")
            self._at += 1
            if mark in "\"'" and not pair:
                pair = mark
            elif mark == pair and self._text[self._at - 2] != "\\":
                is_closed = True
            elif mark == ")" and bool(pair) == is_closed:
                break
        if self._text[self._at : self._at + 1] != "]":
            raise self._error("a filter that is not closed")
        inside = self._text[start : self._at - 1]
        self._at += 1
        if comparison := _COMPARISON.fullmatch(inside):
            left, operator, right = comparison.groups()
            return _compare(_Parser(left).steps(), operator, _Parser(right).steps())
        return _exists(_Parser(inside).steps())


def _constant(value: Any) -> Step:
    return lambda values: [value] * (1 if isinstance(value, str) else len(values))


def _fail(values: list[Any]) -> list[Any]:
    raise _Failed(values)


def _child(key: str) -> Step:
    return lambda values: [value[key] for value in values if type(value) is dict and key in value]


def _every(values: list[Any]) -> list[Any]:
    return [item for value in values for item in _members(value)]


def _members(value: Any) -> list[Any]:
    if type(value) is dict:
        return list(value.values())
    return value if type(value) is list else []


def _descend(values: list[Any]) -> list[Any]:
    found, waiting = [], list(reversed(values))
    while waiting:
        value = waiting.pop()
        # Of a text, Go descends to the octets.
        if members := _members(value) or (type(value) is str and value):
            found.append(value)
            waiting += reversed(members) if type(members) is list else ()
    return found


def _slice(start: int | None, end: int | None, step: int | None, *, is_index: bool) -> Step:
    def run(values: list[Any]) -> list[Any]:
        found = list[Any]()
        for value in values:
            if value is None:
                continue
            if type(value) is not list:
                raise _Failed(values)
            length = len(value)
            first = start or 0
            last = first + 1 if is_index else length if end is None else end
            first += length if first < 0 else 0
            last += length if last < 0 or (last == 0 and is_index) else 0
            if first == last:
                return found
            if not (0 <= first < length and first < last <= length) or (step is not None and step <= 0):
                raise _Failed(values)
            found += value[first : last : step or 1]
        return found

    return run


def _exists(steps: list[Step]) -> Step:
    def holds(item: Any) -> bool:
        try:
            return bool(_run(steps, [item]))
        except _Failed as failure:
            return bool(failure.values)

    return lambda values: [item for value in values for item in _list(value, values) if holds(item)]


def _list(value: Any, values: list[Any]) -> list[Any]:
    if type(value) is not list:
        raise _Failed(values)
    return value


def _compare(left: list[Step], operator: str, right: list[Step]) -> Step:
    def holds(item: Any, values: list[Any]) -> bool:
        lefts = _run_or_fail(left, item, values)
        rights = _run_or_fail(right, item, values) if lefts else []
        return bool(rights) and _holds(lefts[0], operator, rights[0], values)

    return lambda values: [item for value in values for item in _list(value, values) if holds(item, values)]


def _run_or_fail(steps: list[Step], item: Any, values: list[Any]) -> list[Any]:
    try:
        results = _run(steps, [item])
    except _Failed:
        raise _Failed(values) from None
    if len(results) > 1:
        raise _Failed(values)
    return results


def _holds(left: Any, operator: str, right: Any, values: list[Any]) -> bool:
    # Go compares only values of one type, and only equality of booleans.
    ordered = type(left) in (int, float, str)
    if type(left) is not type(right) or not (ordered or (type(left) is bool and operator in ("==", "!="))):
        raise _Failed(values)
    match operator:
        case "==":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case ">=":
            return bool(left >= right)
    raise _Failed(values)
