"""PKCS#12 files in the four profiles of cert-manager's `keystores.pkcs12.profile`.

| profile    | certificates          | key                   | integrity                          |
|------------|-----------------------|-----------------------|------------------------------------|
| LegacyRC2  | 40-bit RC2, SHA-1     | 3DES, SHA-1           | HMAC-SHA-1 (RFC 7292 Appendix B)   |
| LegacyDES  | 3DES, SHA-1           | 3DES, SHA-1           | HMAC-SHA-1                         |
| Modern2023 | AES-256, PBKDF2       | AES-256, PBKDF2       | HMAC-SHA-256                       |
| Modern2026 | AES-256, PBKDF2       | AES-256, PBKDF2       | PBMAC1 (RFC 9579), HMAC-SHA-256    |

`cryptography` writes the middle two; this module derives the other two from them by replacing the part that
differs, so that it implements nothing else of the format.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives import hashes, padding, serialization
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.hazmat.primitives.serialization.pkcs12 import PBES

from certwright.pki import der, mldsa, rc2
from certwright.pki.errors import BadKey
from certwright.pki.keys import PrivateKey

ROUNDS = 2048
_DATA = "1.2.840.113549.1.7.1"
_ENCRYPTED_DATA = "1.2.840.113549.1.7.6"
_RC2_40 = "1.2.840.113549.1.12.1.6"
_PBMAC1 = "1.2.840.113549.1.5.14"
_PBKDF2 = "1.2.840.113549.1.5.12"
_HMAC_SHA256 = "1.2.840.113549.2.9"
_SHA1 = "1.3.14.3.2.26"
_PUBLIC = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
_SHA256 = "2.16.840.1.101.3.4.2.1"


class Profile(StrEnum):
    """The algorithms of a PKCS#12 file."""

    LEGACY_RC2 = "LegacyRC2"
    LEGACY_DES = "LegacyDES"
    MODERN_2023 = "Modern2023"
    MODERN_2026 = "Modern2026"


class Opened(NamedTuple):
    """The content of a file. `key_der` is the public half of its private key (SubjectPublicKeyInfo)."""

    key_der: bytes
    leaf: x509.Certificate | None
    others: frozenset[x509.Certificate]


def open_store(pfx: bytes, *, password: str) -> Opened:
    """Parse a file of any profile. Raises `ValueError` if it is unreadable, or for a wrong password."""
    try:
        store = pkcs12.load_pkcs12(pfx, password.encode())
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    key = store.key
    public = key.public_key().public_bytes(*_PUBLIC) if key is not None else b""
    leaf = store.cert.certificate if store.cert is not None else None
    return Opened(public, leaf, frozenset(item.certificate for item in store.additional_certs) - {leaf})


def profile_of(pfx: bytes) -> Profile | None:
    """The profile of a file; None for none of ours. Raises `ValueError` for another type of file."""
    safe, mac = der.read(der.read(pfx)[0].content)[1:3]
    algorithm = der.read(der.read(der.read(mac.content)[0].content)[0].content)[0].encoded
    if algorithm == der.oid(_SHA1):
        return Profile.LEGACY_RC2 if der.oid(_RC2_40) in safe.encoded else Profile.LEGACY_DES
    return {der.oid(_SHA256): Profile.MODERN_2023, der.oid(_PBMAC1): Profile.MODERN_2026}.get(algorithm)


Write = Callable[[serialization.KeySerializationEncryption], bytes]


def key_store(
    *,
    name: str,
    key: PrivateKey,
    chain: Sequence[x509.Certificate],
    password: str,
    profile: Profile,
) -> bytes:
    """A file with the key, its certificate (the first of `chain`) and the other certificates. Raises `BadKey`
    for an ML-DSA key, which `cryptography` cannot write into such a file."""
    if isinstance(key, mldsa.PrivateKey):
        raise BadKey("this version cannot write an ML-DSA key into a PKCS#12 file")
    leaf, *others = chain
    return _make(
        lambda encryption: pkcs12.serialize_key_and_certificates(
            name.encode(), key, leaf, others or None, encryption
        ),
        password,
        profile,
    )


def trust_store(trusted: Sequence[tuple[str, x509.Certificate]], *, password: str, profile: Profile) -> bytes:
    """A file with certificates that Java accepts as trusted."""
    entries = [pkcs12.PKCS12Certificate(item, name.encode()) for name, item in trusted]
    return _make(lambda encryption: pkcs12.serialize_java_truststore(entries, encryption), password, profile)


def _make(write: Write, password: str, profile: Profile) -> bytes:
    modern = profile in (Profile.MODERN_2023, Profile.MODERN_2026)
    encryption = (
        serialization.PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(ROUNDS)
        .key_cert_algorithm(PBES.PBESv2SHA256AndAES256CBC if modern else PBES.PBESv1SHA1And3KeyTripleDESCBC)
        .hmac_hash(hashes.SHA256() if modern else hashes.SHA1())  # noqa: S303 - the profile's
        .build(password.encode())
    )
    made = write(encryption)
    match profile:
        case Profile.LEGACY_RC2:
            return _with_rc2(made, password)
        case Profile.MODERN_2026:
            return _sealed(_safe_of(made), lambda safe: _pbmac1(safe, password))
        case Profile.LEGACY_DES | Profile.MODERN_2023:
            return made


def _safe_of(pfx: bytes) -> bytes:
    """The AuthenticatedSafe (RFC 7292 §4), the part that the MAC covers."""
    _, content, *_ = der.read(der.read(pfx)[0].content)
    return _data_of(content)


def _data_of(content_info: der.Element) -> bytes:
    _, explicit = der.read(content_info.content)
    return der.read(explicit.content)[0].content


def _sealed(safe: bytes, mac: Callable[[bytes], bytes]) -> bytes:
    """The PFX around an AuthenticatedSafe, with another MAC."""
    content = der.sequence(der.oid(_DATA), der.element(der.CONTEXT_0, der.octets(safe)))
    return der.sequence(der.integer(3), content, mac(safe))


def _with_rc2(pfx: bytes, password: str) -> bytes:
    """The file with its certificates under RC2 instead of 3DES; the key, already under 3DES, stays."""
    parts = []
    for part in der.read(der.read(_safe_of(pfx))[0].content):
        is_encrypted = der.read(part.content)[0].encoded == der.oid(_ENCRYPTED_DATA)
        parts.append(
            _rc2_encrypted(_des_decrypted(part, password), password) if is_encrypted else part.encoded
        )
    return _sealed(der.sequence(*parts), lambda safe: _hmac_sha1(safe, password))


def _des_decrypted(content_info: der.Element, password: str) -> bytes:
    """The plaintext of an EncryptedData (RFC 2315 §13) under 3DES."""
    _, explicit = der.read(content_info.content)
    _, info = der.read(der.read(explicit.content)[0].content)
    _, scheme, hidden = der.read(info.content)
    salt = der.read(der.read(scheme.content)[1].content)[0].content
    key, iv = _derive(password, salt, purpose=1, size=24), _derive(password, salt, purpose=2, size=8)
    decryptor = Cipher(TripleDES(key), modes.CBC(iv)).decryptor()
    unpadder = padding.PKCS7(64).unpadder()
    return unpadder.update(decryptor.update(hidden.content) + decryptor.finalize()) + unpadder.finalize()


def _rc2_encrypted(bags: bytes, password: str) -> bytes:
    salt = os.urandom(8)
    key = _derive(password, salt, purpose=1, size=5)
    iv = _derive(password, salt, purpose=2, size=8)
    scheme = der.sequence(der.oid(_RC2_40), der.sequence(der.octets(salt), der.integer(ROUNDS)))
    hidden = rc2.encrypt_cbc(bags, key=key, effective_bits=40, iv=iv)
    info = der.sequence(der.oid(_DATA), scheme, der.element(der.CONTEXT_0_PRIMITIVE, hidden))
    content = der.sequence(der.integer(0), info)
    return der.sequence(der.oid(_ENCRYPTED_DATA), der.element(der.CONTEXT_0, content))


def _hmac_sha1(safe: bytes, password: str) -> bytes:
    salt = os.urandom(8)
    digest = hmac.digest(_derive(password, salt, purpose=3, size=20), safe, "sha1")
    info = der.sequence(der.sequence(der.oid(_SHA1), der.null()), der.octets(digest))
    return der.sequence(info, der.octets(salt), der.integer(ROUNDS))


def _pbmac1(safe: bytes, password: str) -> bytes:
    """RFC 9579 §4: the parameters are in the algorithm; the old salt is present but unused."""
    salt = os.urandom(16)
    key = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ROUNDS, 32)
    prf = der.sequence(der.oid(_HMAC_SHA256), der.null())
    derivation = der.sequence(
        der.oid(_PBKDF2), der.sequence(der.octets(salt), der.integer(ROUNDS), der.integer(32), prf)
    )
    algorithm = der.sequence(der.oid(_PBMAC1), der.sequence(derivation, prf))
    digest = der.octets(hmac.digest(key, safe, "sha256"))
    # The count of iterations is 1 here, its default, which DER omits (X.690 §11.5).
    return der.sequence(der.sequence(algorithm, digest), der.octets(b"NOT USED"))


def _derive(password: str, salt: bytes, *, purpose: int, size: int) -> bytes:
    """RFC 7292 Appendix B.2 with SHA-1: `purpose` 1 is a key, 2 an initial vector, 3 a key for the MAC."""
    block = 64
    secret = (password + "\0").encode("utf-16-be")
    fixed = _repeated(salt, block) + _repeated(secret, block)
    result = b""
    while len(result) < size:
        digest = bytes((purpose,)) * block + fixed
        for _ in range(ROUNDS):
            digest = hashlib.sha1(digest).digest()  # noqa: S324 - the format's
        result += digest
        step = int.from_bytes(_repeated(digest, block)[:block], "big") + 1
        pieces = (fixed[at : at + block] for at in range(0, len(fixed), block))
        fixed = b"".join(
            ((int.from_bytes(piece, "big") + step) % (1 << 8 * block)).to_bytes(block, "big")
            for piece in pieces
        )
    return result[:size]


def _repeated(value: bytes, block: int) -> bytes:
    """`value` repeated until a multiple of `block` is full."""
    size = block * -(-len(value) // block)
    return (value * (size // len(value) + 1))[:size]
