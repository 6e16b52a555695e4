"""Scalar values of built-in kinds: texts, numbers, base64, times, quantities.

Source: apimachinery `pkg/apis/meta/v1`,
`pkg/api/resource/quantity.go`, `pkg/util/intstr`.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from certwright.kube.apiserver.base.json_values import wrong_type
from certwright.kube.apiserver.base.schema_common import Path, show_path
from certwright.kube.apiserver.kinds.quantities import canonical
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


_AS_WRITTEN = len("2006-01-02T15:04:05Z")
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
    utc_time = _in_utc(value) if type(value) is str else None
    if utc_time is None:
        raise Unreadable(f"{show_path(path)}: expected a time in RFC 3339, e.g. 2026-01-02T15:04:05Z")
    return utc_time


# Many objects contain the same times.
@remembering(most=1024, longest=35)
def _in_utc(value: str) -> str | None:
    moment = _moment(value, _SECONDS)
    if moment is None:
        return None
    if len(value) == _AS_WRITTEN and value[-1] == "Z":
        return value
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(_AS_WRITTEN, "0")


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
    "Duration": _string,
    "Raw": _anything,
}
"""The decoder of each type that is not a message."""
