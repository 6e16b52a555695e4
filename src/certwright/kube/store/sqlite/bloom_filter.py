"""Bloom filter of keys: a compact set with false positives, but no false negatives.

Source: B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13(7), 1970.
"""

from __future__ import annotations

from collections.abc import Collection

from certwright.kube.store.contract import Key


class KeyFilter:
    """Eight bits a key for up to `capacity` (a power of two). At capacity one of twenty other keys is a false
    positive, and more beyond it. `added` counts the keys added."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.added = 0
        self._bits = bytearray(capacity)
        self._mask = 8 * capacity - 1

    def add(self, key: Key) -> None:
        """Add a key."""
        self.add_all((key,))

    def add_all(self, keys: Collection[tuple[str, str, str]]) -> None:
        """Add keys; plain tuples of a `Key`'s fields are accepted."""
        self.added += len(keys)
        bits, mask = self._bits, self._mask
        for hashed in map(hash, keys):
            first, other = hashed & mask, (hashed >> 32) & mask
            bits[first >> 3] |= 1 << (first & 7)
            bits[other >> 3] |= 1 << (other & 7)

    def __contains__(self, key: Key) -> bool:
        """False: the key was certainly not added."""
        hashed, mask, bits = hash(key), self._mask, self._bits
        first, other = hashed & mask, (hashed >> 32) & mask
        return bool(bits[first >> 3] >> (first & 7) & bits[other >> 3] >> (other & 7) & 1)
