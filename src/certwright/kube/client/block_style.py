"""The YAML that programs write as kubeconfigs: mappings and lists in block style, with plain strings.

PyYAML reads everything else. Loading it costs every command a tenth of its processor time, see
docs/decisions/2026-11-23-commands-load-little.md.
Source: YAML 1.2.2, §8.2 "Block Collection Styles"; YAML 1.1 types, which PyYAML and kubectl resolve.
"""

from __future__ import annotations

import re
from typing import Any

# A plain scalar on one line that is a string in YAML 1.1: with a letter that no number, date, infinity or
# `on`, `off` and `no` has, and none of the words below.
_LINE = re.compile(
    r"( *)((?:- )*)([A-Za-z][A-Za-z-]*):"
    r"(?: (?=\S*[G-MP-SU-WYg-mp-su-wy])([A-Za-z0-9/_](?:[A-Za-z0-9+/=._:@-]*[A-Za-z0-9+/=._@-])?))?"
)
_NO_STRINGS = frozenset(("false", "n", "no", "null", "off", "on", "true", "y", "yes"))
_Line = tuple[int, bool, str, str | None]


class _Unusual(Exception):
    """The text is not in this style."""


def read_block_style(text: str) -> dict[str, Any] | None:
    """The mapping in `text`, as PyYAML reads it; None for what is not in this style."""
    try:
        lines = [_line(line) for line in text.removesuffix("\n").split("\n")]
        content, end = _mapping(lines, 0, 0)
    except _Unusual:
        return None
    return content if end == len(lines) else None


def _line(text: str) -> _Line:
    """Indentation of the key, whether a list item begins, key and value."""
    match = _LINE.fullmatch(text)
    if match is None or len(match[2]) > 2 or (match[4] or "").lower() in _NO_STRINGS:
        raise _Unusual
    return len(match[1]) + len(match[2]), bool(match[2]), match[3], match[4]


def _mapping(lines: list[_Line], start: int, indent: int) -> tuple[dict[str, Any], int]:
    """The mapping whose first key is on line `start`, and the number of the line after it."""
    content: dict[str, Any] = {}
    i = start
    while i < len(lines) and lines[i][0] == indent and (i == start or not lines[i][1]):
        _, _, key, value = lines[i]
        if key in content or key.lower() in _NO_STRINGS:
            raise _Unusual
        i += 1
        content[key] = value
        if value is None:
            content[key], i = _nested(lines, i, indent)
    return content, i


def _nested(lines: list[_Line], start: int, indent: int) -> tuple[Any, int]:
    """The list or mapping below a key with that indentation."""
    if start == len(lines):
        raise _Unusual
    inner, is_item, _, _ = lines[start]
    # A list may begin in the column of its key: its keys are then two columns further.
    if inner <= indent:
        raise _Unusual
    if not is_item:
        return _mapping(lines, start, inner)
    items, i = [], start
    while i < len(lines) and lines[i][0] == inner and lines[i][1]:
        item, i = _mapping(lines, i, inner)
        items.append(item)
    return items, i
