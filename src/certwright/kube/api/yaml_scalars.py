"""Types of plain YAML scalars, as kubectl reads them.

YAML 1.1 as Go's `yaml.v2` reads it (`resolve.go`), which is what kubectl does with a manifest; it is neither
YAML 1.2 nor what PyYAML does. Tried against kubectl itself in `tests/resources/test_manifests.py`.
"""

from __future__ import annotations

import re
from typing import Any, Final

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
