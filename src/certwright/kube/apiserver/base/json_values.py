"""JSON values: comparison, and messages about their types."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode
encode_sorted = msgspec.json.Encoder(order="deterministic").encode
"""The same bytes for equal values, in any order of their members."""


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
