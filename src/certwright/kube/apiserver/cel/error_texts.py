"""Error messages of CEL: the library's for invalid expressions, Kubernetes' for failed evaluations.

Source: cel-go `interpreter`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_POSITION = re.compile(r"<input>:(\d+):")
_OWN_TYPE = re.compile(r"(undefined field '[^']*') not found in struct '[^']*'")
"""Names a type that was made for the check only."""


def of_refusal(text: str, *, wrapped: bool = False) -> str:
    """The library's messages for an expression that does not compile.

    `wrapped`: the expression began on the second line of what was compiled.
    """
    text = text.removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    text = _OWN_TYPE.sub(r"\1", text)
    return _POSITION.sub(lambda m: f"<input>:{int(m[1]) - 1}:", text) if wrapped else text


_STATUS = re.compile(r"^[A-Z_]+: ")
_CODE = re.compile(r" \[[A-Z_]+\]$")
_IN_KUBERNETES: tuple[tuple[re.Pattern[str], str], ...] = (
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
    for pattern, words in _IN_KUBERNETES:
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
    tokens = [(match.start(), match[0]) for match in _QUOTED.finditer(expression)]
    return [(place, "unsupported syntax: '`'") for place, text in tokens if text == "`"][:1]


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
