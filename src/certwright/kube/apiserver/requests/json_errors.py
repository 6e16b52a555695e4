"""JSON syntax errors in Go's words, because clients and their tests match on them.

Only refused texts come here. Source: Go `encoding/json`, scanner; RFC 8259.
"""

from __future__ import annotations

import re
from typing import Any

from certwright.kube.api.quoting import quoted

_SCANNED = 1 << 18
"""The maximum bytes to scan: the message is not worth more time."""
_MAX_DEPTH = 10_000
_END = "unexpected end of JSON input"
_BLANK = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS = re.compile(r"[0-9]+")
_ESCAPES = frozenset('bfnrt\\/"')
_HEX = frozenset("0123456789abcdefABCDEF")
_WORDS = {"t": "true", "f": "false", "n": "null"}


class _Wrong(Exception):
    """The text ends here, or continues with invalid JSON."""


def syntax_error(body: bytes) -> str:
    """The first error of a text; empty where there is none (or none in its beginning)."""
    # One character is one byte: Go names the byte.
    text = body[:_SCANNED].decode("latin-1")
    try:
        _Scanner(text).run()
    except _Wrong as error:
        cut = len(body) > _SCANNED and str(error) == _END
        return "" if cut else str(error)
    return ""


class _Scanner:
    """Scans a text without recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[str] = []

    def run(self) -> None:
        """Raises `_Wrong` at the first error."""
        self._value()
        while self._open:
            self._after_value()
        if mark := self._next():
            raise self._unexpected(mark, "after top-level value")

    def _next(self) -> str:
        """The next character that is no blank, empty at the end."""
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _unexpected(self, mark: str, where: str) -> _Wrong:
        if not mark:
            return _Wrong(_END)
        shown = {"'": "\\'", '"': '"'}.get(mark) or quoted(mark)[1:-1]
        return _Wrong(f"invalid character '{shown}' {where}")

    def _take(self) -> str:
        """The next character, whatever it is, empty at the end."""
        mark = self._text[self._at : self._at + 1]
        self._at += 1
        return mark

    def _take_within(self) -> str:
        """The next character of a number or word: Go tries a blank at the end."""
        return self._take() or " "

    def _value(self) -> None:
        """A scalar, or the beginning of a list or object up to its first value."""
        while True:
            mark = self._next()
            self._at += 1
            if mark not in ("[", "{"):
                self._scalar(mark)
                return
            self._open.append(mark)
            if len(self._open) > _MAX_DEPTH:
                raise self._unexpected(mark, "exceeded max depth")
            if self._next() == ("]" if mark == "[" else "}"):
                self._at += 1
                self._open.pop()
                return
            if mark == "{":
                self._key()

    def _after_value(self) -> None:
        inside, mark = self._open[-1], self._next()
        self._at += 1
        if mark == ("]" if inside == "[" else "}"):
            self._open.pop()
        elif mark != ",":
            where = "after array element" if inside == "[" else "after object key:value pair"
            raise self._unexpected(mark, where)
        else:
            if inside == "{":
                self._key()
            self._value()

    def _key(self) -> None:
        mark = self._next()
        self._at += 1
        if mark != '"':
            raise self._unexpected(mark, "looking for beginning of object key string")
        self._string()
        mark = self._next()
        self._at += 1
        if mark != ":":
            raise self._unexpected(mark, "after object key")

    def _scalar(self, mark: str) -> None:
        if mark == '"':
            self._string()
        elif mark in _WORDS:
            self._word(_WORDS[mark])
        elif mark == "-" or mark.isdigit():
            self._number(mark)
        else:
            raise self._unexpected(mark, "looking for beginning of value")

    def _word(self, word: str) -> None:
        for expected in word[1:]:
            if (mark := self._take_within()) != expected:
                raise self._unexpected(mark, f"in literal {word} (expecting '{expected}')")

    def _number(self, mark: str) -> None:
        if mark == "-":
            mark = self._take_within()
            if mark not in tuple("0123456789"):
                raise self._unexpected(mark, "in numeric literal")
        if mark != "0":
            self._digits()
        if self._text[self._at : self._at + 1] == ".":
            self._at += 1
            self._some_digits("after decimal point in numeric literal")
        if self._text[self._at : self._at + 1] in ("e", "E"):
            self._at += 1
            if self._text[self._at : self._at + 1] in ("+", "-"):
                self._at += 1
            self._some_digits("in exponent of numeric literal")

    def _digits(self) -> bool:
        match = _DIGITS.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return match is not None

    def _some_digits(self, where: str) -> None:
        if not self._digits():
            raise self._unexpected(self._take_within(), where)

    def _string(self) -> None:
        while True:
            match = _PLAIN.match(self._text, self._at)
            self._at = match.end() if match else self._at
            mark = self._take()
            if mark == '"':
                return
            if mark != "\\":
                raise self._unexpected(mark, "in string literal")
            self._escape()

    def _escape(self) -> None:
        mark = self._take_within()
        if mark == "u":
            for _ in range(4):
                if (digit := self._take_within()) not in _HEX:
                    raise self._unexpected(digit, "in \\u hexadecimal character escape")
        elif mark not in _ESCAPES:
            raise self._unexpected(mark, "in string escape code")


def without_surrogates(value: Any) -> Any:
    """Halves of surrogate pairs as Go reads them: U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(name): without_surrogates(item) for name, item in value.items()}
    return value
