"""Names and identifiers nobody else has."""

from __future__ import annotations

import hashlib
import os

# Vowels are left out so that no words appear, and 0, 1, 3 so that nothing is misread
# (k8s.io/apimachinery/pkg/util/rand).
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
# Version and variant have bits of their own (RFC 9562 §5.4).
_VERSION_4 = 0x4 << 76 | 0b10 << 62
_RANDOM = (1 << 128) - 1 ^ (0xF << 76 | 0b11 << 62)


def new_uid() -> str:
    """A random (version 4) UUID in its usual text form."""
    # Every create needs one, and `uuid.UUID` takes four times as long.
    digits = f"{int.from_bytes(os.urandom(16), 'big') & _RANDOM | _VERSION_4:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def random_suffix(length: int = 5) -> str:
    """`length` characters of `ALPHABET`, from the operating system's random source."""
    picked = ""
    while len(picked) < length:
        # One call for all, since it is on the way of every create. Bytes of 243 (9·27) and above are left
        # out: they would make the first letters likelier than the others.
        picked += "".join(ALPHABET[byte % 27] for byte in os.urandom(length + 3) if byte < 243)
    return picked[:length]


def bounded_name(name: str, *, limit: int) -> str:
    """`name`, or where it is longer than `limit` its beginning and a hash of the whole.

    The same name always gives the same result, and two long names give different ones.
    """
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: limit - 17].rstrip('-.')}-{digest}"
