"""Quantities as Kubernetes writes them: `1000m` is `1`, `1024Ki` is `1Mi`, `0.5` is `500m`.

It decodes and encodes a quantity whenever it reads or writes an object of a built-in kind. A canonical
quantity stays unchanged.

Source: Kubernetes API reference, Quantity resource; apimachinery `pkg/api/resource`.
"""

from __future__ import annotations

import re

from certwright.kube.util.caches import remembering

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
        if _is_kept_binary(integer, part, power):
            return text
        magnitude = _binary(int(digits), len(part), power)
    else:
        scale = (int(exponent) if exponent else _DECIMAL[suffix]) - len(part)
        kept = len(digits) <= _FAST_DIGITS and scale >= _NANO and scale % 3 == 0
        if kept and not digits.endswith("000") and digits[0] != "0":
            return text
        magnitude = _decimal(int(digits), scale, as_exponent=bool(exponent))
    return f"-{magnitude}" if negative and magnitude != "0" else magnitude


def _is_kept_binary(integer: str, part: str, power: int) -> bool:
    room = _FAST_BINARY_DIGITS - len(integer) - 3 * power - 1
    return not part and room >= 0 and bool(int(integer) & 7)


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
