"""Envelope encryption of rows: seals the rows of some buckets on their way to the disk, and opens them.

A row's two byte strings are sealed separately, so that metadata can be read alone. Each is bound to its key
and to its part, so a copy elsewhere does not open. Byte strings that are not sealed are read as they are, so
that an existing plain store can be read while it is being sealed.
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
    """The row was sealed with a data key that is not in the ring: a newer one, perhaps."""


class Seal:
    """Seals the rows of `buckets`, and opens them.

    `enabled`: the server's flag; the ring decides whether rows are sealed. May be used by several threads;
    `adopt`, `drop` and `begin` by one at a time.
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
        """Why the store is not as the flag says; empty if it is."""
        if self.enabled == bool(self._ring.current):
            return ""
        return _NOT_ENCRYPTED if self.enabled else _ENCRYPTED

    # --- the ring -----------------------------------------------------------------------------------------

    def begin(self, blob: bytes | None, *, version: int = 0, is_shared: bool = False) -> bytes | None:
        """Load the ring from a store (None: it has none). Returns the ring to store instead, if it differs:
        `adopt` it once it is stored. Raises `WrongKey`, `Damaged`.

        `is_shared`: other servers may use the store, so the flag of one does not decrypt it."""
        if blob is None:
            return self._first() if self.enabled else None
        self.adopt(blob, version=version)
        if self.enabled and not self._ring.current:
            return self.wrapped(self.turned())
        if self._ring.current and not self.enabled and not is_shared:
            _log.warning("Secrets are decrypted in the store, because of --encrypt-secrets=false")
            return self.wrapped(self.turned(sealed=False))
        if self.warning:
            _log.warning("%s", self.warning)
        first = self.wrapping.load()[0]
        return None if fingerprint(first) == wrapped_by(blob) else self.wrapped(self._ring)

    def _first(self) -> bytes:
        if not self.wrapping.load():
            self.wrapping.make()
        return self.wrapped(self.turned())

    def turned(self, *, sealed: bool = True) -> Ring:
        """The ring with a new data key, or with none."""
        return self._ring.turned(sealed=sealed, now=int(time.time()))

    def wrapped(self, ring: Ring) -> bytes:
        """A ring wrapped with the first key, as stored. Raises `WrongKey`."""
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

    def drop(self) -> None:
        """The store has no ring any more: keep rows plain."""
        self._ring, self._head, self.version = EMPTY, b"", 0

    # --- rows ---------------------------------------------------------------------------------------------

    def close(self, key: Key, part: bytes, plain: bytes) -> bytes:
        """`plain` as it may be stored on disk."""
        head = self._head
        if not head or key.bucket not in self.buckets:
            return plain
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + self._ciphers[head[_KEY_AT:]].encrypt(nonce, plain, _place(key, part))

    def open(self, key: Key, part: bytes, kept: bytes) -> bytes:
        """The opened byte string; one that was never sealed, as it is. Raises `UnknownDataKey`,
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

    def close_row(self, row: Row) -> Row:
        """A row as it may be stored on disk."""
        key, revision, meta, body = row
        return Row(key, revision, self.close(key, META, meta), self.close(key, BODY, body))

    def open_row(self, row: Row) -> Row:
        """The opened row. Raises `UnknownDataKey`, `DamagedRow`."""
        key, revision, meta, body = row
        return Row(key, revision, self.open(key, META, meta), self.open(key, BODY, body))

    def is_current(self, *kept: bytes) -> bool:
        """Whether the stored byte strings are sealed as they would be if they were written now."""
        if not self._head:
            return not any(value.startswith(_MAGIC) for value in kept)
        return all(value.startswith(self._head) for value in kept)


def _place(key: Key, part: bytes) -> bytes:
    return "\0".join(key).encode() + b"\0" + part
