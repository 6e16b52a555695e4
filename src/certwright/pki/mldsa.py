"""ML-DSA: parameter sets, and private keys that contain the expanded form.

A private key is a seed of 32 bytes. PKCS#8 may contain the seed, the expanded key that is derived from it, or
both. `cryptography` reads and writes the seed; OpenSSL writes both by default.

Source: FIPS 204 (parameter sets, key generation), RFC 9881 (object identifiers, PKCS#8).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from binascii import a2b_base64
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric import mldsa

from certwright.pki import der
from certwright.pki.errors import BadKey

PrivateKey = mldsa.MLDSA44PrivateKey | mldsa.MLDSA65PrivateKey | mldsa.MLDSA87PrivateKey
PublicKey = mldsa.MLDSA44PublicKey | mldsa.MLDSA65PublicKey | mldsa.MLDSA87PublicKey


class ParameterSet(NamedTuple):
    """One row of FIPS 204, table 1: `rows` and `columns` are the dimensions k and l of the matrix."""

    private: type[PrivateKey]
    public: type[PublicKey]
    oid: str
    rows: int
    columns: int


PARAMETER_SETS: Final = {
    44: ParameterSet(mldsa.MLDSA44PrivateKey, mldsa.MLDSA44PublicKey, "2.16.840.1.101.3.4.3.17", 4, 4),
    65: ParameterSet(mldsa.MLDSA65PrivateKey, mldsa.MLDSA65PublicKey, "2.16.840.1.101.3.4.3.18", 6, 5),
    87: ParameterSet(mldsa.MLDSA87PrivateKey, mldsa.MLDSA87PublicKey, "2.16.840.1.101.3.4.3.19", 8, 7),
}
"""The parameter sets by their number: ML-DSA-44, ML-DSA-65, ML-DSA-87."""

_PKCS8: Final = re.compile(rb"-----BEGIN PRIVATE KEY-----(.*?)-----END PRIVATE KEY-----", re.DOTALL)
_SEED_SIZE: Final = 32
_NO_SEED: Final = (
    "the ML-DSA private key lacks its seed (RFC 9881 §6), without which it cannot be used; replace it by one "
    "with a seed"
)
_DAMAGED: Final = "the seed and the expanded form of the ML-DSA private key do not match; the key is damaged"


def size_of(key: PrivateKey | PublicKey) -> int:
    """The number of the key's parameter set."""
    return next(
        size
        for size, parameters in PARAMETER_SETS.items()
        if isinstance(key, parameters.private | parameters.public)
    )


def load_expanded(pem: bytes) -> PrivateKey | None:
    """The key of a PEM PKCS#8 that contains the expanded form; None for any other text.

    Raises `BadKey` without a seed, and for a seed that does not match the expanded form.
    """
    match = _PKCS8.search(pem)
    if match is None:
        return None
    try:
        _, algorithm, key, *_ = der.read(der.read(a2b_base64(match[1]))[0].content)
        chosen = next((s for s in PARAMETER_SETS.values() if algorithm.content == der.oid(s.oid)), None)
        inner = der.read(key.content)[0]
        parts = der.read(inner.content) if inner.tag == der.SEQUENCE else []
    except (ValueError, IndexError):
        return None
    if chosen is None or inner.tag not in (der.OCTET_STRING, der.SEQUENCE):
        return None
    if len(parts) != 2 or len(parts[0].content) != _SEED_SIZE:
        raise BadKey(_NO_SEED)
    seed, expanded = parts[0].content, parts[1].content
    loaded = chosen.private.from_seed_bytes(seed)
    if not _matches(loaded, chosen, seed, expanded):
        raise BadKey(_DAMAGED)
    return loaded


def _matches(key: PrivateKey, chosen: ParameterSet, seed: bytes, expanded: bytes) -> bool:
    """Whether the expanded key begins as FIPS 204 derives it from the seed: rho, K and tr (algorithms 6 and
    24). The vectors after them, which are only used by software that ignores the seed, are not compared."""
    stream = hashlib.shake_256(seed + bytes((chosen.rows, chosen.columns))).digest(128)
    rho, signing_seed = stream[:32], stream[96:]
    digest = hashlib.shake_256(key.public_key().public_bytes_raw()).digest(64)
    return hmac.compare_digest(expanded[:128], rho + signing_seed + digest)
