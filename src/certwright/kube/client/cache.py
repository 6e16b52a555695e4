"""Object cache of one kind, with indexes.

The cache only moves forward: an object is replaced only by one with a higher resourceVersion. So the response
to an own write can be put in before its watch event arrives, and late watch events do no harm. Comparing
resourceVersions as integers: Kubernetes API concepts, "Resource versions" (KEP-5504).
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.compressed import PackedObjects, Packing
from certwright.kube.util.multi_map import MultiMap

T = TypeVar("T")
Indexer = Callable[[T], Iterable[str]]
"""Index function: the values under which an object is indexed, possibly none."""

_Places = list[tuple[str, ...]]
"""For each index the values under which one object is indexed."""

_log = logging.getLogger(__name__)

# A tombstone is needed for as long as the response to an own write may come after the watch event of the
# deletion, which is seconds; this many deletions of one kind in that time do not happen.
_TOMBSTONES = 1024

# Of objects that all stay decoded.
_NOT_PACKED: Packing[Any] = Packing(lambda _: b"", lambda _: None)


def key_of(obj: Any) -> ObjectKey:
    """Namespace and name of a struct or of a plain dict."""
    if isinstance(obj, dict):
        meta = obj.get("metadata") or {}
        return ObjectKey(meta.get("namespace", ""), meta.get("name", ""))
    meta = obj.metadata
    # One string shared by all objects of a namespace.
    return ObjectKey(sys.intern(meta.namespace), meta.name)


def revision_of(obj: Any) -> int:
    """The resourceVersion of a struct or of a plain dict as a number; 0 if it has none."""
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
    """Objects by key, and by the values of the `indexers`. With a `packing` idle objects take little memory,
    and some ten microseconds to read."""

    def __init__(
        self, indexers: Mapping[str, Indexer[T]] | None = None, *, packing: Packing[T] | None = None
    ) -> None:
        self._objects: PackedObjects[T] = (
            PackedObjects(packing) if packing is not None else PackedObjects(_NOT_PACKED, fresh=math.inf)
        )
        self._indexers = dict(indexers or {})
        self._indexes = {name: MultiMap[str, ObjectKey]() for name in self._indexers}
        self._nowhere: _Places = [()] * len(self._indexers)
        self._tombstones: dict[ObjectKey, int] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def get(self, key: ObjectKey) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def revision(self, key: ObjectKey) -> int | None:
        """The resourceVersion of the object as a number (0: none); None on a cache miss."""
        return self._objects.revision(key)

    def note(self, key: ObjectKey) -> int:
        """The packing's note of the object; 0 on a cache miss, or without a packing."""
        return self._objects.note(key)

    def tombstone_revision(self, key: ObjectKey) -> int:
        """The revision of a recent deletion of that name, from its tombstone; 0 without a tombstone."""
        return self._tombstones.get(key, 0)

    def values(self) -> Iterator[T]:
        """A snapshot of all objects, in no particular order."""
        return self._objects.freeze()()

    def freeze(self) -> Callable[[], Iterator[T]]:
        """As `values`, but can be iterated repeatedly, and in another thread too."""
        return self._objects.freeze()

    def keys(self) -> Iterator[ObjectKey]:
        """All keys, in no particular order; the cache must not change during the iteration."""
        return iter(self._objects)

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects for which the indexer returned this value. Raises `KeyError` for an unknown index."""
        keys = self._indexes[index].of(value)
        return [obj for key in keys if (obj := self._objects.get(key)) is not None]

    def keys_by_index(self, index: str, value: str) -> Sequence[ObjectKey]:
        """The keys of what `by_index` returns."""
        return self._indexes[index].of(value)

    def has(self, index: str, value: str) -> bool:
        """Whether any object has this value. Raises `KeyError` for an unknown index."""
        return value in self._indexes[index]

    def accepts(self, obj: T, key: ObjectKey | None = None) -> bool:
        """Whether `upsert` would change anything: the object is newer than the cached object, or than its
        tombstone. An object whose resourceVersion is not a number is always accepted. `key`: the object's
        key."""
        revision = revision_of(obj)
        key = key or key_of(obj)
        cached = self._objects.revision(key)
        if cached is None:
            cached = self._tombstones.get(key, 0)
        return not revision or revision > cached

    def upsert(self, obj: T) -> T | None:
        """Store the object and return its predecessor. An object that is not `accepts`ed is ignored, and the
        cached object is returned."""
        if not self.accepts(obj):
            return self._objects.get(key_of(obj))
        return self.overwrite(obj)

    def overwrite(self, obj: T, key: ObjectKey | None = None) -> T | None:
        """Store the object, newer or not, and return its predecessor: for a server whose history has gone
        back (restored from a backup). `key`: the object's key, which is stored with it."""
        key = key or key_of(obj)
        old = self._objects.get(key)
        if self._indexers:
            self._index(key, old, obj)
        self._objects.put(key, obj, revision_of(obj))
        if self._tombstones:
            self._tombstones.pop(key, None)
        return old

    def remove(self, key: ObjectKey, revision: int) -> T | None:
        """Remove the object that was deleted at `revision` (0: unknown) and return it; None on a cache miss,
        or if the cached object is newer: deleted and created again."""
        if revision and (self._objects.revision(key) or 0) > revision:
            return None
        if revision:
            self._bury(key, revision)
        old = self._objects.get(key)
        if old is not None:
            self._objects.drop(key)
            self._index(key, old, None)
        return old

    def replace(self, objects: Iterable[T], revision: int) -> list[T]:
        """Replace the contents by a list at `revision`; returns the removed objects."""
        seen = set()
        for obj in objects:
            self.upsert(obj)
            seen.add(key_of(obj))
        return self.retain(seen, revision)

    def retain(self, seen: set[ObjectKey], revision: int) -> list[T]:
        """Remove the objects missing from a list at `revision` (0: whatever its revision), and return them.
        Objects newer than the list (own writes) stay."""
        gone = [key for key in self._objects if key not in seen]
        removed = [self.remove(key, revision) for key in gone]
        return [obj for obj in removed if obj is not None]

    def _bury(self, key: ObjectKey, revision: int) -> None:
        self._tombstones.pop(key, None)
        self._tombstones[key] = revision
        if len(self._tombstones) > _TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]

    def _index(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        before = self._nowhere if old is None else self._places(key, old)
        after = self._nowhere if new is None else self._places(key, new)
        if before == after:
            return
        for index, left, entered in zip(self._indexes.values(), before, after, strict=True):
            for value in left:
                if value not in entered:
                    index.discard(value, key)
            for value in entered:
                if value not in left:
                    index.add(value, key)

    def _places(self, key: ObjectKey, obj: T) -> _Places:
        places: _Places = []
        for name, indexer in self._indexers.items():
            try:
                places.append(tuple(indexer(obj)))
            except Exception:
                # A bug there must not stop the cache from following the server.
                _log.exception("index %s: cannot place %s", name, key)
                places.append(())
        return places
