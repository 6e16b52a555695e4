"""Limits of key material: which keys are used at all, and what their bytes may cost.

Keys, certificates and key stores come from Secrets of tenants, from servers and from files. `cryptography`
takes what time the numbers in them require, and keeps the interpreter lock meanwhile. So sizes, counts and
exponents are read from the DER first, in linear time; only then is a parser called.

    RSA keys that are generated, stored or certified     2048 to 8192 bits
    RSA keys that only verify (of other CAs)             up to 16384 bits
    public exponents                                     odd, 3 to 2^31-1; to 65537 above 8192 bits
    ECDSA keys that are generated, stored or certified   P-256, P-384, P-521

Source: RFC 8017 §3.1 (RSA public keys), RFC 5958 (PKCS#8), RFC 5480 §2.1 (ECDSA), RFC 7468 (PEM).
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from certwright.pki import der
from certwright.pki.errors import BadKey
from certwright.pki.pem import join, sections

MIN_RSA_BITS: Final = 2048
"""CA/Browser Forum Baseline Requirements §6.1.5; OpenSSL refuses less by default."""
MAX_RSA_BITS: Final = 8192
"""Go's `crypto/tls` refuses more in a certificate. A signature takes 30 ms, and at twice the size 240."""
MAX_VERIFYING_RSA_BITS: Final = 16384
"""OpenSSL's `OPENSSL_RSA_MAX_MODULUS_BITS`."""
MAX_RSA_EXPONENT: Final = 2**31 - 1
"""Go's `crypto/rsa` refuses more. The time of a verification is proportional to the bits of the exponent."""


class Curve(NamedTuple):
    """A named curve and its object identifier."""

    kind: type[ec.EllipticCurve]
    oid: str


CURVES: Final = {
    256: Curve(ec.SECP256R1, "1.2.840.10045.3.1.7"),
    384: Curve(ec.SECP384R1, "1.3.132.0.34"),
    521: Curve(ec.SECP521R1, "1.3.132.0.35"),
}
"""The curves of keys that are generated, stored or certified, by the size of their keys: those that Go and
browsers verify."""

MAX_KEY_BYTES: Final = 16 * 1024
"""Of the DER of a private key: an RSA key of 8192 bits has 4.7 kB, an ML-DSA-87 key with both forms 5 kB."""
MAX_TEXT_BYTES: Final = 512 * 1024
"""Of a PEM text with everything in it: 50 certificates, each with the text of `openssl x509 -text`. Caches
have texts as their keys."""
MAX_STORE_BYTES: Final = 256 * 1024
"""Of a PKCS#12 or JKS file: two chains of `certificates.MAX_CHAIN_BYTES`, and a key."""
MAX_PASSWORD: Final = 1024
"""Characters of the password of such a file: JKS hashes it once for each 20 bytes of the key."""

_F4: Final = 65537
_RSA: Final = der.oid("1.2.840.113549.1.1.1")
_RSA_PSS: Final = der.oid("1.2.840.113549.1.1.10")
_EC: Final = der.oid("1.2.840.10045.2.1")
_DSA: Final = "1.2.840.10040.4.1"
_X25519, _X448, _ED25519, _ED448 = (f"1.3.101.{arc}" for arc in (110, 111, 112, 113))
_ML_DSA: Final = tuple(f"2.16.840.1.101.3.4.3.{arc}" for arc in (17, 18, 19))
# Of constant cost. `cryptography` limits DSA keys to 4096 bits, but not keys of Diffie-Hellman.
_CONSTANT: Final = frozenset(map(der.oid, (_DSA, _X25519, _X448, _ED25519, _ED448, *_ML_DSA)))
EXPECTED_KEY: Final = (
    "not a private key that can be read; expected is PEM in the form of PKCS#1, SEC 1 or PKCS#8"
)
_UNREADABLE: Final = "the public key cannot be read"
_PSS: Final = (
    "the RSA private key is restricted to RSASSA-PSS, with which certwright makes no signatures; use a key "
    "of the algorithm rsaEncryption"
)


def check_public_key(spki: bytes) -> None:
    """Raises `BadKey` for a public key (SubjectPublicKeyInfo) whose use could take long."""
    try:
        algorithm, key = der.read(der.read(spki)[0].content)
        oid, *parameters = der.read(algorithm.content)
        if oid.encoded in (_RSA, _RSA_PSS):
            # A bit string begins with its count of unused bits.
            n, e = der.read(der.read(key.content[1:])[0].content)
            _check_rsa(n.content, e.content, MAX_VERIFYING_RSA_BITS)
        elif oid.encoded == _EC:
            # RFC 5480 §2.1.1: "implicitCurve and specifiedCurve MUST NOT be used in PKIX."
            if [parameter.tag for parameter in parameters] != [der.OBJECT_IDENTIFIER]:
                raise BadKey("the public key has no named curve")
        elif oid.encoded not in _CONSTANT:
            raise BadKey("the public key is of an unknown algorithm")
    except (ValueError, IndexError):
        raise BadKey(_UNREADABLE) from None


def _check_rsa(modulus: bytes, exponent: bytes, most_bits: int) -> None:
    # No number is made of more bytes than that.
    bits = 8 * len(modulus)
    if bits <= most_bits + 8:
        bits = int.from_bytes(modulus).bit_length()
    if bits > most_bits:
        raise BadKey(f"an RSA key of {bits} bits is not supported; the limit is {most_bits}")
    if (
        len(exponent) > 5
        or not 3 <= (e := int.from_bytes(exponent, signed=True)) <= MAX_RSA_EXPONENT
        or not e % 2
    ):
        raise BadKey("the public exponent of the RSA key is not an odd number from 3 to 2^31-1")
    if bits > MAX_RSA_BITS and e > _F4:
        raise BadKey(f"an RSA key of {bits} bits with a public exponent above {_F4} is not supported")


def private_key(text: bytes) -> bytes:
    """The first private key of a PEM text, as PEM with nothing else, and with numbers of supported sizes.

    Raises `BadKey` for one that is encrypted, too large, restricted to RSASSA-PSS, unreadable or missing.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise BadKey(f"the text with the private key has more than {MAX_TEXT_BYTES} bytes")
    label, body = next(
        ((name, body) for name, body in sections(text) if name.endswith(b"PRIVATE KEY")), (b"", b"")
    )
    # RFC 1421 §4.6.1.1: a "Proc-Type" header, as OpenSSL writes it.
    if label == b"ENCRYPTED PRIVATE KEY" or b":" in body:
        raise BadKey("the private key is encrypted; an unencrypted one is needed")
    if len(body) > 2 * MAX_KEY_BYTES:
        raise BadKey(f"the private key has more than {MAX_KEY_BYTES} bytes")
    try:
        key = a2b_base64(b"".join(body.split()), strict_mode=True)
        _check_private_key(key)
    except (ValueError, IndexError):
        raise BadKey(EXPECTED_KEY) from None
    return join([(label, key)])


def _check_private_key(key: bytes) -> None:
    parts = der.read(der.read(key)[0].content)
    # PKCS#8: version, algorithm, key. PKCS#1: version, n, e, d, p, q, … SEC 1: version, octets, …
    if parts[1].tag == der.SEQUENCE:
        algorithm = der.read(parts[1].content)[0].encoded
        if algorithm == _RSA_PSS:
            raise BadKey(_PSS)
        if algorithm != _RSA:
            return
        parts = der.read(der.read(parts[2].content)[0].content)
    if parts[1].tag == der.INTEGER:
        _check_rsa(parts[1].content, parts[2].content, MAX_RSA_BITS)
        if any(len(part.content) > len(parts[1].content) for part in parts):
            raise BadKey("the numbers of the RSA private key do not fit each other; the key is damaged")
