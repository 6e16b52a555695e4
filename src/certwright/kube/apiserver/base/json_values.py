"""JSON values: numbers as Go reads them, comparison, and errors about types."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from certwright.kube.api.errors import BadRequest
from certwright.kube.api.yaml_codec import may_exceed_int64

Json = dict[str, Any]
"""A JSON object."""

_encode = msgspec.json.Encoder().encode
encode_sorted = msgspec.json.Encoder(order="deterministic").encode
"""The same bytes for equal values, in any order of their members."""

_INT64 = range(-(2**63), 2**63)
_TOO_LARGE = "a number is too large for 64 bits"


def whole_as_integer(text: str) -> int | float:
    """A number with a point or an exponent, as Go writes it after an untyped read: a whole one as an
    integer. Raises `ValueError` beyond float64."""
    value = _finite(text)
    return int(value) if value.is_integer() and int(value) in _INT64 else value


def _finite(text: str) -> float:
    # msgspec's own parsing of numbers such as 1e300 takes 7 µs for each.
    if math.isinf(value := float(text)):
        raise ValueError(_TOO_LARGE)
    return value


_decode_untyped = msgspec.json.Decoder(float_hook=whole_as_integer).decode
_decode_typed = msgspec.json.Decoder(float_hook=_finite).decode


def decode_as_go(text: bytes, *, typed: bool = False) -> Any:
    """A JSON value as Go decodes it without a type: whole numbers within int64 are integers, others floats.

    `typed`: for a type of Go, where 1.0 is no integer. Raises `msgspec.MsgspecError` and `ValueError`.
    """
    return with_bounded_integers(_decode_typed(text) if typed else _decode_untyped(text), text)


def with_bounded_integers(value: Any, text: bytes) -> Any:
    """A value decoded from `text`, with integers beyond int64 as floats; changes it in place.

    Raises `ValueError` for an integer beyond float64, because Go decodes no list that contains it.
    """
    return _bounded(value) if may_exceed_int64(text) else value


def _bounded(value: Any) -> Any:
    if type(value) is int and value not in _INT64:
        try:
            return float(value)
        except OverflowError:
            raise ValueError(_TOO_LARGE) from None
    members = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, item in members:
        if type(item) in (int, dict, list):
            value[key] = _bounded(item)
    return value


def same(left: object, right: object) -> bool:
    """Whether two JSON values are equal. Python alone treats 1, 1.0 and true as equal."""
    if left != right:
        return False
    # Names are nearly always in the same order; sorting a hundred thousand takes long.
    return type(left) is str or _encode(left) == _encode(right) or encode_sorted(left) == encode_sorted(right)


_TYPES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def wrong_type(path: str, expected: str, value: object) -> str:
    """The message about a value of a wrong type: `spec.rules: expected a list, got a string`.

    `expected` has its article. The value is never quoted: it may be confidential.
    """
    return f"{path}: expected {expected}, got {_TYPES[type(value)]}"


def mismatch(error: msgspec.ValidationError, path: str = "") -> str:
    """msgspec's error about a part of the value at `path`: `metadata.labels[...]: expected str, got int`."""
    text, _, inner = str(error).partition(" - at `$")
    where = (path + inner.rstrip("`")).removeprefix(".")
    return f"{where}: {text[0].lower()}{text[1:].replace('`', '')}".removeprefix(": ")


class NotOfKind(BadRequest):
    """A part of an object has another type than its kind defines. The message is in Kubernetes' words;
    `detail` is the reason alone, for errors that quote it."""

    def __init__(self, kind: str, version: str, detail: str, *, expected: str = "") -> None:
        super().__init__(f'{kind} in version "{version}" cannot be handled as a {expected or kind}: {detail}')
        self.detail = detail
