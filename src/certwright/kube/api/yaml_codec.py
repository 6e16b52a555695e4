"""YAML: text to JSON values and back, as kubectl reads and prints it.

Reading is safe: no Python objects, bounded depth, bounded aliases, no duplicate keys. It composes PyYAML's C
event stream itself, without recursion. PyYAML's own loaders crash the process on deep nesting, keep the last
of two equal keys silently, and read scalars differently from kubectl, which has YAML 1.1 as Go's `yaml.v2`
reads it (`resolve.go`). Tried against kubectl itself in `tests/resources/test_manifests.py`.

Writing: block style, keys sorted, strings quoted only where they must be.

Source: YAML 1.1; `yaml.v2`.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

MAX_DEPTH: Final = 100
MAX_VALUES: Final = 100_000
"""Keys, values, lists and mappings of a text that a server reads: each takes some 3 µs, ten times as
long as in JSON."""
MAX_ALIASED_NODES: Final = 100_000
"""How many nodes aliases may add to one document: "billion laughs" stops here."""

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"


class YamlError(ValueError):
    """The text is not YAML that we read. `line` and `column` count from 1; 0 where they are not known."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class Loaded(msgspec.Struct, frozen=True):
    """One document: its value, where it begins, and, of YAML, where each mapping (by `id`) and each of its
    keys is, and each item of a list (its key is its number)."""

    content: Any
    line: int
    lines: dict[int, int] = {}
    key_lines: dict[tuple[int, str], int] = {}


class _Open(msgspec.Struct):
    """A mapping or sequence that has not ended yet."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    line: int
    key: str | None = None
    has_key: bool = False
    merges: list[tuple[Any, Event]] = msgspec.field(default_factory=list)


class Repeat(NamedTuple):
    """A duplicate key of a mapping, and its line, counted from 1."""

    line: int
    key: str


def load_all(text: str, repeats: list[Repeat] | None = None, *, most: int = sys.maxsize) -> Iterator[Loaded]:
    """Each document of `text` that is not empty. Raises `YamlError` at the first that cannot be read."""
    composer: _Composer | None = None
    for event in _events(text):
        if composer is None or isinstance(event, DocumentEndEvent):
            if composer is not None and composer.line:
                yield Loaded(composer.result, composer.line, composer.lines, composer.key_lines)
            composer = _Composer(repeats)
        if isinstance(event, NodeEvent):
            most -= 1
            if most < 0:
                raise _fail(event, "the text has too many values to be read as YAML; send it as JSON")
            composer.take(event)
        elif event.__class__ in _ENDS:
            composer.take(event)


_ENDS: Final = frozenset((yaml.MappingEndEvent, yaml.SequenceEndEvent))


def load(text: str, repeats: list[Repeat] | None = None, *, most: int = sys.maxsize) -> Any:
    """The first document of `text`; None if there is none. Raises `YamlError`.

    `repeats`: receives the duplicate keys, the last of which wins then; without it they are an error. `most`:
    how many keys and values the text may have.
    """
    return next((document.content for document in load_all(text, repeats, most=most)), None)


def _events(text: str) -> Iterator[Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise YamlError(_explain(error, text, line), line=line, column=column) from None
    except yaml.reader.ReaderError as error:
        # `position` counts bytes of UTF-8.
        before = text.encode(errors="replace")[: error.position].decode(errors="replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise YamlError(f"{error.reason}: remove that character", line=line, column=column) from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise YamlError("this is not UTF-8 text", line=line, column=1) from None


def _explain(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    problem = " ".join(part for part in (error.problem, error.context) if part)
    lines = text.splitlines()
    if "cannot start any token" in problem and 0 < line <= len(lines) and "\t" in lines[line - 1]:
        return "a tab cannot indent YAML; use spaces"
    return problem or "this is not YAML"


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _fail(event: Event, message: str) -> YamlError:
    column = event.start_mark.column + 1 if event.start_mark else 0
    return YamlError(message, line=_line(event), column=column)


class _Composer:
    """Composes one document, event by event."""

    def __init__(self, repeats: list[Repeat] | None = None) -> None:
        self.result: Any = None
        self.line = 0
        self.lines: dict[int, int] = {}
        self.key_lines: dict[tuple[int, str], int] = {}
        self._open: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._budget = MAX_ALIASED_NODES
        self._repeats = repeats

    def take(self, event: Event) -> None:
        """Process the next event of the document."""
        if isinstance(event, ScalarEvent):
            self._scalar(event)
        elif isinstance(event, AliasEvent):
            self._put(self._alias(event), event)
        elif isinstance(event, MappingStartEvent):
            self._start({}, event)
        elif isinstance(event, SequenceStartEvent):
            self._start([], event)
        else:
            self._end(event)

    def _start(self, value: dict[str, Any] | list[Any], event: NodeEvent) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _fail(event, f"nested deeper than {MAX_DEPTH} levels")
        if self._open and isinstance(self._open[-1].value, dict) and not self._open[-1].has_key:
            raise _fail(event, "a key must be a plain value, not a list or a mapping")
        self._open.append(_Open(value, event.anchor, _line(event)))

    def _end(self, event: Event) -> None:
        done = self._open.pop()
        if isinstance(done.value, dict):
            for source, at in done.merges:
                _merge(done.value, source, at)
            self.lines[id(done.value)] = done.line
        if done.anchor is not None:
            self._anchors[done.anchor] = done.value
        self._put(done.value, event, line=done.line)

    def _scalar(self, event: ScalarEvent) -> None:
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.value, dict) and not parent.has_key:
            self._key(parent, event)
            return
        value = _scalar_value(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        if parent is None and event.value == "" and value is None:
            return  # a document without content
        self._put(value, event)

    def _key(self, parent: _Open, event: ScalarEvent) -> None:
        if event.anchor is not None:
            self._anchors[event.anchor] = event.value
        if event.value == _MERGE and event.implicit[0]:
            parent.key, parent.has_key = None, True
            return
        key = _key_text(event)
        assert isinstance(parent.value, dict)
        if key in parent.value and self._repeats is not None:
            self._repeats.append(Repeat(_line(event), key))
        elif key in parent.value:
            raise _fail(event, f'duplicate key "{key}"; keep one of them')
        # Recorded immediately, so that a second one is detected before the value ends.
        parent.value[key] = None
        parent.key, parent.has_key = key, True
        self.key_lines[id(parent.value), key] = _line(event)

    def _put(self, value: Any, event: Event, *, line: int = 0) -> None:
        if not self._open:
            self.result, self.line = value, line or _line(event)
            return
        parent = self._open[-1]
        if isinstance(parent.value, list):
            self.key_lines[id(parent.value), str(len(parent.value))] = line or _line(event)
            parent.value.append(value)
        elif not parent.has_key:
            raise _fail(event, "a key must be written out, not taken from an alias")
        elif parent.key is None:
            parent.merges.append((value, event))
            parent.has_key = False
        else:
            parent.value[parent.key] = value
            parent.has_key = False

    def _alias(self, event: AliasEvent) -> Any:
        name = event.anchor
        if name not in self._anchors:
            raise _fail(event, f"undefined or recursive alias *{name}")
        # A copy: a change in one place must not affect the other.
        return self._copy(self._anchors[name], event, len(self._open))

    def _copy(self, value: Any, event: Event, depth: int) -> Any:
        self._budget -= 1
        if self._budget < 0:
            raise _fail(event, f"aliases add more than {MAX_ALIASED_NODES} values to this document")
        if depth > MAX_DEPTH:
            raise _fail(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            return {key: self._copy(item, event, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self._copy(item, event, depth + 1) for item in value]
        return value


def _merge(target: dict[str, Any], source: Any, event: Event) -> None:
    # YAML's merge key: keys of the mapping itself win, then the earlier of several sources.
    for part in source if isinstance(source, list) else [source]:
        if not isinstance(part, dict):
            raise _fail(event, "only a mapping, or a list of mappings, can be merged with <<")
        for key, value in part.items():
            target.setdefault(key, value)


def _scalar_value(event: ScalarEvent) -> Scalar:
    tag: str | None = event.tag
    try:
        if event.implicit[0] and tag != "!":
            return resolve(event.value)
        if event.implicit[1] or tag is None or not tag.startswith(_TAG):
            return str(event.value)
        return _tagged(tag.removeprefix(_TAG), str(event.value))
    except ValueError as error:
        raise _fail(event, str(error)) from None


def _tagged(tag: str, text: str) -> Scalar:
    """A scalar with an explicit tag such as `!!int`."""
    if tag == "binary":
        return base64.b64decode(text).decode(errors="replace")
    expected = _TAG_TYPES.get(tag)
    if expected is None:
        return text
    value = resolve(text)
    if not isinstance(value, expected) or (isinstance(value, bool) and tag != "bool"):
        raise ValueError(f'"{text}" is not of the type !!{tag} that is written before it')
    return value


_TAG_TYPES: Final[dict[str, tuple[type[object], ...]]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}


def _key_text(event: ScalarEvent) -> str:
    """A key as text: `1:` is "1" and `on:` is "true", as kubectl has it."""
    if event.value.lower().endswith((".inf", ".nan")):
        return event.value
    value = _scalar_value(event)
    if value is None:
        raise _fail(event, 'a key cannot be null; quote it if "null" or "~" is its name')
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_PLAIN_TAGS: Final = (True, False)
_QUOTED_TAGS: Final = (False, True)


def write_yaml(content: Any) -> str:
    """A JSON value as one YAML document, without `---`.

    Reading it again, with our reader or with kubectl, gives the same value. Raises `TypeError` for what JSON
    does not have.
    """
    text: str = yaml.emit(_stream(content), Dumper=yaml.CSafeDumper, allow_unicode=True, width=80)
    return text.removesuffix("...\n")


def _stream(content: Any) -> Iterator[Event]:
    yield StreamStartEvent()
    yield DocumentStartEvent(explicit=False)
    yield from _node(content)
    yield DocumentEndEvent(explicit=False)
    yield StreamEndEvent()


def _node(value: Any) -> Iterator[Event]:
    if isinstance(value, Mapping):
        yield MappingStartEvent(None, None, True, flow_style=not value)
        for key in sorted(value):
            yield _text(key)
            yield from _node(value[key])
        yield MappingEndEvent()
    elif isinstance(value, (list, tuple)):
        yield SequenceStartEvent(None, None, True, flow_style=not value)
        for item in value:
            yield from _node(item)
        yield SequenceEndEvent()
    else:
        yield _scalar(value)


def _scalar(value: Any) -> Event:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return ScalarEvent(None, None, _PLAIN_TAGS, "null")
    if isinstance(value, bool):
        return ScalarEvent(None, None, _PLAIN_TAGS, "true" if value else "false")
    if isinstance(value, (int, float)):
        return ScalarEvent(None, None, _PLAIN_TAGS, repr(value))
    raise TypeError(f"{type(value).__name__} has no place in YAML; give it JSON values only")


def _text(value: str) -> Event:
    if "\n" in value:
        return ScalarEvent(None, None, _QUOTED_TAGS, value, style="|")
    if value and is_plain_text(value):
        return ScalarEvent(None, None, (True, True), value)
    return ScalarEvent(None, None, _QUOTED_TAGS, value, style='"')


_LITERALS: Final[dict[str, bool | None]] = (
    dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True)
    | dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False)
    | dict.fromkeys(("", "~", "null", "Null", "NULL"), None)
)
_INFINITE: Final = frozenset(
    sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")
) | frozenset((".nan", ".NaN", ".NAN"))

_NUMBERLIKE: Final = frozenset("+-0123456789.")
_INT: Final = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_MAX_DIGITS: Final = 1100
_LIKE_A_NUMBER: Final = re.compile(r"[-+0-9.,:_eETZtz ]+|[-+]?0[xXoObB][0-9a-fA-F_]*")

Scalar = str | int | float | bool | None


class NotANumberForJson(ValueError):
    """Infinity or not-a-number: YAML has it, JSON has not."""


def resolve(text: str) -> Scalar:
    """The value of a plain scalar.

    Whole floats within 64 bits become integers, as they do on their way through JSON. Raises
    `NotANumberForJson` for `.inf` and `.nan`.
    """
    if text in _LITERALS:
        return _LITERALS[text]
    if text[0] not in _NUMBERLIKE:
        return text
    if text in _INFINITE:
        raise NotANumberForJson(f"{text} cannot be written as JSON; quote it if it is text")
    return _number(text.replace("_", ""), text)


def _number(digits: str, text: str) -> Scalar:
    # More digits than float64 has; Python takes quadratic time for very many.
    if len(digits) <= _MAX_DIGITS and (match := _INT.fullmatch(digits)):
        value = _integer(match[2])
        value = -value if match[1] == "-" else value
        if -(2**63) <= value < 2**63:
            return value
        if 0 < value < 2**64:
            # yaml.v2 has uint64, whose JSON Go then reads as a float.
            return float(value)
    if _FLOAT.fullmatch(digits):
        return tidy(float(digits), text)
    return text


def _integer(digits: str) -> int:
    prefix = digits[:2].lower()
    if prefix == "0x":
        return int(digits, 16)
    if prefix == "0b":
        return int(digits, 2)
    if len(digits) > 1 and digits[0] == "0":
        return int(digits.lower().replace("o", ""), 8)
    return int(digits)


def tidy(value: float, text: str) -> Scalar:
    """A float as it comes out of JSON: whole ones as integers, and those too large for a double as `text`."""
    if value in (float("inf"), float("-inf")):
        return text
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


_DIGITS_AS_ZERO: Final = bytes(ord("0") if chr(code) in "0123456789" else code for code in range(256))


def may_exceed_int64(text: bytes) -> bool:
    """Whether a JSON text may have an integer beyond int64, which has 19 digits or more."""
    return b"0" * 19 in text.translate(_DIGITS_AS_ZERO)


def exceeds_int64(value: Any) -> bool:
    """Whether a JSON value has an integer beyond int64."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is int and not -(2**63) <= item < 2**63:
            return True
        if type(item) is dict or type(item) is list:
            waiting += item.values() if type(item) is dict else item
    return False


def is_plain_text(text: str) -> bool:
    """Whether `text` without quotes would be read as that text, by kubectl and by stricter readers too."""
    if text in _LITERALS or text in ("<<", "=") or text in _INFINITE:
        return False
    if text[0] not in _NUMBERLIKE or text == ".":
        return True
    # Times, dates and sexagesimals are text for kubectl, but not for every reader: quote whatever looks like
    # a number, and whatever begins like a date.
    return not _LIKE_A_NUMBER.fullmatch(text)
