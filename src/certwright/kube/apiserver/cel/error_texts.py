"""Error messages of Kubernetes (the Go implementation of CEL) for errors of the C++ implementation.

Source: cel-go `checker/errors.go`, `common/error.go`, `interpreter`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_POSITION = re.compile(r"<input>:(\d+):")


_CHECKED_IN_GO = (
    (re.compile(r"\bgoogle\.protobuf\.Timestamp\b"), "timestamp"),
    (re.compile(r"\bgoogle\.protobuf\.Duration\b"), "duration"),
    (re.compile(r"\bgoogle\.protobuf\.Value\b"), "dyn"),
    (re.compile(r"\bnull_type\b"), "null"),
    (re.compile(r"\*error\*"), "!error!"),
    (re.compile(r"(undefined field '[^']*') not found in struct '[^']*'"), r"\1"),
    (
        re.compile(r"expression of type ('[^']*') cannot be the operand of a select operation"),
        r"type \1 does not support field selection",
    ),
)


_NO_OVERLOAD = re.compile(
    r"<input>:\d+:(\d+): found no matching overload for '(\w+)' applied to '\((.*?)\)'\n \| (.*)\n"
)


def _as_member(found: re.Match[str]) -> str:
    """The signature of a call in errors: `string.(int)`."""
    name, types, line = found[2], found[3], found[4]
    before = line[: int(found[1]) - 1].rstrip()
    if name.startswith("_") or not before.endswith(f".{name}"):
        return found[0]
    depth, end = 0, len(types)
    for index, mark in enumerate(types):
        depth += (mark == "(") - (mark == ")")
        if mark == "," and not depth:
            end = index
            break
    return found[0].replace(f"'({types})'", f"'{types[:end]}.({types[end + 2 :]})'", 1)


def _in_order(text: str) -> str:
    """The errors by position."""
    errors = _NEXT_ERROR.split(text)
    return "\n".join(
        sorted(errors, key=lambda error: [int(n) for n in _WHERE.findall(error[:60])[:1] for n in n])
    )


_NEXT_ERROR = re.compile(r"\n(?=ERROR: )")
_WHERE = re.compile(r"<input>:(\d+):(\d+)")


def of_refusal(text: str, *, wrapped: bool = False) -> str:
    """The messages for an expression that does not compile.

    `wrapped`: the expression began on the second line of what was compiled.
    """
    text = text.removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    for pattern, words in _CHECKED_IN_GO:
        text = pattern.sub(words, text)
    text = _in_order(_NO_OVERLOAD.sub(_as_member, text))
    return _POSITION.sub(lambda m: f"<input>:{int(m[1]) - 1}:", text) if wrapped else text


_STATUS = re.compile(r"^[A-Z_]+: ")
_CODE = re.compile(r" \[[A-Z_]+\]$")
_SAME_IN_GO: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r'Key not found in map : "?(.*?)"?'), r"no such key: \1"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"No matching overloads found.*", re.DOTALL), "no such overload"),
    (re.compile(r"Applying SELECT to non-message type|Invalid container type.*"), "no such overload"),
    (re.compile(r"Iteration budget exceeded"), "operation cancelled: actual cost limit exceeded"),
)


def of_failure(text: str) -> str:
    """The message for an expression whose evaluation failed."""
    text = _CODE.sub("", _STATUS.sub("", text))
    for pattern, words in _SAME_IN_GO:
        if match := pattern.fullmatch(text):
            return match.expand(words)
    return text


_QUOTED = re.compile(
    r"//[^\n]*|[rR]?(?:\"\"\"(?:\\.|.)*?\"\"\"|'''(?:\\.|.)*?'''"
    r"|\"[^\"\\\n]*+(?:\\.[^\"\\\n]*+)*+\"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+')|`",
    re.DOTALL,
)


def unsupported(expression: str) -> list[tuple[int, str]]:
    """Where the expression has names in backquotes, which Kubernetes does not allow."""
    found = [(match.start(), match[0]) for match in _QUOTED.finditer(expression)]
    return [(place, "unsupported syntax: '`'") for place, text in found if text == "`"][:1]


def at_places(expression: str, problems: Iterable[tuple[int, str]]) -> str:
    """Problems at places of an expression (as offsets in characters), with the line and a mark under it."""
    lines = expression.split("\n")
    texts = []
    for offset, text in problems:
        row, column = _place(lines, offset)
        shown = f"<input>:{row + 1}:{column + 1}: {text}"
        texts.append(f"ERROR: {shown}\n | {lines[row]}\n | {'.' * column}^")
    return "\n".join(texts)


def _place(lines: list[str], offset: int) -> tuple[int, int]:
    for row, line in enumerate(lines):
        if offset <= len(line):
            return row, offset
        offset -= len(line) + 1
    return len(lines) - 1, 0
