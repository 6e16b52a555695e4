"""In-memory index from owner to dependents: some 300 bytes for an owner with one dependent, as most have."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from certwright.kube.store.contract import Key


class Dependents:
    """By the uid of an owner, the keys of its dependents, in the order in which they were added."""

    def __init__(self) -> None:
        self._of: dict[str, Key | dict[Key, None]] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the owner has dependents."""
        return uid in self._of

    def of(self, uid: str) -> Sequence[Key]:
        """The dependents of that owner."""
        dependents = self._of.get(uid)
        if dependents is None:
            return ()
        return (dependents,) if isinstance(dependents, Key) else tuple(dependents)

    def add(self, uid: str, key: Key) -> None:
        """Add a dependent."""
        # There are few namespaces.
        key = Key(key.bucket, sys.intern(key.namespace), key.name)
        dependents = self._of.setdefault(uid, key)
        if isinstance(dependents, dict):
            dependents[key] = None
        elif dependents != key:
            self._of[uid] = {dependents: None, key: None}

    def discard(self, uid: str, key: Key) -> None:
        """Remove a dependent, if it is known."""
        dependents = self._of.get(uid)
        if isinstance(dependents, dict):
            dependents.pop(key, None)
        if dependents == key or dependents == {}:
            del self._of[uid]
