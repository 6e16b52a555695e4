"""JSON comparison."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode
encode_sorted = msgspec.json.Encoder(order="deterministic").encode
"""The same bytes for equal values, in any order of their members."""


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal. Python alone treats 1, 1.0 and true as equal."""
    if one != other:
        return False
    # Names are nearly always in the same order; sorting a hundred thousand takes long.
    return type(one) is str or _encode(one) == _encode(other) or encode_sorted(one) == encode_sorted(other)
