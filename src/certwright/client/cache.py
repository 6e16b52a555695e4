"""A local copy of the objects of one kind, with indexes.

The copy only moves forward: an object is replaced by one with a higher resourceVersion only. So the answer to
an own write can be put in before the watch brings it, and what the watch brings late does no harm. Comparing
resourceVersions as integers: Kubernetes API concepts, "Resource versions" (KEP-5504).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from certwright.resources.meta import ObjectKey

T = TypeVar("T")
Indexer = Callable[[T], Iterable[str]]
"""The values under which an object is to be found; none is allowed."""

_log = logging.getLogger(__name__)

# A tombstone is needed for as long as an answer to an own write may come later than the news of the deletion,
# which is seconds; this many deletions of one kind in that time do not happen.
_TOMBSTONES = 1024


def key_of(obj: Any) -> ObjectKey:
    """Namespace and name of a struct or of a plain dict."""
    if isinstance(obj, dict):
        meta = obj.get("metadata") or {}
        return ObjectKey(meta.get("namespace", ""), meta.get("name", ""))
    meta = obj.metadata
    return ObjectKey(meta.namespace, meta.name)


def revision_of(obj: Any) -> int:
    """The resourceVersion of a struct or of a plain dict as a number; 0 where there is none."""
    if isinstance(obj, dict):
        return parse_revision((obj.get("metadata") or {}).get("resourceVersion", ""))
    return parse_revision(obj.metadata.resource_version)


def parse_revision(text: str) -> int:
    """A resourceVersion as a number; 0 for one that is empty or not a number."""
    try:
        return int(text)
    except ValueError:
        return 0


class Cache(Generic[T]):
    """Objects by key, and by the values that the `indexers` give."""

    def __init__(self, indexers: Mapping[str, Indexer[T]] | None = None) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._indexers = dict(indexers or {})
        self._indexes: dict[str, dict[str, dict[ObjectKey, T]]] = {name: {} for name in self._indexers}
        self._tombstones: dict[ObjectKey, int] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def get(self, key: ObjectKey) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def values(self) -> Iterator[T]:
        """All objects, in no particular order; the cache must not change meanwhile."""
        return iter(self._objects.values())

    def keys(self) -> Iterator[ObjectKey]:
        """All keys, in no particular order; the cache must not change meanwhile."""
        return iter(self._objects)

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects that the indexer gave this value for. Raises `KeyError` for an unknown index."""
        bucket = self._indexes[index].get(value)
        return list(bucket.values()) if bucket else []

    def accepts(self, obj: T) -> bool:
        """Whether `upsert` would change anything: the object is newer than what is held, or than its own
        deletion. One whose resourceVersion is not a number is always news."""
        revision = revision_of(obj)
        key = key_of(obj)
        old = self._objects.get(key)
        if old is None:
            return not revision or revision > self._tombstones.get(key, 0)
        return not revision or revision > revision_of(old)

    def upsert(self, obj: T) -> T | None:
        """Take the object in and return the one it replaced. One that is not `accepts`ed is ignored, and the
        one held is returned."""
        if not self.accepts(obj):
            return self._objects.get(key_of(obj))
        return self.overwrite(obj)

    def overwrite(self, obj: T) -> T | None:
        """Take the object in, newer or not, and return the one it replaced: for a server whose history has
        gone back (restored from a backup)."""
        key = key_of(obj)
        old = self._objects.get(key)
        if self._indexers:
            self._index(key, old, obj)
        self._objects[key] = obj
        self._tombstones.pop(key, None)
        return old

    def remove(self, key: ObjectKey, revision: int) -> T | None:
        """Drop the object that was deleted at `revision` (0: unknown) and return it; None when it is not
        there, or is newer than that: deleted and made again."""
        old = self._objects.get(key)
        if revision and old is not None and revision_of(old) > revision:
            return None
        if revision:
            self._bury(key, revision)
        if old is not None:
            del self._objects[key]
            self._index(key, old, None)
        return old

    def replace(self, objects: Iterable[T], revision: int) -> list[T]:
        """Make the cache what a list at `revision` says; returns what vanished."""
        seen = set()
        for obj in objects:
            self.upsert(obj)
            seen.add(key_of(obj))
        return self.retain(seen, revision)

    def retain(self, seen: set[ObjectKey], revision: int) -> list[T]:
        """Drop what a list at `revision` (0: whatever its revision) did not have, and return it. What is
        newer than the list (an own write) stays."""
        gone = [key for key in self._objects if key not in seen]
        removed = [self.remove(key, revision) for key in gone]
        return [obj for obj in removed if obj is not None]

    def _bury(self, key: ObjectKey, revision: int) -> None:
        self._tombstones.pop(key, None)
        self._tombstones[key] = revision
        if len(self._tombstones) > _TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]

    def _index(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            after = () if new is None else self._values(name, indexer, key, new)
            if old is not None:
                self._unindex(index, key, set(self._values(name, indexer, key, old)).difference(after))
            if new is not None:
                for value in after:
                    index.setdefault(value, {})[key] = new

    def _unindex(self, index: dict[str, dict[ObjectKey, T]], key: ObjectKey, values: Iterable[str]) -> None:
        for value in values:
            bucket = index.get(value)
            if bucket is not None:
                bucket.pop(key, None)
                if not bucket:
                    del index[value]

    def _values(self, name: str, indexer: Indexer[T], key: ObjectKey, obj: T) -> tuple[str, ...]:
        try:
            return tuple(indexer(obj))
        except Exception:
            # A bug there must not stop the copy from following the server.
            _log.exception("index %s: cannot place %s", name, key)
            return ()
