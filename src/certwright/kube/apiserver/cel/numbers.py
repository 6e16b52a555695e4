"""CEL libraries `quantity` and `semver`: quantities and semantic versions.

Source: Kubernetes API reference, Quantity; https://semver.org; apiserver `pkg/cel/library`.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from certwright.kube.apiserver.cel.overloads import Function, Raw, member, plain

# --- quantities -------------------------------------------------------------------------------------------

# Possessive, because a text may have a million digits.
_QUANTITY = re.compile(
    r"([+-]?(?:\d++\.?\d*+|\.\d++))(?:([eE])([+-]?\d++)|([KMGTPE]i|[numkMGTPE])?)", re.ASCII
)
_LONGEST = 4_000  # Integers of more digits take quadratic time.
_BINARY = {
    unit: Decimal(1024) ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_INT64 = range(-(2**63), 2**63)


def _parse(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or (match[3] and abs(int(match[3])) > 18):
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number = Decimal(match[1])
    if match[2]:
        return number.scaleb(int(match[3]))
    unit = match[4] or ""
    return number * _BINARY[unit] if unit in _BINARY else number.scaleb(_DECIMAL[unit])


def _quantity(text: str) -> Raw:
    return (_canonical(_parse(text)),)


def _canonical(value: Decimal) -> str:
    # Equal quantities have equal texts, so that CEL finds them equal.
    return format(value.normalize(), "f") if value else "0"


def _value(quantity: Raw) -> Decimal:
    return Decimal(quantity[0])


def _is_quantity(text: str) -> bool:
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def _fits(quantity: Raw) -> bool:
    value = _value(quantity)
    return value == value.to_integral_value() and int(value) in _INT64


def _as_integer(quantity: Raw) -> int:
    if not _fits(quantity):
        raise ValueError("cannot convert value to integer")
    return int(_value(quantity))


def _sign(value: Any) -> int:
    return int(value > 0) - int(value < 0)


def _operand(other: Raw | int) -> Decimal:
    return Decimal(other) if isinstance(other, int) else _value(other)


def _add(left: Raw, right: Raw | int) -> Raw:
    return (_canonical(_value(left) + _operand(right)),)


def _subtract(left: Raw, right: Raw | int) -> Raw:
    return (_canonical(_value(left) - _operand(right)),)


QUANTITY_FUNCTIONS: dict[str, list[Function]] = {
    "quantity": [plain("string", gives="Quantity", run=_quantity)],
    "isQuantity": [plain("string", gives="bool", run=_is_quantity)],
    "sign": [member("Quantity", gives="int", run=lambda raw: _sign(_value(raw)))],
    "isInteger": [member("Quantity", gives="bool", run=_fits)],
    "asInteger": [member("Quantity", gives="int", run=_as_integer)],
    "asApproximateFloat": [member("Quantity", gives="double", run=lambda raw: float(_value(raw)))],
    "add": [
        member("Quantity", "Quantity", gives="Quantity", run=_add),
        member("Quantity", "int", gives="Quantity", run=_add),
    ],
    "sub": [
        member("Quantity", "Quantity", gives="Quantity", run=_subtract),
        member("Quantity", "int", gives="Quantity", run=_subtract),
    ],
    "isGreaterThan": [
        member("Quantity", "Quantity", gives="bool", run=lambda left, right: _value(left) > _value(right))
    ],
    "isLessThan": [
        member("Quantity", "Quantity", gives="bool", run=lambda left, right: _value(left) < _value(right))
    ],
    "compareTo": [member("Quantity", "Quantity", gives="int", run=lambda a, b: _sign(_value(a) - _value(b)))],
}

# --- semantic versions ------------------------------------------------------------------------------------

_NUMBER = r"(?:0|[1-9]\d*)"
_MARK = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_MARK}(?:\.{_MARK})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)
_LOOSE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?", re.ASCII | re.DOTALL)

_Order = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]


def _normalized(text: str) -> str:
    """Without a leading `v` and leading zeros, with all three numbers."""
    match = _LOOSE.fullmatch(text)
    if match is None:
        return text
    return ".".join(str(int(match[number] or 0)) for number in (1, 2, 3)) + (match[4] or "")


def _semver(text: str, normalize: bool = False) -> Raw:
    version = _normalized(text) if normalize else text
    if not _SEMVER.fullmatch(version):
        if version.count(".") < 2:
            raise ValueError("No Major.Minor.Patch elements found")
        raise ValueError(f'Invalid semantic version "{text}"')
    return (version,)


def _is_semver(text: str, normalize: bool = False) -> bool:
    return _SEMVER.fullmatch(_normalized(text) if normalize else text) is not None


def _part(version: Raw, number: int) -> int:
    match = _SEMVER.fullmatch(version[0])
    assert match is not None, "made by semver()"
    return int(match[number])


def _order(version: Raw) -> _Order:
    match = _SEMVER.fullmatch(version[0])
    assert match is not None, "made by semver()"
    marks = tuple(
        (0, int(mark), "") if mark.isdigit() else (1, 0, mark) for mark in (match[4] or "").split(".") if mark
    )
    # A version with marks comes before the one without.
    return int(match[1]), int(match[2]), int(match[3]), not marks, marks


def _compare(version: Raw, other: Raw) -> int:
    a, b = _order(version), _order(other)
    return int(a > b) - int(a < b)


SEMVER_FUNCTIONS: dict[str, list[Function]] = {
    "semver": [
        plain("string", gives="Semver", run=_semver),
        plain("string", "bool", gives="Semver", run=_semver),
    ],
    "isSemver": [
        plain("string", gives="bool", run=_is_semver),
        plain("string", "bool", gives="bool", run=_is_semver),
    ],
    "isGreaterThan": [member("Semver", "Semver", gives="bool", run=lambda a, b: _compare(a, b) > 0)],
    "isLessThan": [member("Semver", "Semver", gives="bool", run=lambda a, b: _compare(a, b) < 0)],
    "compareTo": [member("Semver", "Semver", gives="int", run=_compare)],
    "major": [member("Semver", gives="int", run=lambda version: _part(version, 1))],
    "minor": [member("Semver", gives="int", run=lambda version: _part(version, 2))],
    "patch": [member("Semver", gives="int", run=lambda version: _part(version, 3))],
}
