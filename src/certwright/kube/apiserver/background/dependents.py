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
        found = self._of.get(uid)
        if found is None:
            return ()
        return (found,) if isinstance(found, Key) else tuple(found)

    def add(self, uid: str, key: Key) -> None:
        """Add a dependent."""
        # There are few namespaces.
        key = Key(key.bucket, sys.intern(key.namespace), key.name)
        found = self._of.setdefault(uid, key)
        if isinstance(found, dict):
            found[key] = None
        elif found != key:
            self._of[uid] = {found: None, key: None}

    def discard(self, uid: str, key: Key) -> None:
        """Remove a dependent, if it is known."""
        found = self._of.get(uid)
        if isinstance(found, dict):
            found.pop(key, None)
        if found == key or found == {}:
            del self._of[uid]
