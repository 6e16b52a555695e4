"""Java KeyStore files (JKS): a private key with its chain, or trusted certificates.

Source: the format as OpenJDK reads it (`sun.security.provider.JavaKeyStore`, `KeyProtector`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from certwright.pki import der, limits

_MAGIC, _VERSION = 0xFEEDFEED, 2
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
# Sun's constant in the digest of the whole file.
_WHITENER = b"Mighty Aphrodite"
_DIGEST = 20


class KeyEntry(NamedTuple):
    """A private key (PKCS#8 DER) with its chain (DER, leaf first)."""

    alias: str
    key_pkcs8: bytes = b""
    chain: tuple[bytes, ...] = ()


def key_store(
    entry: KeyEntry, trusted: Sequence[tuple[str, bytes]], *, password: str, now: datetime
) -> bytes:
    """A key store: one private key, and trusted certificates (alias and DER). `now` becomes the date of the
    entries. Aliases become lower case, as in Java.
    """
    protected = der.sequence(
        der.sequence(der.oid(_PROTECTOR), der.null()), der.octets(_protect(entry.key_pkcs8, password))
    )
    written = [
        struct.pack(">I", _PRIVATE_KEY),
        _text(entry.alias.lower()),
        _date(now),
        _counted(protected),
        struct.pack(">I", len(entry.chain)),
        *(_certificate(item) for item in entry.chain),
    ]
    return _file([b"".join(written), *(_trusted(name, item, now) for name, item in trusted)], password)


def trust_store(trusted: Sequence[tuple[str, bytes]], *, password: str, now: datetime) -> bytes:
    """A trust store: trusted certificates only."""
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
    return salt + _mixed(key, secret, salt) + hashlib.sha1(secret + key).digest()  # noqa: S324 - the format's


def _mixed(text: bytes, secret: bytes, salt: bytes) -> bytes:
    stream, digest = bytearray(), salt
    while len(stream) < len(text):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - the format's
        stream += digest
    return bytes(a ^ b for a, b in zip(text, stream, strict=False))


class Opened(NamedTuple):
    """The content of a file."""

    keys: tuple[KeyEntry, ...]
    trusted: tuple[tuple[str, bytes], ...]


def open_store(data: bytes, *, password: str) -> Opened:
    """Parse a file whose keys have the password of the file, as `key_store` makes it.

    Raises `ValueError` for another type of file, or a wrong password.
    """
    if len(data) > limits.MAX_STORE_BYTES:
        raise ValueError("the file is larger than any that is made here")
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    computed = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + content).digest()  # noqa: S324 - the format's
    if not hmac.compare_digest(computed, digest):
        raise ValueError("the file is damaged, or the password is wrong")
    reader = _Reader(content)
    magic, version, count = reader.number(4), reader.number(4), reader.number(4)
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError("not a JKS file of version 2")
    keys, trusted = [], []
    for _ in range(count):
        tag, alias, _ = reader.number(4), reader.text(), reader.take(8)
        if tag == _PRIVATE_KEY:
            protected = reader.counted()
            chain = tuple(reader.certificate() for _ in range(reader.number(4)))
            keys.append(KeyEntry(alias, _unprotect(protected, password), chain))
        else:
            trusted.append((alias, reader.certificate()))
    return Opened(tuple(keys), tuple(trusted))


class _Reader:
    """A cursor over the bytes of a file."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, size: int) -> bytes:
        data = self._content[self._at : self._at + size]
        if len(data) < size:
            raise ValueError("the file ends too early")
        self._at += size
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def counted(self) -> bytes:
        return self.take(self.number(4))

    def text(self) -> str:
        # The inverse of `_text`: through UTF-16, which combines the two surrogates of a character.
        units = self.take(self.number(2)).replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")

    def certificate(self) -> bytes:
        self.text()
        return self.counted()


def _unprotect(protected: bytes, password: str) -> bytes:
    _, hidden = der.read(der.read(protected)[0].content)
    salt, mixed, check = hidden.content[:20], hidden.content[20:-20], hidden.content[-20:]
    secret = password.encode("utf-16-be")
    key = _mixed(mixed, secret, salt)
    if hashlib.sha1(secret + key).digest() != check:  # noqa: S324 - the format's
        raise ValueError("the key is under another password than the file")
    return key
