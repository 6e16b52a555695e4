"""Revision placeholder: encodes a row before its revision is known.

An encoder writes the revision into `meta` in decimal digits (`contract.Encode`). A store that has to encode
first, because the revision is known only after the commit or `meta` is not kept as it is, passes a
*stand-in*: a random number that cannot be guessed. The store keeps the pieces around it; the reader puts the
true revision between them.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from certwright.kube.store.contract import Encode

# With nineteen digits, as no revision will have: sizes measured before the write are about right.
_STAND_INS = range(4 * 10**18, 9 * 10**18)


class Content(NamedTuple):
    """The stored parts of a write: `meta` in pieces, and `body`."""

    pieces: list[bytes]
    body: bytes


def encode_apart(encode: Encode) -> Content:
    """Call `encode` with a stand-in, and cut that out of `meta` again. Raises what `encode` raises."""
    stand_in = _STAND_INS[secrets.randbelow(len(_STAND_INS))]
    meta, body = encode(stand_in)
    return Content(meta.split(b"%d" % stand_in), body)


def join(pieces: list[bytes], revision: int) -> bytes:
    """`meta` with the revision in it."""
    return pieces[0] if len(pieces) == 1 else (b"%d" % revision).join(pieces)
