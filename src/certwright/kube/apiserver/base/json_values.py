"""JSON values compared."""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode
encode_sorted = msgspec.json.Encoder(order="deterministic").encode
"""The same bytes for values that are the same, whatever order their members are in."""


def same(one: object, other: object) -> bool:
    """Whether two JSON values are the same. Python alone would find 1, 1.0 and true equal."""
    if one != other:
        return False
    # Nearly always the names are in the same order; to sort a hundred thousand takes long.
    return type(one) is str or _encode(one) == _encode(other) or encode_sorted(one) == encode_sorted(other)
