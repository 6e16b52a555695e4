"""Seals for tests of stores."""

from __future__ import annotations

import os

from certwright.kube.store.envelope import Seal
from certwright.kube.store.keyring import KEY_BYTES

SECRETS = "secrets"


class Keys:
    """Wrapping keys in memory (`keyring.WrappingKeys`)."""

    source = "the keys of a test"

    def __init__(self, *keys: bytes) -> None:
        self.keys = keys

    def load(self) -> tuple[bytes, ...]:
        return self.keys

    def make(self) -> None:
        self.keys = (os.urandom(KEY_BYTES), *self.keys)

    def keep_first(self) -> None:
        self.keys = self.keys[:1]


def seal_with(keys: Keys, *buckets: str, wanted: bool = True) -> Seal:
    """A seal for Secrets, or for other buckets."""
    return Seal(buckets or (SECRETS,), keys, enabled=wanted)
