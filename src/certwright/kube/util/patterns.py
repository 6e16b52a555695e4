"""Regular expressions of others, in RE2's syntax as in Go, matched in linear time.

Source: https://github.com/google/re2/wiki/Syntax; Go `regexp/syntax`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import re2

_GO_ERRORS = {
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
}
"""RE2's errors in Go's words."""
# Escapes of RE2, one at a time, so that `\\C` is a backslash and a C.
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)


def _compile(pattern: str, *, never_capture: bool = False) -> Any:
    """Raises `ValueError` in Go's words, also for a pattern of which RE2 would need more than 8 MiB."""
    options = re2.Options()
    options.log_errors, options.never_capture = False, never_capture
    if any(match[1] == "C" for match in _ESCAPE.finditer(pattern)):
        # A single byte in RE2; Go has no such escape.
        raise ValueError("error parsing regexp: invalid escape sequence: `\\C`")
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        kind, _, where = error.args[0].decode(errors="replace").partition(": ")
        raise ValueError(f"error parsing regexp: {_GO_ERRORS.get(kind, kind)}: `{where}`") from None


def check_pattern(pattern: str) -> None:
    """Raises `ValueError` in Go's words for an invalid pattern, or one that needs backtracking."""
    _compile(pattern)


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a match of `pattern`, found in linear time whatever the pattern.

    Raises `ValueError` in Go's words for an invalid pattern, or one that needs backtracking.
    """
    if "(?" in pattern:
        check_pattern(pattern)  # RE2 finds duplicate names of groups only if it captures.
    search = _compile(pattern, never_capture=True).search
    # In bytes, because offsets in characters take longer than the match.
    return lambda text: search(text.encode(errors="replace")) is not None


def find_all(pattern: str, text: str) -> Iterator[str]:
    """The matches of `pattern` from left to right, as Go finds them. Raises `ValueError`."""
    end = -1
    for match in _compile(pattern).finditer(text):
        # "empty matches abutting a preceding match are ignored" (Go, package regexp)
        if match.end() > match.start() or match.start() != end:
            yield match.group(0)
        end = match.end()
