"""Multimap: several values for a key, where most keys have one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class MultiMap(Generic[K, V]):
    """The values of each key, without duplicates, in the order in which they were added. A single value needs
    no set; values MUST NOT be dicts."""

    def __init__(self) -> None:
        self._values: dict[K, V | dict[V, None]] = {}

    def __contains__(self, key: K) -> bool:
        """Whether the key has any value."""
        return key in self._values

    def of(self, key: K) -> Sequence[V]:
        """The values of the key."""
        values = self._values.get(key)
        if values is None:
            return ()
        return tuple(values) if isinstance(values, dict) else (values,)

    def add(self, key: K, value: V) -> None:
        """Add a value, unless the key has it."""
        values = self._values.setdefault(key, value)
        if isinstance(values, dict):
            values[value] = None
        elif values != value:
            self._values[key] = {values: None, value: None}

    def discard(self, key: K, value: V) -> None:
        """Remove a value, if the key has it."""
        values = self._values.get(key)
        if isinstance(values, dict):
            values.pop(value, None)
        if values == value or values == {}:
            del self._values[key]
