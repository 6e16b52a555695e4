"""Public keys as the bytes of their SubjectPublicKeyInfo, without parsing them.

Parsing a key and encoding it again takes as long as parsing the rest of a certificate, and its bytes suffice
to determine the algorithm and to compare two keys.

Source: RFC 5280 §4.1 and RFC 2986 §4.1 (its position), RFC 3279 §2.3.1 (RSA), RFC 5480 §2 (ECDSA), RFC
8410 §4 (Ed25519), RFC 9881 §4 (ML-DSA).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives import serialization

from certwright.pki import der, keys, limits, mldsa
from certwright.pki.errors import BadKey, border
from certwright.pki.keys import KeyAlgorithm, KeyPlan

_EC: Final = der.oid("1.2.840.10045.2.1")
_RSA: Final = der.sequence(der.oid("1.2.840.113549.1.1.1"), der.null())
_RSA_PSS: Final = der.oid("1.2.840.113549.1.1.10")
_KINDS: Final = {
    **{
        der.sequence(_EC, der.oid(curve.oid)): KeyPlan(KeyAlgorithm.ECDSA, size)
        for size, curve in limits.CURVES.items()
    },
    der.sequence(der.oid("1.3.101.112")): KeyPlan(KeyAlgorithm.ED25519),
    **{
        der.sequence(der.oid(chosen.oid)): KeyPlan(KeyAlgorithm.ML_DSA, size)
        for size, chosen in mldsa.PARAMETER_SETS.items()
    },
}
# RFC 5480 §2.2: a compressed point is the same key in other bytes.
_COMPRESSED: Final = (b"\x00\x02", b"\x00\x03")


def of_certificate(certificate: bytes) -> bytes:
    """The SubjectPublicKeyInfo of a DER certificate. Raises `ValueError` for other data."""
    at = der.inside(certificate, der.inside(certificate, 0))
    if certificate[at] == der.CONTEXT_0:
        at = der.behind(certificate, at)
    # serialNumber, signature, issuer, validity, subject
    return _after(certificate, at, 5)


def of_request(request: bytes) -> bytes:
    """The SubjectPublicKeyInfo of a DER signing request. Raises `ValueError` for other data."""
    # version, subject
    return _after(request, der.inside(request, der.inside(request, 0)), 2)


def _after(data: bytes, at: int, elements: int) -> bytes:
    for _ in range(elements):
        at = der.behind(data, at)
    return data[at : der.behind(data, at)]


@lru_cache(maxsize=1024)
def canonical(spki: bytes) -> bytes:
    """The key in canonical form for comparisons, that of `keys.public_key_der`. Raises `BadKey` if it has to
    be parsed for that, and is invalid."""
    algorithm, key = _parts(spki)
    is_usual = algorithm == _RSA or algorithm in _KINDS
    return spki if is_usual and not key.startswith(_COMPRESSED) else _encoded(spki)


def supported_plan(spki: bytes) -> KeyPlan:
    """The plan of a key that may be certified. Raises `BadKey` with the reason for any other: a key that we
    would not generate, or that is restricted to RSASSA-PSS, which Go's clients do not read."""
    algorithm, _ = _parts(spki)
    if algorithm in _KINDS:
        return _KINDS[algorithm]
    if _RSA_PSS in algorithm:
        raise BadKey("an RSA key that is restricted to RSASSA-PSS is not supported; use one of rsaEncryption")
    return keys.supported_plan(keys.load_public_key(spki))


def plan_of(spki: bytes) -> KeyPlan | None:
    """The plan of the key; None for a key that is not supported."""
    try:
        return supported_plan(spki)
    except BadKey:
        return None


@lru_cache(maxsize=1024)
def is_ml_dsa(spki: bytes) -> bool:
    """Whether it is a key of ML-DSA, judged by its algorithm identifier. Raises `BadKey` for other data."""
    plan = _KINDS.get(_parts(spki)[0])
    return plan is not None and plan.is_ml_dsa


@lru_cache(maxsize=1024)
def check(spki: bytes) -> None:
    """Raises `BadKey` for an invalid public key. Cached: a certificate has the key of its request."""
    _encoded(spki)


def _encoded(spki: bytes) -> bytes:
    limits.check_public_key(spki)
    with border(BadKey, "the public key cannot be read", detail=True):
        return serialization.load_der_public_key(spki).public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )


def _parts(spki: bytes) -> tuple[bytes, bytes]:
    """The algorithm, and the bit string with its count of unused bits."""
    with border(BadKey, "the public key cannot be read", detail=True):
        at = der.inside(spki, 0)
        end = der.behind(spki, at)
        return spki[at:end], spki[der.inside(spki, end) :]
