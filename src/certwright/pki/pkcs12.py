"""PKCS#12 files in the four profiles of cert-manager's `keystores.pkcs12.profile`.

| profile    | certificates          | key                   | integrity                          |
|------------|-----------------------|-----------------------|------------------------------------|
| LegacyRC2  | 40-bit RC2, SHA-1     | 3DES, SHA-1           | HMAC-SHA-1 (RFC 7292 Appendix B)   |
| LegacyDES  | 3DES, SHA-1           | 3DES, SHA-1           | HMAC-SHA-1                         |
| Modern2023 | AES-256, PBKDF2       | AES-256, PBKDF2       | HMAC-SHA-256                       |
| Modern2026 | AES-256, PBKDF2       | AES-256, PBKDF2       | PBMAC1 (RFC 9579), HMAC-SHA-256    |

`cryptography` writes the middle two; this module derives the other two from them by replacing the part that
differs. It reads all four itself, because no parser of others limits the iterations.

RC2 (RFC 2268) is broken as a cipher; kept only because old readers of key stores support nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives import hashes, padding, serialization
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.hazmat.primitives.serialization.pkcs12 import PBES

from certwright.pki import der, limits, mldsa
from certwright.pki.errors import BadKey
from certwright.pki.keys import PrivateKey

ROUNDS = 2048
_DATA = "1.2.840.113549.1.7.1"
_ENCRYPTED_DATA = "1.2.840.113549.1.7.6"
_TRIPLE_DES = "1.2.840.113549.1.12.1.3"
_RC2_40 = "1.2.840.113549.1.12.1.6"
_PBES2 = "1.2.840.113549.1.5.13"
_AES256_CBC = "2.16.840.1.101.3.4.1.42"
_PBMAC1 = "1.2.840.113549.1.5.14"
_PBKDF2 = "1.2.840.113549.1.5.12"
_HMAC_SHA256 = "1.2.840.113549.2.9"
_SHA1 = "1.3.14.3.2.26"
_SHA256 = "2.16.840.1.101.3.4.2.1"
_KEY_BAG = der.oid("1.2.840.113549.1.12.10.1.2")
_CERTIFICATE_BAG = der.oid("1.2.840.113549.1.12.10.1.3")
_LOCAL_KEY_ID = der.oid("1.2.840.113549.1.9.21")
# RFC 2268 §2: "an array of "random" bytes based on the digits of PI", PITABLE.
_PI = bytes.fromhex(
    "d9 78 f9 c4 19 dd b5 ed 28 e9 fd 79 4a a0 d8 9d c6 7e 37 83 2b 76 53 8e 62 4c 64 88 44 8b fb a2 "
    "17 9a 59 f5 87 b3 4f 13 61 45 6d 8d 09 81 7d 32 bd 8f 40 eb 86 b7 7b 0b f0 95 21 22 5c 6b 4e 82 "
    "54 d6 65 93 ce 60 b2 1c 73 56 c0 14 a7 8c f1 dc 12 75 ca 1f 3b be e4 d1 42 3d d4 30 a3 3c b6 26 "
    "6f bf 0e da 46 69 07 57 27 f2 1d 9b bc 94 43 03 f8 11 c7 f6 90 ef 3e e7 06 c3 d5 2f c8 66 1e d7 "
    "08 e8 ea de 80 52 ee f7 84 aa 72 ac 35 4d 6a 2a 96 1a d2 71 5a 15 49 74 4b 9f d0 5e 04 18 a4 ec "
    "c2 e0 41 6e 0f 51 cb cc 24 91 af 50 a1 f4 70 39 99 7c 3a 85 23 b8 b4 7a fc 02 36 5b 25 55 97 31 "
    "2d 5d fa 98 e3 8a 92 ae 05 df 29 10 67 6c ba c9 d3 00 e6 cf e1 9e a8 2c 63 16 01 3f 58 e2 89 a9 "
    "0d 38 34 1b ab 33 ff b0 bb 48 0c 5f b9 b1 cd 2e c5 f3 db 47 e5 a5 9c 77 0a a6 20 68 fe 7f c1 ad"
)
_SHIFTS = (1, 2, 3, 5)


class Profile(StrEnum):
    """The algorithms of a PKCS#12 file."""

    LEGACY_RC2 = "LegacyRC2"
    LEGACY_DES = "LegacyDES"
    MODERN_2023 = "Modern2023"
    MODERN_2026 = "Modern2026"


class Opened(NamedTuple):
    """The content of a file, as DER: PKCS#8 keys; the first certificate of the key, empty without one; the
    others."""

    keys: tuple[bytes, ...]
    leaf: bytes
    others: frozenset[bytes]


class _Bag(NamedTuple):
    """An entry of a file (RFC 7292 §4.2) without encryption, and its `localKeyId`, which pairs a certificate
    with its key."""

    kind: bytes
    content: bytes
    key_id: bytes


def open_store(pfx: bytes, *, password: str) -> Opened:
    """Parse a file of one of the profiles, with `ROUNDS` iterations at most.

    Raises `ValueError` for any other file, or a wrong password. No file takes longer than a file of `_make`,
    whatever its content: a general parser such as OpenSSL's takes as long as the iteration counts demand, and
    the inner counts are encrypted.
    """
    if len(pfx) > limits.MAX_STORE_BYTES:
        raise ValueError("the file is larger than any that is made here")
    _, content, mac = der.read(der.read(pfx)[0].content)
    safe = _data_of(content)
    _check_mac(mac, safe, password)
    parts = der.read(der.read(safe)[0].content)
    # The certificates are in one part, the key in the other; each part has its own key derivation.
    if len(parts) > 2:
        raise ValueError("the file has more parts than those that are made here")
    entries = [entry for part in parts for entry in der.read(der.read(_plain(part, password))[0].content)]
    bags = _bags(entries, password)
    certificates = [bag for bag in bags if bag.kind == _CERTIFICATE_BAG]
    keys = [bag for bag in bags if bag.kind == _KEY_BAG]
    ids = {bag.key_id for bag in keys} - {b""}
    leaf = next((bag.content for bag in certificates if bag.key_id in ids), b"")
    others = frozenset(bag.content for bag in certificates) - {leaf}
    return Opened(tuple(bag.content for bag in keys), leaf, others)


def _bags(entries: Sequence[der.Element], password: str) -> list[_Bag]:
    bags: list[_Bag] = []
    for entry in entries:
        kind, explicit, *attributes = der.read(entry.content)
        (value,) = der.read(explicit.content)
        if kind.encoded == _CERTIFICATE_BAG:
            _, inner = der.read(value.content)
            content = der.read(inner.content)[0].content
        elif kind.encoded == _KEY_BAG and all(bag.kind != _KEY_BAG for bag in bags):
            scheme, hidden = der.read(value.content)
            content = _decrypted(scheme, hidden.content, password)
        else:
            raise ValueError("the file has other entries than one key and certificates")
        bags.append(_Bag(kind.encoded, content, _key_id(attributes)))
    return bags


def _key_id(attributes: Sequence[der.Element]) -> bytes:
    for attribute in der.read(attributes[0].content) if attributes else ():
        kind, values = der.read(attribute.content)
        if kind.encoded == _LOCAL_KEY_ID:
            return values.content
    return b""


def _plain(content_info: der.Element, password: str) -> bytes:
    """The content of a Data or an EncryptedData (RFC 2315 §8, §13)."""
    kind, explicit = der.read(content_info.content)
    if kind.encoded == der.oid(_DATA):
        return der.read(explicit.content)[0].content
    if kind.encoded != der.oid(_ENCRYPTED_DATA):
        raise ValueError("a part of the file is neither plain nor encrypted by password")
    _, info = der.read(der.read(explicit.content)[0].content)
    _, scheme, hidden = der.read(info.content)
    return _decrypted(scheme, hidden.content, password)


def _decrypted(scheme: der.Element, hidden: bytes, password: str) -> bytes:
    algorithm, parameters = der.read(scheme.content)
    if algorithm.encoded == der.oid(_PBES2):
        derivation, cipher = der.read(parameters.content)
        kind, iv = der.read(cipher.content)
        if kind.encoded != der.oid(_AES256_CBC):
            raise ValueError("the cipher is none that is used here")
        return _without_padding(algorithms.AES256(_pbkdf2(derivation, password)), iv.content, hidden)
    salt, rounds = der.read(parameters.content)
    derive = partial(_derive, password, salt.content, rounds=_rounds(rounds))
    vector = derive(purpose=2, size=8)
    if algorithm.encoded == der.oid(_RC2_40):
        return decrypt_cbc(hidden, key=derive(purpose=1, size=5), effective_bits=40, iv=vector)
    if algorithm.encoded == der.oid(_TRIPLE_DES):
        return _without_padding(TripleDES(derive(purpose=1, size=24)), vector, hidden)
    raise ValueError("the encryption is none that is used here")


def _without_padding(cipher: algorithms.AES256 | TripleDES, iv: bytes, hidden: bytes) -> bytes:
    decryptor = Cipher(cipher, modes.CBC(iv)).decryptor()
    unpadder = padding.PKCS7(cipher.block_size).unpadder()
    return unpadder.update(decryptor.update(hidden) + decryptor.finalize()) + unpadder.finalize()


def _pbkdf2(derivation: der.Element, password: str) -> bytes:
    """A key of 32 bytes (RFC 8018 §5.2), with HMAC-SHA-256."""
    kind, parameters = der.read(derivation.content)
    salt, rounds, *_, prf = der.read(parameters.content)
    if kind.encoded != der.oid(_PBKDF2) or der.read(prf.content)[0].encoded != der.oid(_HMAC_SHA256):
        raise ValueError("the key derivation is none that is used here")
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt.content, _rounds(rounds), 32)


def _rounds(element: der.Element) -> int:
    if len(element.content) > 2 or not 1 <= (rounds := int.from_bytes(element.content)) <= ROUNDS:
        raise ValueError(f"the iteration count is not between 1 and {ROUNDS}")
    return rounds


def _check_mac(mac: der.Element, safe: bytes, password: str) -> None:
    info, salt, *rest = der.read(mac.content)
    algorithm, digest = der.read(info.content)
    kind, *parameters = der.read(algorithm.content)
    if kind.encoded == der.oid(_PBMAC1):
        name, (derivation, _) = "sha256", der.read(parameters[0].content)
        key = _pbkdf2(derivation, password)
    else:
        hashes_by_oid = {der.oid(_SHA1): ("sha1", 20), der.oid(_SHA256): ("sha256", 32)}
        if kind.encoded not in hashes_by_oid:
            raise ValueError("the MAC is none that is used here")
        (name, size), rounds = hashes_by_oid[kind.encoded], _rounds(rest[0]) if rest else 1
        key = _derive(password, salt.content, purpose=3, size=size, rounds=rounds, name=name)
    if not hmac.compare_digest(hmac.digest(key, safe, name), digest.content):
        raise ValueError("the file is damaged, or the password is wrong")


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
        parts.append(_rc2_encrypted(_plain(part, password), password) if is_encrypted else part.encoded)
    return _sealed(der.sequence(*parts), lambda safe: _hmac_sha1(safe, password))


def _rc2_encrypted(bags: bytes, password: str) -> bytes:
    salt = os.urandom(8)
    key = _derive(password, salt, purpose=1, size=5)
    iv = _derive(password, salt, purpose=2, size=8)
    scheme = der.sequence(der.oid(_RC2_40), der.sequence(der.octets(salt), der.integer(ROUNDS)))
    hidden = encrypt_cbc(bags, key=key, effective_bits=40, iv=iv)
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


def _derive(
    password: str, salt: bytes, *, purpose: int, size: int, rounds: int = ROUNDS, name: str = "sha1"
) -> bytes:
    """RFC 7292 Appendix B.2: `purpose` 1 is a key, 2 an initial vector, 3 a key for the MAC."""
    # Not `hashlib.new`, which takes twice as long.
    block, hash_of = 64, {"sha1": hashlib.sha1, "sha256": hashlib.sha256}[name]
    secret = (password + "\0").encode("utf-16-be")
    fixed = _repeated(salt, block) + _repeated(secret, block)
    result = b""
    while len(result) < size:
        digest = bytes((purpose,)) * block + fixed
        for _ in range(rounds):
            digest = hash_of(digest).digest()
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


def encrypt_cbc(data: bytes, *, key: bytes, effective_bits: int, iv: bytes) -> bytes:
    """Encrypt `data`, padded as in PKCS#7. `iv` has eight bytes."""
    words = _expand(key, effective_bits)
    padding = 8 - len(data) % 8
    padded = data + bytes((padding,)) * padding
    previous, blocks = iv, []
    for at in range(0, len(padded), 8):
        mixed = bytes(a ^ b for a, b in zip(padded[at : at + 8], previous, strict=True))
        previous = encrypt_block(mixed, words)
        blocks.append(previous)
    return b"".join(blocks)


def decrypt_cbc(data: bytes, *, key: bytes, effective_bits: int, iv: bytes) -> bytes:
    """The inverse of `encrypt_cbc`. Raises `ValueError` for data that it did not make."""
    words = _expand(key, effective_bits)
    if not data or len(data) % 8:
        raise ValueError("not whole blocks")
    previous, blocks = iv, []
    for at in range(0, len(data), 8):
        block = data[at : at + 8]
        mixed = decrypt_block(block, words)
        blocks.append(bytes(a ^ b for a, b in zip(mixed, previous, strict=True)))
        previous = block
    padded = b"".join(blocks)
    padding = padded[-1]
    if not 1 <= padding <= 8 or padded[-padding:] != bytes((padding,)) * padding:
        raise ValueError("the padding is wrong")
    return padded[:-padding]


def _expand(key: bytes, effective_bits: int) -> tuple[int, ...]:
    """RFC 2268 §2: the key becomes 64 words of 16 bits; only `effective_bits` of it count."""
    size, mask_size = len(key), (effective_bits + 7) // 8
    mask = 0xFF >> (8 * mask_size - effective_bits)
    table = bytearray(key) + bytearray(128 - size)
    for i in range(size, 128):
        table[i] = _PI[(table[i - 1] + table[i - size]) & 0xFF]
    table[128 - mask_size] = _PI[table[128 - mask_size] & mask]
    for i in range(127 - mask_size, -1, -1):
        table[i] = _PI[table[i + 1] ^ table[i + mask_size]]
    return tuple(table[2 * i] | table[2 * i + 1] << 8 for i in range(64))


def encrypt_block(block: bytes, words: tuple[int, ...]) -> bytes:
    """RFC 2268 §3: five mixing rounds, a mashing round, six, a mashing round, five."""
    r = [int.from_bytes(block[i : i + 2], "little") for i in (0, 2, 4, 6)]
    for number in range(16):
        for i in range(4):
            mixed = r[i] + words[4 * number + i] + (r[i - 1] & r[i - 2]) + (~r[i - 1] & r[i - 3])
            mixed &= 0xFFFF
            r[i] = (mixed << _SHIFTS[i] | mixed >> (16 - _SHIFTS[i])) & 0xFFFF
        if number in (4, 10):
            for i in range(4):
                r[i] = (r[i] + words[r[i - 1] & 63]) & 0xFFFF
    return b"".join(word.to_bytes(2, "little") for word in r)


def decrypt_block(block: bytes, words: tuple[int, ...]) -> bytes:
    """RFC 2268 §4: the rounds of `encrypt_block`, inverted and from the last to the first."""
    r = [int.from_bytes(block[i : i + 2], "little") for i in (0, 2, 4, 6)]
    for number in reversed(range(16)):
        if number in (4, 10):
            for i in (3, 2, 1, 0):
                r[i] = (r[i] - words[r[i - 1] & 63]) & 0xFFFF
        for i in (3, 2, 1, 0):
            mixed = r[i] >> _SHIFTS[i] | r[i] << (16 - _SHIFTS[i])
            mixed -= words[4 * number + i] + (r[i - 1] & r[i - 2]) + (~r[i - 1] & r[i - 3])
            r[i] = mixed & 0xFFFF
    return b"".join(word.to_bytes(2, "little") for word in r)
