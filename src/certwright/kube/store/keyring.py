"""Keyring for envelope encryption: data keys (DEKs), and the wrapping keys (KEKs) that encrypt them.

Rows are sealed with a *data key*. The data keys are stored beside the rows, in a *ring* that is sealed as a
whole with a *wrapping key*, which is stored elsewhere: in a file, or in an environment variable. So the
wrapping key can be replaced without rewriting a row, and the contents of the store are useless without it.

AES-256-GCM with random nonces (NIST SP 800-38D): a data key is good for 2**32 seals, some two thousand
million writes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from certwright.kube.store.contract import Damaged
from certwright.kube.util.decoders import msgpack_decoder

KEY_BYTES = 32
NONCE_BYTES = 12
_AAD = b"certwright ring of data keys"


class WrongKey(Damaged):
    """The ring cannot be unwrapped with the given wrapping keys. The text names both."""


class WrappingKeys(Protocol):
    """Source of the wrapping keys. The first one wraps; all of them may unwrap."""

    @property
    def source(self) -> str:
        """The file or variable, as the user knows it."""

    def load(self) -> tuple[bytes, ...]:
        """The current keys; empty if the file does not exist. Raises `WrongKey` for unreadable ones."""

    def make(self) -> None:
        """Put a new key before the others, durably. Raises `WrongKey` if that is not possible."""

    def keep_first(self) -> None:
        """Drop all but the first key."""


class Ring(msgspec.Struct, frozen=True, array_like=True):
    """The data keys by their numbers. `current` 0: rows are kept plain. `settled`: every row is sealed with
    `current`, so no other key is needed. `since`: when `current` was chosen, in seconds since 1970."""

    current: int
    keys: Mapping[int, bytes]
    settled: bool
    since: int

    def rotated(self, *, sealed: bool, now: int) -> Ring:
        """The ring with a new data key to seal with, or with none."""
        number = int.from_bytes(os.urandom(4)) | 1 if sealed else 0
        keys = {**self.keys, number: os.urandom(KEY_BYTES)} if sealed else self.keys
        return Ring(number, keys, settled=False, since=now)

    def done(self) -> Ring:
        """The ring without the keys that are not needed any more."""
        keys = {number: key for number, key in self.keys.items() if number == self.current}
        return Ring(self.current, keys, settled=True, since=self.since)


EMPTY = Ring(0, {}, settled=True, since=0)


class _Wrapped(NamedTuple):
    """The stored form of a ring."""

    fingerprint: str
    sealed: bytes


def fingerprint(key: bytes) -> str:
    """The public identifier of a wrapping key."""
    return hashlib.sha256(b"certwright wrapping key" + key).hexdigest()[:16]


def wrap(ring: Ring, key: bytes) -> bytes:
    """The ring sealed with `key`, safe to store anywhere."""
    nonce = os.urandom(NONCE_BYTES)
    sealed = nonce + AESGCM(key).encrypt(nonce, msgspec.msgpack.encode(ring), _AAD)
    return msgspec.msgpack.encode(_Wrapped(fingerprint(key), sealed))


def wrapped_by(blob: bytes) -> str:
    """The fingerprint of the key that wrapped a ring. Raises `Damaged`."""
    return _wrapped(blob).fingerprint


def unwrap(blob: bytes, wrapping: WrappingKeys) -> Ring:
    """The unwrapped ring. Raises `WrongKey`, `Damaged`."""
    wrapped = _wrapped(blob)
    keys = wrapping.load()
    key = next((key for key in keys if fingerprint(key) == wrapped.fingerprint), None)
    if key is None:
        raise WrongKey(_wrong_key(wrapped.fingerprint, keys, wrapping.source))
    nonce, sealed = wrapped.sealed[:NONCE_BYTES], wrapped.sealed[NONCE_BYTES:]
    try:
        return msgpack_decoder(Ring).decode(AESGCM(key).decrypt(nonce, sealed, _AAD))
    except (InvalidTag, ValueError) as error:
        raise Damaged("the data keys were modified without the key: restore a backup") from error


def _wrapped(blob: bytes) -> _Wrapped:
    try:
        return msgpack_decoder(_Wrapped).decode(blob)
    except msgspec.MsgspecError as error:
        raise Damaged(f"the data keys cannot be read ({error}): restore a backup") from error


def _wrong_key(expected: str, keys: tuple[bytes, ...], source: str) -> str:
    has = f"holds {', '.join(map(fingerprint, keys))}" if keys else "has no key, or is missing"
    return (
        f"Secrets are sealed with the key of fingerprint {expected}, and {source} {has}: put the right key"
        " there, or name its file with --encryption-key-file"
    )
