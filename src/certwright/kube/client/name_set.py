"""Compact set of object names: some 70 bytes each.

Only a hash of each is stored. Two names of a million have the same one with a probability of 10⁻⁷; one of
them is then taken to exist as long as the other does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from certwright.kube.api.meta import ObjectKey

_THERE = 0


class Names:
    """Names that exist, and names that have left but may exist in another informer.

    One that has left stays in the set until all informers have reached the revision at which it left
    (`forget_until`); the caller fetches a name in the set from the server.
    """

    def __init__(self) -> None:
        self._left_at: dict[int, float] = {}
        self._leaving: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._left_at)

    def __contains__(self, key: ObjectKey) -> bool:
        return hash(key) in self._left_at

    def add(self, key: ObjectKey) -> None:
        """Record that the name exists."""
        self._left_at[hash(key)] = _THERE

    def left_at(self, key: ObjectKey) -> float | None:
        """0 if the name exists, else the revision at which it left; None if it is unknown."""
        return self._left_at.get(hash(key))

    def leave(self, key: ObjectKey, revision: int) -> None:
        """Record that the name left at that revision (0: unknown, which keeps it until it is discarded)."""
        self._leave(hash(key), revision or math.inf)

    def discard(self, key: ObjectKey) -> None:
        """Drop the name."""
        self._left_at.pop(hash(key), None)

    def retain(self, listed: Names, revision: int) -> None:
        """Record that all names that are not `listed` left at that revision, or before it; 0: unknown."""
        for name in list(self._others(listed)):
            self._leave(name, revision or math.inf)

    def forget_until(self, revision: int) -> None:
        """Drop those that left at that revision or before it."""
        while self._leaving and self._leaving[0][0] <= revision:
            left_at, name = self._leaving.popleft()
            # It may have come back, and have left again.
            if self._left_at.get(name) == left_at:
                del self._left_at[name]

    def _leave(self, name: int, revision: float) -> None:
        self._left_at[name] = revision
        if revision != math.inf:
            self._leaving.append((revision, name))

    def _others(self, listed: Names) -> Iterator[int]:
        return (
            name for name, left in self._left_at.items() if left == _THERE and name not in listed._left_at
        )


class NamesByValue:
    """Index of very many names by value: some 250 bytes each. Only a hash of each value is stored, so that a
    name may be found by another value too."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[ObjectKey, ...]] = {}

    def keys(self, value: str) -> Sequence[ObjectKey]:
        """The names with that value."""
        return self._keys.get(hash(value), ())

    def add(self, value: str, key: ObjectKey) -> None:
        """Add a value of the name, which may have others."""
        there = self._keys.get(hash(value), ())
        if key not in there:
            self._keys[hash(value)] = (*there, key)

    def discard(self, value: str, key: ObjectKey) -> None:
        """Remove a value of the name."""
        left = tuple(other for other in self._keys.get(hash(value), ()) if other != key)
        if left:
            self._keys[hash(value)] = left
        else:
            self._keys.pop(hash(value), None)
