"""Label and field selectors: how they are parsed, and which rows they select.

Source: Kubernetes documentation, "Labels and Selectors" and "Field Selectors"; grammar and words of
apimachinery `pkg/labels/selector.go` and `pkg/fields/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from certwright.kube.api.errors import BadRequest, FieldError, forbidden, invalid, required
from certwright.kube.api.naming import check_label_key, check_label_value
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json, labels_of
from certwright.kube.store.contract import Choice, Row
from certwright.kube.util.caches import remembering

# `findall` skips the white space between tokens in linear time; a pattern that begins with it would not.
_TOKEN = re.compile(r"==|!=|[=,()!<>]|[^ \t\r\n=,()!<>]+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_SYMBOLS = frozenset(("==", "!=", "=", ",", "(", ")", "!", "<", ">"))
_OPERATORS = {"in": "in", "=": "in", "==": "in", "notin": "notin", "!=": "notin", ">": "gt", "<": "lt"}


MAX_TERMS = 1_000
"""Requirements in a selector. Each object of a list is matched against all of them."""


class Requirement(msgspec.Struct, frozen=True):
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
                if value is None or not _INTEGER.fullmatch(value):
                    return False
                (bound,) = map(int, self.values)
                return int(value) > bound if self.operator == "gt" else int(value) < bound


class _NoSelector(Exception):
    """A syntax error in a selector."""


class _Parser:
    """The recursive-descent parser of label selectors. `in` and `notin` are words, or operators after a key;
    the empty word is the end."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next_token(self) -> str:
        word = self._peek()
        self._at += 1
        return word

    def parse(self) -> tuple[Requirement, ...]:
        """All requirements. Raises `_NoSelector`."""
        requirements: list[Requirement] = []
        while word := self._peek():
            if word in _SYMBOLS and word != "!":
                raise _NoSelector(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except _NoSelector as error:
                raise _NoSelector(f"unable to parse requirement: {error}") from None
            if (word := self._next_token()) not in (",", ""):
                raise _NoSelector(f"found '{word}', expected: ',' or 'end of string'")
            following = self._peek()
            if word and (not following or following in _SYMBOLS - {"!"}):
                raise _NoSelector(f"found '{following}', expected: identifier after ','")
        return tuple(requirements)

    def _requirement(self) -> Requirement:
        negated = self._peek() == "!"
        if negated:
            self._next_token()
        key = self._next_token()
        if not key or key in _SYMBOLS:
            raise _NoSelector(f"found '{key}', expected: identifier")
        if detail := check_label_key(key):
            raise _NoSelector(str(invalid("<nil>", key, detail)))
        if negated:
            return Requirement(key, "!")
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        word = self._next_token()
        operator = _OPERATORS.get(word)
        if operator is None:
            raise _NoSelector(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if word in ("in", "notin") else {self._value()}
        _check_values(key, operator, sorted(values))
        return Requirement(key, operator, frozenset(values))

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._next_token()
        if value in _SYMBOLS:
            raise _NoSelector(f"found '{value}', expected: identifier")
        return value

    def _set(self) -> set[str]:
        if (word := self._next_token()) != "(":
            raise _NoSelector(f"found '{word}' expected: '('")
        if self._peek() in _SYMBOLS - {",", ")"} or not self._peek():
            raise _NoSelector(f"found '{self._peek()}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            value = ""  # allowed, also as the last one
            if self._peek() not in (",", ")"):
                value = self._next_token()
                if not value or value in _SYMBOLS:
                    raise _NoSelector(f"found '{value}', expected: ',', or identifier")
            values.add(value)
            word = self._next_token()
            if word == ")":
                return values
            if word != ",":
                raise _NoSelector(f"found '{word}', expected: ',' or ')'")


def _check_values(key: str, operator: str, values: list[str]) -> None:
    wrong: list[FieldError] = []
    for at, value in enumerate(values):
        if operator in ("gt", "lt") and not _INTEGER.fullmatch(value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            wrong.append(invalid(f"values[{at}]", value, detail))
    for at, value in enumerate(values):
        if problem := check_label_value(value):
            wrong.append(invalid(f"values[{at}][{key}]", value, problem))
    if wrong:
        listed = ", ".join(str(error) for error in wrong)
        raise _NoSelector(listed if len(wrong) == 1 else f"[{listed}]")


@remembering(most=512, longest=1024)
def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector; empty for an empty one. Raises `BadRequest`."""
    try:
        return _bounded("label", _Parser(text).parse())
    except _NoSelector as error:
        raise BadRequest(str(error)) from None


_T = TypeVar("_T")


def _bounded(what: str, terms: Iterable[_T]) -> tuple[_T, ...]:
    """The terms, each once. Raises `BadRequest`."""
    unique_terms = tuple(dict.fromkeys(terms))
    if len(unique_terms) > MAX_TERMS:
        raise BadRequest(
            f"a {what} selector may have at most {MAX_TERMS} terms, this one has {len(unique_terms)}"
        )
    return unique_terms


def labels_match(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Whether the labels meet all requirements."""
    return all(requirement.matches(labels) for requirement in requirements)


class FieldTerm(msgspec.Struct, frozen=True):
    """One term of a field selector: `path` equals (or, with `negated`, does not equal) `value`."""

    path: str
    value: str
    negated: bool = False

    def matches(self, value: str) -> bool:
        """Whether a field of that value meets the term."""
        return (value == self.value) is not self.negated


@remembering(most=512, longest=1024)
def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """The terms of a field selector, in order; empty for an empty one. Raises `BadRequest`."""
    terms = []
    # Split at commas that no backslash stands before.
    for part in sorted(re.findall(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL)):
        match = _TERM.fullmatch(part)
        if match is None:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append(FieldTerm(match[1], _unescape(match[3]), negated=match[2] == "!="))
    return _bounded("field", terms)


_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)


def _unescape(text: str) -> str:
    """The value that is meant. Raises `BadRequest`."""

    def meant(match: re.Match[str]) -> str:
        sequence = match[0]
        if sequence in (",", "="):
            raise BadRequest(f"invalid field selector: unescaped character in value: {ord(sequence)}")
        if sequence[1:] not in ("\\", ",", "="):
            raise BadRequest(f"invalid field selector: invalid escape sequence: {sequence}")
        return sequence[1:]

    return re.sub(r"\\.|\\$|[,=]", meant, text, flags=re.DOTALL)


_OBJECT_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_of(selector: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """The terms of a valid LabelSelector (API reference, LabelSelector v1 meta)."""
    exact = [
        Requirement(key, "in", frozenset({value}))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    terms = [
        Requirement(
            term["key"],
            _OBJECT_OPERATORS.get(term["operator"], "exists"),
            frozenset(term.get("values") or ()),
        )
        for term in selector.get("matchExpressions") or ()
    ]
    return (*exact, *terms)


def selector_errors(selector: Mapping[str, Any], path: str) -> list[FieldError]:
    """The errors of a LabelSelector (API reference, LabelSelector v1 meta) of an object."""
    errors: list[FieldError] = []
    for key, value in (selector.get("matchLabels") or {}).items():
        errors += _term_errors(f"{path}.matchLabels", key, f"{path}.matchLabels", (value,))
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        at, values = f"{path}.matchExpressions[{index}]", term.get("values") or ()
        operator = term.get("operator", "")
        if operator not in _OBJECT_OPERATORS:
            errors.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
        errors += values_errors(f"{at}.values", operator, values)
        errors += _term_errors(f"{at}.key", term.get("key", ""), f"{at}.values", values)
    return errors


def values_errors(path: str, operator: str, values: Sequence[str]) -> list[FieldError]:
    """The errors of the values of a term of an object: whether its operator needs or allows any."""
    if operator in ("In", "NotIn") and not values:
        return [required(path, "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist") and values:
        return [forbidden(path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    return []


def _term_errors(key_path: str, key: str, values_path: str, values: Iterable[str]) -> list[FieldError]:
    errors = [invalid(key_path, key, text)] if (text := check_label_key(key)) else []
    for value in values:
        if text := check_label_value(value):
            errors.append(invalid(values_path, value, text))
    return errors


_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


def _stored_body(row: Row) -> bytes:
    return row.body


_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
"""Values that JSON writes as they are, or with `\\u` (RFC 8259 §7)."""


class Matcher(msgspec.Struct, frozen=True):
    """The selectors of one request. `trivial`: everything matches."""

    labels: tuple[Requirement, ...]
    of_key: tuple[FieldTerm, ...]
    of_body: tuple[FieldTerm, ...]
    readers: Mapping[str, str | Callable[[dict[str, Any]], str]] = msgspec.field(default_factory=dict)
    body: Callable[[Row], bytes] = _stored_body
    needles: tuple[bytes, ...] = ()
    """Texts that a matching body contains, unless it writes characters as `\\u`: few bodies are decoded."""

    @classmethod
    def of(cls, call: Call) -> Matcher:
        """Read the selectors of a request. Raises `BadRequest`."""
        if not call.query and not call.route.name:
            return _EVERYTHING
        labels = parse_labels(call.query.get("labelSelector", ""))
        fields = parse_fields(call.query.get("fieldSelector", ""))
        _check_paths(call.definition, fields)
        if call.route.name:  # a watch on one object's own path
            term = FieldTerm(_NAME, call.route.name)
            if fields and term not in fields:
                raise BadRequest("fieldSelector metadata.name doesn't match requested name")
            fields = fields or (term,)
        of_key = tuple(term for term in fields if term.path in (_NAME, _NAMESPACE))
        of_body = tuple(term for term in fields if term.path not in (_NAME, _NAMESPACE))
        readers = call.definition.field_readers
        if not labels and not fields:
            return _EVERYTHING
        # Paths are those of the requested version; other views have readers of the stored form.
        body = partial(objects.body, call.definition) if call.definition.custom else _stored_body
        needles = tuple(
            term.value.encode()
            for term in of_body
            if not term.negated
            and _PLAIN.fullmatch(term.value)
            and isinstance(readers.get(term.path, ""), str)
        )
        return cls(labels, of_key, of_body, readers, body, needles)

    @property
    def trivial(self) -> bool:
        """Whether there are no selectors."""
        return not (self.labels or self.of_key or self.of_body)

    @property
    def single_name(self) -> str:
        """The only name that can match; empty where there may be several."""
        return next((term.value for term in self.of_key if term.path == _NAME and not term.negated), "")

    def matches(self, row: Row) -> bool:
        """Whether the row is selected."""
        return self._meta_matches(row) and self.matches_body(row)

    @property
    def of_meta(self) -> Choice | None:
        """Selects rows by key and metadata; None where these do not matter."""
        return self._meta_matches if self.labels or self.of_key else None

    def _meta_matches(self, row: Row) -> bool:
        for term in self.of_key:
            if not term.matches(row.key.name if term.path == _NAME else row.key.namespace):
                return False
        return not self.labels or labels_match(self.labels, labels_of(row.meta))

    def matches_body(self, row: Row) -> bool:
        """Whether the row is selected, as far as its body matters."""
        if not self.of_body:
            return True
        body = self.body(row)
        if any(needle not in body for needle in self.needles) and b"\\u" not in body:
            return False
        content: dict[str, Any] = decode_json(b"{%b}" % body)
        return all(term.matches(self._value(content, term.path)) for term in self.of_body)

    def _value(self, content: dict[str, Any], path: str) -> str:
        reader = self.readers.get(path, path)
        return _text_at(content, reader) if isinstance(reader, str) else reader(content)


_EVERYTHING = Matcher((), (), ())


def _check_paths(definition: ResourceDefinition, fields: tuple[FieldTerm, ...]) -> None:
    """Raise `BadRequest` for the first term whose path is not a selectable field."""
    known = {_NAME, *definition.selectable_fields}
    if definition.namespaced or not definition.custom:
        known.add(_NAMESPACE)
    for term in fields:
        if term.path not in known:
            if definition.custom or definition.selectable_fields:
                raise BadRequest(f"field label not supported: {term.path}")
            raise BadRequest(f'"{term.path}" is not a known field selector: only "{_NAME}", "{_NAMESPACE}"')


def _text_at(content: Any, path: str) -> str:
    """The field as text; a missing one is empty, as Kubernetes has it."""
    for name in path.split("."):
        if type(content) is not dict:
            return ""
        content = content.get(name)
    if content is None:
        return ""
    if isinstance(content, bool):
        return "true" if content else "false"
    return str(content)
