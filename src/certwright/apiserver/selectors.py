"""Label and field selectors: which objects a list or a watch is about.

Source: Kubernetes documentation, "Labels and Selectors" and "Field Selectors"; grammar of apimachinery
`pkg/labels/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from certwright.resources.errors import BadRequest
from certwright.resources.naming import check_label_key, check_label_value

_TOKEN = re.compile(r"\s*(?:(?P<symbol>==|!=|[=,()!<>])|(?P<word>[^\s=,()!<>]+))")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector. `operator` is `in`, `notin`, `exists`, `!`, `gt` or `lt`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        try:
            number = int(value or "")
        except ValueError:
            return False
        (bound,) = (int(text) for text in self.values)
        return number > bound if self.operator == "gt" else number < bound


class _Parser:
    """The recursive-descent parser of label selectors."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match[0].strip() for match in _TOKEN.finditer(text) if match[0].strip()]
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _fail(self, detail: str) -> BadRequest:
        return BadRequest(f'unable to parse requirement: {detail} in label selector "{self._text}"')

    def parse(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        while self._peek():
            found.append(self._requirement())
            if self._peek() and self._take() != ",":
                raise self._fail(f'found "{self._tokens[self._at - 1]}", expected: ","')
            if not self._peek() and self._tokens[-1] == ",":
                raise self._fail("found '', expected: identifier after ','")
        return tuple(found)

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._take()
            return Requirement(self._key(), "!")
        key = self._key()
        match self._peek():
            case "" | ",":
                return Requirement(key, "exists")
            case "=" | "==":
                self._take()
                return Requirement(key, "in", frozenset({self._value()}))
            case "!=":
                self._take()
                return Requirement(key, "notin", frozenset({self._value()}))
            case "in" | "notin":
                return Requirement(key, self._take(), self._set())
            case "<" | ">":
                return Requirement(key, "gt" if self._take() == ">" else "lt", frozenset({self._number()}))
            case other:
                raise self._fail(f'found "{other}", expected: in, notin, =, ==, !=, gt, lt')

    def _key(self) -> str:
        key = self._take()
        if detail := check_label_key(key):
            raise self._fail(f'key "{key}": {detail}')
        return key

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._take()
        if detail := check_label_value(value):
            raise self._fail(f'value "{value}": {detail}')
        return value

    def _number(self) -> str:
        value = self._take()
        if not value.lstrip("-").isdecimal():
            raise self._fail(f'for "gt" and "lt" the value must be an integer, not "{value}"')
        return value

    def _set(self) -> frozenset[str]:
        if self._take() != "(":
            raise self._fail("expected: '('")
        values: set[str] = set()
        while True:
            values.add("" if self._peek() in (",", ")") else self._value())
            match self._take():
                case ")":
                    return frozenset(values)
                case ",":
                    continue
                case other:
                    raise self._fail(f'found "{other}", expected: "," or ")"')


@lru_cache(maxsize=512)
def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector; empty for an empty one. Raises `BadRequest`."""
    return _Parser(text).parse()


def labels_match(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Whether all requirements hold."""
    return all(requirement.matches(labels) for requirement in requirements)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: `path` equals (or, with `negated`, does not equal) `value`."""

    path: str
    value: str
    negated: bool = False

    def matches(self, value: str) -> bool:
        """Whether a field of that value meets the term."""
        return (value == self.value) is not self.negated


@lru_cache(maxsize=512)
def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """The terms of a field selector; empty for an empty one. Raises `BadRequest`."""
    return tuple(_field_term(part, text) for part in _split_escaped(text) if part)


_TERM = re.compile(r"((?:\\.|[^\\=!])*)(!=|==|=)(.*)", re.DOTALL)


def _field_term(part: str, text: str) -> FieldTerm:
    match = _TERM.fullmatch(part)
    if match is None:
        raise BadRequest(f'invalid selector: "{text}"; can\'t understand "{part}"')
    return FieldTerm(_unescape(match[1]).strip(), _unescape(match[3]), negated=match[2] == "!=")


def _split_escaped(text: str) -> list[str]:
    """Split at commas that no backslash stands before."""
    return re.findall(r"(?:\\.|[^\\,])+", text, re.DOTALL)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def check_supported(terms: tuple[FieldTerm, ...], supported: Callable[[str], bool]) -> None:
    """Raise `BadRequest` for the first term whose path is not one that can be selected by."""
    for term in terms:
        if not supported(term.path):
            raise BadRequest(f"field label not supported: {term.path}")
