"""Envelope encryption of rows: the data keys of the ring encrypt the rows of some buckets for the store.

A row's two byte strings are encrypted separately, so that metadata can be read alone. Each is bound to its
key and part (associated data), so a copy elsewhere does not decrypt. A byte string without the magic number
is read as it is, so that a plain store can be read while it is being encrypted.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from certwright.kube.store.contract import DamagedRow, Key, Row
from certwright.kube.store.keyring import (
    EMPTY,
    NONCE_BYTES,
    Ring,
    WrappingKeys,
    fingerprint,
    unwrap,
    wrap,
    wrapped_by,
)

_log = logging.getLogger(__name__)

# No JSON begins with NUL. The number of the data key follows, then the nonce.
_MAGIC = b"\0sealed1"
_KEY_AT = len(_MAGIC)
_NONCE_AT = _KEY_AT + 4
_TEXT_AT = _NONCE_AT + NONCE_BYTES

META, BODY, LAST = b"m", b"b", b"l"
"""Which part of a row something is; `LAST`: the row's last state, which its deletion records."""


_EQUAL = "; all servers of a store need the same flag"
_NOT_ENCRYPTED = (
    "Secrets are NOT encrypted in the store, although this server has --encrypt-secrets=true: they were"
    f" decrypted at another server{_EQUAL}, and the next start of a server with true encrypts them"
)
_ENCRYPTED = (
    "Secrets stay encrypted in the store, although this server has --encrypt-secrets=false"
    f"{_EQUAL}, and `certwright encryption decrypt` decrypts the store"
)


class UnknownDataKey(DamagedRow):
    """The row is encrypted with a data key that is not in the ring: perhaps a newer one."""


class Seal:
    """Encrypts and decrypts the rows of `buckets`.

    `enabled`: the server's flag; the ring decides whether rows are encrypted. May be used by several threads;
    `adopt`, `clear` and `begin` by one at a time.
    """

    def __init__(self, buckets: Collection[str], wrapping: WrappingKeys, *, enabled: bool = True) -> None:
        self.buckets = frozenset(buckets)
        self.wrapping = wrapping
        self.enabled = enabled
        self._ciphers: dict[bytes, AESGCM] = {}
        self._head = b""
        self._ring = EMPTY
        self.version = 0
        """The revision of the ring, in stores that others write to."""

    @property
    def ring(self) -> Ring:
        """The data keys."""
        return self._ring

    @property
    def warning(self) -> str:
        """Why the state of the store differs from the flag; empty if it does not."""
        if self.enabled == bool(self._ring.current):
            return ""
        return _NOT_ENCRYPTED if self.enabled else _ENCRYPTED

    # --- the ring -----------------------------------------------------------------------------------------

    def begin(self, blob: bytes | None, *, version: int = 0, is_shared: bool = False) -> bytes | None:
        """Load the ring of a store (None: it has none). Returns the ring to store instead, if it differs:
        `adopt` it once it is stored. `is_shared`: other servers may use the store, so one server's flag does
        not decrypt it. Raises `WrongKey`, `Damaged`."""
        if blob is None:
            return self._first() if self.enabled else None
        self.adopt(blob, version=version)
        if self.enabled and not self._ring.current:
            return self.wrapped(self.rotated())
        if self._ring.current and not self.enabled and not is_shared:
            _log.warning("Secrets are decrypted in the store, because of --encrypt-secrets=false")
            return self.wrapped(self.rotated(sealed=False))
        if self.warning:
            _log.warning("%s", self.warning)
        first = self.wrapping.load()[0]
        return None if fingerprint(first) == wrapped_by(blob) else self.wrapped(self._ring)

    def _first(self) -> bytes:
        if not self.wrapping.load():
            self.wrapping.make()
        return self.wrapped(self.rotated())

    def rotated(self, *, sealed: bool = True) -> Ring:
        """The ring with a new data key; `sealed` False: with none."""
        return self._ring.rotated(sealed=sealed, now=int(time.time()))

    def wrapped(self, ring: Ring) -> bytes:
        """A ring wrapped with the first wrapping key, as stored. Raises `WrongKey`."""
        return wrap(ring, self.wrapping.load()[0])

    def adopt(self, blob: bytes, *, version: int = 0) -> None:
        """Use the stored ring from now on. Raises `WrongKey`, `Damaged`."""
        self._ring = unwrap(blob, self.wrapping)
        # Dropped keys still open rows that are being read at this moment, or as of an old revision.
        self._ciphers = self._ciphers | {
            number.to_bytes(4): AESGCM(key) for number, key in self._ring.keys.items()
        }
        current = self._ring.current
        self._head = _MAGIC + current.to_bytes(4) if current else b""
        self.version = version

    def clear(self) -> None:
        """Store rows plain from now on: the store has no ring any more."""
        self._ring, self._head, self.version = EMPTY, b"", 0

    # --- rows ---------------------------------------------------------------------------------------------

    def encrypt(self, key: Key, part: bytes, plain: bytes) -> bytes:
        """The byte string to store for `plain`."""
        head = self._head
        if not head or key.bucket not in self.buckets:
            return plain
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + self._ciphers[head[_KEY_AT:]].encrypt(nonce, plain, _place(key, part))

    def decrypt(self, key: Key, part: bytes, kept: bytes) -> bytes:
        """The plain byte string; one that was never encrypted is returned unchanged. Raises `UnknownDataKey`,
        `DamagedRow`."""
        if key.bucket not in self.buckets or not kept.startswith(_MAGIC):
            return kept
        cipher = self._ciphers.get(kept[_KEY_AT:_NONCE_AT])
        if cipher is None:
            raise UnknownDataKey(key, "its data key is missing")
        try:
            return cipher.decrypt(kept[_NONCE_AT:_TEXT_AT], kept[_TEXT_AT:], _place(key, part))
        except (InvalidTag, ValueError) as error:
            raise DamagedRow(key, "it does not decrypt: it was changed, or copied from elsewhere") from error

    def encrypt_row(self, row: Row) -> Row:
        """The row to store."""
        key, revision, meta, body = row
        return Row(key, revision, self.encrypt(key, META, meta), self.encrypt(key, BODY, body))

    def decrypt_row(self, row: Row) -> Row:
        """The plain row. Raises `UnknownDataKey`, `DamagedRow`."""
        key, revision, meta, body = row
        return Row(key, revision, self.decrypt(key, META, meta), self.decrypt(key, BODY, body))

    def is_current(self, *kept: bytes) -> bool:
        """Whether the stored byte strings are encrypted as they would be if they were written now."""
        if not self._head:
            return not any(value.startswith(_MAGIC) for value in kept)
        return all(value.startswith(self._head) for value in kept)


def _place(key: Key, part: bytes) -> bytes:
    return "\0".join(key).encode() + b"\0" + part
