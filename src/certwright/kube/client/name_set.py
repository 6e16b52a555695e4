"""Very many names, of which nothing is to be known but whether they are there: some 70 bytes each.

Only a hash of each is held. Two names of a million have the same one with a probability of 10⁻⁷; the one of
them is then taken for there as long as the other is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from certwright.kube.api.meta import ObjectKey

_THERE = 0


class Names:
    """Names that are there, and names that have left but may be somewhere else.

    One that has left stays in the set until everybody who might know of it has come as far as the revision at
    which it left (`forget_until`): whoever finds a name here asks the server.
    """

    def __init__(self) -> None:
        self._left_at: dict[int, float] = {}
        self._leaving: deque[tuple[float, int]] = deque()

    def __len__(self) -> int:
        return len(self._left_at)

    def __contains__(self, key: ObjectKey) -> bool:
        return hash(key) in self._left_at

    def add(self, key: ObjectKey) -> None:
        """The name is there."""
        self._left_at[hash(key)] = _THERE

    def left_at(self, key: ObjectKey) -> float | None:
        """0 for one that is there, else the revision at which it left; None where nothing is known."""
        return self._left_at.get(hash(key))

    def leave(self, key: ObjectKey, revision: int) -> None:
        """The name left at that revision (0: unknown, which keeps it until it is discarded)."""
        self._leave(hash(key), revision or math.inf)

    def discard(self, key: ObjectKey) -> None:
        """Nothing needs to be known of the name any more."""
        self._left_at.pop(hash(key), None)

    def retain(self, listed: Names, revision: int) -> None:
        """All that are there and not `listed` left at that revision, or before it; 0: unknown."""
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
    """Which of very many names have a value: some 250 bytes each. Of the values only a hash is held, so that
    a name may be found by another value too."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[ObjectKey, ...]] = {}

    def keys(self, value: str) -> Sequence[ObjectKey]:
        """The names that have it."""
        return self._keys.get(hash(value), ())

    def add(self, value: str, key: ObjectKey) -> None:
        """The name has that value, maybe among others."""
        there = self._keys.get(hash(value), ())
        if key not in there:
            self._keys[hash(value)] = (*there, key)

    def discard(self, value: str, key: ObjectKey) -> None:
        """The name has it no longer."""
        left = tuple(one for one in self._keys.get(hash(value), ()) if one != key)
        if left:
            self._keys[hash(value)] = left
        else:
            self._keys.pop(hash(value), None)
