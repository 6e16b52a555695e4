"""Java KeyStore files (JKS), which hold a private key with its chain, or certificates to trust.

Source: the format as OpenJDK reads it (`sun.security.provider.JavaKeyStore`, `KeyProtector`).
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from datetime import datetime

from certwright.pki import der

_MAGIC, _VERSION = 0xFEEDFEED, 2
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
# What Sun mixes into the digest of the whole file.
_WHITENER = b"Mighty Aphrodite"


def key_store(
    *,
    alias: str,
    key_pkcs8: bytes,
    chain: Sequence[bytes],
    trusted: Sequence[tuple[str, bytes]],
    password: str,
    now: datetime,
) -> bytes:
    """A key store: one private key (PKCS#8 DER) with its chain (DER, leaf first), and trusted certificates
    (alias and DER). `now` becomes the date of the entries. Aliases are put in small letters, as Java does.
    """
    protected = der.sequence(
        der.sequence(der.oid(_PROTECTOR), der.null()), der.octets(_protect(key_pkcs8, password))
    )
    entry = [
        struct.pack(">I", _PRIVATE_KEY),
        _text(alias.lower()),
        _date(now),
        _counted(protected),
        struct.pack(">I", len(chain)),
        *(_certificate(item) for item in chain),
    ]
    return _file([b"".join(entry), *(_trusted(name, item, now) for name, item in trusted)], password)


def trust_store(trusted: Sequence[tuple[str, bytes]], *, password: str, now: datetime) -> bytes:
    """A store of trusted certificates only."""
    return _file([_trusted(name, item, now) for name, item in trusted], password)


def _file(entries: Sequence[bytes], password: str) -> bytes:
    content = struct.pack(">III", _MAGIC, _VERSION, len(entries)) + b"".join(entries)
    return content + hashlib.sha1(password.encode("utf-16-be") + _WHITENER + content).digest()  # noqa: S324 - the format's


def _trusted(alias: str, certificate: bytes, now: datetime) -> bytes:
    head = struct.pack(">I", _TRUSTED_CERTIFICATE)
    return head + _text(alias.lower()) + _date(now) + _certificate(certificate)


def _certificate(content: bytes) -> bytes:
    return _text("X.509") + _counted(content)


def _date(moment: datetime) -> bytes:
    return struct.pack(">Q", int(moment.timestamp() * 1000))


def _counted(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _text(text: str) -> bytes:
    # Java's "modified UTF-8" writes characters outside the BMP as two surrogates, and NUL in two bytes.
    units = text.encode("utf-16-be", "surrogatepass")
    points = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    encoded = b"".join(b"\xc0\x80" if p == 0 else chr(p).encode("utf-8", "surrogatepass") for p in points)
    return struct.pack(">H", len(encoded)) + encoded


def _protect(key: bytes, password: str) -> bytes:
    """Sun's key protector: the key xor a chain of SHA-1 digests, between the salt and a digest of the key."""
    secret, salt = password.encode("utf-16-be"), os.urandom(20)
    stream, digest = bytearray(), salt
    while len(stream) < len(key):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - the format's
        stream += digest
    mixed = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    return salt + mixed + hashlib.sha1(secret + key).digest()  # noqa: S324 - the format's
