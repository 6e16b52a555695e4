"""Scalar values as Go decodes them: texts, numbers, base64, times, quantities.

Source: Go `encoding/json`, `encoding/base64`, `time`; apimachinery `pkg/apis/meta/v1`,
`pkg/api/resource/quantity.go`, `pkg/util/intstr`.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from certwright.kube.apiserver.base.field_errors import Path
from certwright.kube.apiserver.kinds.quantities import canonical
from certwright.kube.util.memo import remembering

ReadScalar = Callable[[Any, Path, str], Any]
"""The value to store, for its path and the name of its struct."""


def kind_of(value: Any) -> str:
    """Its JSON type, in Go's words."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "number"
    return "array" if isinstance(value, list) else "object"


class MapKey(str):
    """The key of a map in a path: shown where a member is unknown, and not where a type is wrong."""

    __slots__ = ()


class Mismatch(Exception):
    """The value is of another type. The text never contains the value, unless it is a number."""

    def __init__(self, value: Any, path: Path, message: str, expected: str, *, shown: str = "") -> None:
        struct, names = message.rpartition(".")[2], _names(path)
        where = f"field {struct}.{names} of type" if names else "value of type"
        into = f"Go struct {where}" if names else f"Go {where}"
        super().__init__(f"json: cannot unmarshal {shown or kind_of(value)} into {into} {expected}")


class Unreadable(Exception):
    """The value is of the right type but invalid."""


def _names(path: Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        if isinstance(step, str) and type(step) is not MapKey:
            steps.append(step)
    return ".".join(reversed(steps))


def _string(value: Any, path: Path, struct: str) -> Any:
    if type(value) is not str:
        raise Mismatch(value, path, struct, "string")
    return value


def _bool(value: Any, path: Path, struct: str) -> Any:
    if type(value) is not bool:
        raise Mismatch(value, path, struct, "bool")
    return value


def _integer(bits: int) -> ReadScalar:
    bound = 1 << (bits - 1)

    def read(value: Any, path: Path, struct: str) -> Any:
        if type(value) is not int or not -bound <= value < bound:
            shown = f"number {value}" if kind_of(value) == "number" else ""
            raise Mismatch(value, path, struct, f"int{bits}", shown=shown)
        return value

    return read


def _number(value: Any, path: Path, struct: str) -> Any:
    if kind_of(value) != "number":
        raise Mismatch(value, path, struct, "float64")
    return value


_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")


def _bytes(value: Any, path: Path, struct: str) -> Any:
    if type(value) is not str:
        raise Mismatch(value, path, struct, "[]uint8")
    if "\n" in value or "\r" in value:
        # Go's decoder skips line breaks, so that the output of `base64` can be pasted.
        value = value.replace("\n", "").replace("\r", "")
    try:
        binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        found = _NOT_BASE64.search(value)
        at = found.start() if found else len(value)
        raise Unreadable(f"illegal base64 data at input byte {at}") from None
    return value


_LAYOUT = "2006-01-02T15:04:05Z07:00"
_AS_WRITTEN = len("2006-01-02T15:04:05Z")
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_MICROS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def _no_text(value: Any) -> Unreadable:
    return Unreadable(f"json: cannot unmarshal {kind_of(value)} into Go value of type string")


def _moment(value: str, pattern: re.Pattern[str], layout: str) -> datetime:
    try:
        if pattern.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Unreadable(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')


def _time(value: Any, _: Path, __: str) -> Any:
    if type(value) is not str:
        raise _no_text(value)
    return _in_utc(value)


# Many objects contain the same times.
@remembering(most=1024, longest=35)
def _in_utc(value: str) -> str:
    moment = _moment(value, _SECONDS, _LAYOUT)
    if len(value) == _AS_WRITTEN and value[-1] == "Z":
        return value
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(_AS_WRITTEN, "0")


def _micro_time(value: Any, _: Path, __: str) -> Any:
    if type(value) is not str:
        raise _no_text(value)
    return _moment(value, _MICROS, _MICRO_LAYOUT).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


_QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _quantity(value: Any, _: Path, __: str) -> Any:
    found = canonical(str(value).strip()) if kind_of(value) in ("string", "number") else None
    if found is None:
        raise Unreadable(_QUANTITY_TEXT)
    return found


def _int_or_string(value: Any, path: Path, struct: str) -> Any:
    return value if type(value) is str else _integer(32)(value, path, struct)


def _anything(value: Any, _: Path, __: str) -> Any:
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
