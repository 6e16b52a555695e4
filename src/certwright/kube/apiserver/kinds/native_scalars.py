"""Scalar values of built-in kinds: texts, numbers, base64, times, quantities.

Quantities are written as Kubernetes writes them (`1000m` is `1`, `1024Ki` is `1Mi`, `0.5` is `500m`); a
canonical one stays unchanged.

Source: apimachinery `pkg/apis/meta/v1`, `pkg/api/resource/quantity.go`, `pkg/util/intstr`.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from certwright.kube.apiserver.base.json_values import wrong_type
from certwright.kube.apiserver.base.schema_common import Path, show_path
from certwright.kube.util.caches import remembering

ReadScalar = Callable[[Any, Path], Any]
"""The value to store, for its path. Raises `Mismatch` and `Unreadable`."""


class Mismatch(Exception):
    """The value is of another type than `expected`. The text does not contain the value."""

    def __init__(self, value: Any, path: Path, expected: str) -> None:
        super().__init__(wrong_type(show_path(path), expected, value))


class Unreadable(Exception):
    """The value is invalid. The text does not contain it."""


def _string(value: Any, path: Path) -> Any:
    if type(value) is not str:
        raise Mismatch(value, path, "a string")
    return value


def _bool(value: Any, path: Path) -> Any:
    if type(value) is not bool:
        raise Mismatch(value, path, "a boolean")
    return value


def _integer(bits: int) -> ReadScalar:
    bound = 1 << (bits - 1)

    def read(value: Any, path: Path) -> Any:
        if type(value) is not int or not -bound <= value < bound:
            raise Mismatch(value, path, f"an integer of {bits} bits")
        return value

    return read


def _number(value: Any, path: Path) -> Any:
    if type(value) not in (int, float):
        raise Mismatch(value, path, "a number")
    return value


def _bytes(value: Any, path: Path) -> Any:
    if type(value) is not str:
        raise Mismatch(value, path, "a string in base64")
    if "\n" in value or "\r" in value:
        # As in Kubernetes, so that the output of `base64` can be pasted.
        value = value.replace("\n", "").replace("\r", "")
    try:
        binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise Unreadable(f"{show_path(path)}: the text is not valid base64") from None
    return value


_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_MICROS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def _moment(value: str, pattern: re.Pattern[str]) -> datetime | None:
    try:
        if pattern.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    return None


def _time(value: Any, path: Path) -> Any:
    moment = _moment(value, _SECONDS) if type(value) is str else None
    if moment is None:
        raise Unreadable(f"{show_path(path)}: expected a time in RFC 3339, e.g. 2026-01-02T15:04:05Z")
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(len("2006-01-02T15:04:05Z"), "0")


def _micro_time(value: Any, path: Path) -> Any:
    moment = _moment(value, _MICROS) if type(value) is str else None
    if moment is None:
        expected = "a time in RFC 3339 with microseconds, e.g. 2026-01-02T15:04:05.000000Z"
        raise Unreadable(f"{show_path(path)}: expected {expected}")
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


_QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _quantity(value: Any, _: Path) -> Any:
    quantity = canonical(str(value).strip()) if type(value) in (str, int, float) else None
    if quantity is None:
        raise Unreadable(_QUANTITY_TEXT)
    return quantity


def _int_or_string(value: Any, path: Path) -> Any:
    return value if type(value) is str else _integer(32)(value, path)


def _anything(value: Any, _: Path) -> Any:
    return value


READERS: Mapping[str, ReadScalar] = {
    "string": _string,
    "bool": _bool,
    "int32": _integer(32),
    "int64": _integer(64),
    "bytes": _bytes,
    "float64": _number,
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Raw": _anything,
}
"""The decoder of each type that is not a message."""


# Possessive, because a text may have a million digits.
_FORM = re.compile(
    r"(?P<sign>[+-]?)0*+(?P<whole>\d*+)(?:\.(?P<part>\d*+))?"
    r"(?:[eE](?P<exponent>[+-]?\d{1,9})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LARGEST_BINARY = 2**63 - 1
_NANO = -9
_MOST_DIGITS = 4_000  # Python refuses longer numbers because parsing takes quadratic time
_FAST_DIGITS, _FAST_BINARY_DIGITS = 18, 15
"""The maximum number of digits of a canonical text that Kubernetes keeps."""


@remembering(most=1024, longest=64)
def canonical(text: str) -> str | None:
    """The quantity as Kubernetes writes it; None for an invalid text.

    Digits below a nano are rounded up.
    """
    match = _FORM.fullmatch(text)
    if match is None or not text:
        return None
    suffix, exponent = match["suffix"] or "", match["exponent"]
    integer, part = match["whole"] or "0", match["part"] or ""
    negative, digits = match["sign"] == "-", integer + part
    if len(digits) > _MOST_DIGITS:
        return None
    if suffix in _BINARY[1:]:
        power = _BINARY.index(suffix)
        room = _FAST_BINARY_DIGITS - len(integer) - 3 * power - 1
        if not part and room >= 0 and int(integer) & 7:
            return text
        magnitude = _binary(int(digits), len(part), power)
    else:
        scale = (int(exponent) if exponent else _DECIMAL[suffix]) - len(part)
        kept = len(digits) <= _FAST_DIGITS and scale >= _NANO and scale % 3 == 0
        if kept and not digits.endswith("000") and digits[0] != "0":
            return text
        magnitude = _decimal(int(digits), scale, as_exponent=bool(exponent))
    return f"-{magnitude}" if negative and magnitude != "0" else magnitude


def _rounded(number: int, scale: int) -> tuple[int, int]:
    """At most nine places after the point, rounded away from zero."""
    too_fine = _NANO - scale
    if too_fine <= 0 or not number:
        return number, scale
    # Beyond all digits of the number there is only the smallest step.
    return (1 if too_fine > len(str(number)) else -(-number // 10**too_fine)), _NANO


def _decimal(number: int, scale: int, *, as_exponent: bool = False) -> str:
    number, scale = _rounded(number, scale)
    if not number:
        return "0"
    digits = str(number)
    zeros = len(digits) - len(digits.rstrip("0"))
    number, scale = number // 10**zeros, scale + zeros
    number, scale = number * 10 ** (scale % 3), scale - scale % 3
    if as_exponent:
        return f"{number}e{scale}" if scale else str(number)
    # Of what has no suffix Kubernetes forgets the size.
    return f"{number}{_DECIMAL_SUFFIX.get(scale, '')}"


def _binary(number: int, places: int, power: int) -> str:
    number, scale = _rounded(number * 1024**power, -places)
    integer, rest = divmod(number, 10**-scale)
    if integer >= _LARGEST_BINARY:
        integer, rest = _LARGEST_BINARY, 0
    if rest or integer < 1024:
        # Kubernetes turns to decimal suffixes, so that nothing is lost.
        return _decimal(number, scale) if rest or integer != _LARGEST_BINARY else str(integer)
    power = 0
    while integer % 1024 == 0:
        integer, power = integer // 1024, power + 1
    return f"{integer}{_BINARY[power]}"
