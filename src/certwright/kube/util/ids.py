"""Unique names and identifiers."""

from __future__ import annotations

import hashlib
import os

# Vowels are left out so that no words appear, and 0, 1, 3 so that nothing is misread
# (k8s.io/apimachinery/pkg/util/rand).
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
# The character for each random byte. Bytes of 243 (9·27) and above are left out: they would make the first
# characters likelier than the others.
_LETTERS = bytes(ord(ALPHABET[byte % 27]) for byte in range(256))
_UNEVEN = bytes(range(243, 256))
# Version and variant are fixed bits (RFC 9562 §5.4).
_VERSION_4 = 0x4 << 76 | 0b10 << 62
_RANDOM = (1 << 128) - 1 ^ (0xF << 76 | 0b11 << 62)


_DRAWN = 16  # bytes per identifier
_AHEAD = 64  # identifiers per read
_ahead: list[bytes] = []
os.register_at_fork(after_in_child=_ahead.clear)


def _draw() -> bytes:
    """Bytes of the operating system's random source, read in batches because every create needs some.

    Never returns the same bytes twice, neither to another thread nor to a forked process.
    """
    try:
        return _ahead.pop()
    except IndexError:
        drawn = os.urandom(_DRAWN * _AHEAD)
        _ahead.extend(drawn[start : start + _DRAWN] for start in range(_DRAWN, len(drawn), _DRAWN))
        return drawn[:_DRAWN]


def new_uid() -> str:
    """A random (version 4) UUID in its usual text form."""
    # Every create needs one, and `uuid.UUID` takes four times as long.
    digits = f"{int.from_bytes(_draw(), 'big') & _RANDOM | _VERSION_4:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def random_suffix(length: int = 5) -> str:
    """`length` characters of `ALPHABET`, from the operating system's random source."""
    picked = b""
    while len(picked) < length:
        picked += _draw().translate(_LETTERS, _UNEVEN)
    return picked[:length].decode()


def bounded_name(name: str, *, limit: int) -> str:
    """`name`, or where it is longer than `limit` its beginning and a hash of the whole.

    The same name always gives the same result, and two long names give different ones.
    """
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: limit - 17].rstrip('-.')}-{digest}"
