"""Filtered informer: leaves objects out by a predicate on their bytes.

Of an object left out, the informer knows that its name exists (`others`), so that the object can be fetched
when it begins to matter; and, if requested, a value to find it by.

A selector may split a kind between two informers (`split_with`). An object that moves leaves one informer and
enters the other, in any order, because their watches are independent. So a name that has left an informer
stays in `others` until both have reached the revision at which it left.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, Unpack

import msgspec

from certwright.kube.api.errors import ApiError
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import ObjectKey, ObjectMeta, OwnerReference, Struct
from certwright.kube.client.cache import key_of, parse_revision
from certwright.kube.client.informer import Informer, InformerOptions, identity
from certwright.kube.client.reflector import Answer
from certwright.kube.client.rest import Client
from certwright.kube.client.watch import RawEvent, identify
from certwright.kube.util.clock import Clock
from certwright.kube.util.multi_map import MultiMap

T = TypeVar("T")


class PartialInformer(Informer[T]):
    """Informer for the objects of one kind that `keep` accepts; each event is tested again.

    Handlers are notified a last time when a cached object is no longer accepted. `found_by` returns the value
    by which `others_by` finds an object left out. Own writes are always cached.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        clock: Clock,
        *,
        keep: Callable[[msgspec.Raw], bool],
        found_by: Callable[[msgspec.Raw], str] | None = None,
        **options: Unpack[InformerOptions[T]],
    ) -> None:
        super().__init__(client, kind, clock, **options)
        self.others = Names()
        self._keep = keep
        self._index_value = found_by
        self._by_value = NamesByValue()
        self._elsewhere: Informer[Any] | None = None
        self._listed_others = Names()
        self._listed_by_value = NamesByValue()

    def split_with(self, elsewhere: Informer[Any]) -> None:
        """Declare that objects may move between this informer and `other`."""
        self._elsewhere = elsewhere

    def others_by(self, value: str) -> Sequence[ObjectKey]:
        """The names of objects left out with that value, or that had it before they were cached."""
        return self._by_value.keys(value)

    def discard_value(self, value: str, key: ObjectKey) -> None:
        """Record that the object of that name does not have this value any more, or is deleted."""
        self._by_value.discard(value, key)

    def put(self, obj: T) -> None:
        """Store the response to an own write, or an object that was fetched because it matters."""
        if self.cache.accepts(obj):
            self.others.discard(key_of(obj))
        super().put(obj)

    def _apply_state(self, raw: msgspec.Raw) -> None:
        if self._keep(raw):
            super()._apply_state(raw)
            return
        key = self._pass_by(raw, rewound=False)
        if self._index_value is not None:
            self._by_value.add(self._index_value(raw), key)

    def _pass_by(self, raw: msgspec.Raw, *, rewound: bool) -> ObjectKey:
        who = identify(raw)
        key, revision = who.key, parse_revision(who.resource_version)
        cached = self.cache.revision(key)
        newest = self.cache.tombstone_revision(key) if cached is None else cached
        if revision and revision <= newest and not rewound:
            return key
        if cached is not None and (obj := self._decode(raw)) is not None:
            self._notify(self.cache.overwrite(obj), obj)
        self._evict(key)
        return key

    def _evict(self, key: ObjectKey) -> None:
        self.cache.remove(key, 0)
        self.others.add(key)

    def _deleted(self, event: RawEvent) -> None:
        super()._deleted(event)
        if self._index_value is not None:
            self._by_value.discard(self._index_value(event.object), event.who.key)

    def _tidy(self) -> None:
        if self._elsewhere is not None:
            self.others.forget_until(min(self.revision, self._elsewhere.revision))

    def _is_missed(self, raw: msgspec.Raw, delivered: int, until: int) -> bool:
        # The state of the left-out objects is not recorded.
        is_other = self.others.left_at(identity(raw)) == 0
        return not is_other and super()._is_missed(raw, delivered, until)

    def _begin_list(self) -> None:
        super()._begin_list()
        self._listed_others, self._listed_by_value = Names(), NamesByValue()

    def _load(self, items: list[msgspec.Raw], *, rewound: bool) -> None:
        kept = []
        for raw in items:
            if self._keep(raw):
                kept.append(raw)
                continue
            key = self._pass_by(raw, rewound=rewound)
            self._listed_others.add(key)
            if self._index_value is not None:
                self._listed_by_value.add(self._index_value(raw), key)
        super()._load(kept, rewound=rewound)

    def _add_listed(self, obj: T, *, rewound: bool) -> None:
        if rewound or self.cache.accepts(obj):
            self.others.discard(key_of(obj))
        super()._add_listed(obj, rewound=rewound)

    def _prune(self, revision: int) -> None:
        # Objects that became relevant during the list.
        self._listed.update(filter(self._listed_others.__contains__, self.cache.keys()))
        if self._elsewhere is None:
            self.others = self._listed_others
        else:
            self.others.retain(self._listed_others, revision)
        self._listed_others = Names()
        self._by_value, self._listed_by_value = self._listed_by_value, NamesByValue()
        super()._prune(revision)
        self._tidy()

    def _went(self, key: ObjectKey, old: T | None, revision: int) -> None:
        self._tidy()
        if old is not None or self.others.left_at(key) == 0:
            if self._elsewhere is None:
                self.others.discard(key)
            else:
                # Before handlers are notified, and look the name up.
                self.others.leave(key, revision)
        super()._went(key, old, revision)


def follow_some(
    client: Client,
    kind: Kind[T],
    clock: Clock,
    *,
    keep: Callable[[msgspec.Raw], bool] | None,
    found_by: Callable[[msgspec.Raw], str] | None = None,
    **options: Unpack[InformerOptions[T]],
) -> Informer[T]:
    """A filtered informer with `keep`; an informer of all objects if `keep` is None."""
    if keep is None:
        return Informer(client, kind, clock, **options)
    return PartialInformer(client, kind, clock, keep=keep, found_by=found_by, **options)


_THERE = 0


class Names:
    """Compact set of object names, of some 70 bytes each: names that exist, and names that have left but may
    exist in another informer.

    A name that has left stays in the set until all informers have reached the revision at which it left
    (`forget_until`). The caller fetches objects with a name in the set from the server. Only hashes are
    stored: with a probability of 10⁻⁷, two of a million names share a hash, and one of them is then taken to
    exist as long as the other.
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
        """0 if the name exists, else the revision at which it left; None if the name is unknown."""
        return self._left_at.get(hash(key))

    def leave(self, key: ObjectKey, revision: int) -> None:
        """Record that the name left at that revision (0: unknown; the name then stays until it is
        discarded)."""
        self._leave(hash(key), revision or math.inf)

    def discard(self, key: ObjectKey) -> None:
        """Drop the name."""
        self._left_at.pop(hash(key), None)

    def retain(self, listed: Names, revision: int) -> None:
        """Record that all names except the `listed` ones left at that revision or before; 0: unknown."""
        for name in list(self._others(listed)):
            self._leave(name, revision or math.inf)

    def forget_until(self, revision: int) -> None:
        """Drop the names that left at that revision or before."""
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
        self._keys = MultiMap[int, ObjectKey]()

    def keys(self, value: str) -> Sequence[ObjectKey]:
        """The names with that value."""
        return self._keys.of(hash(value))

    def add(self, value: str, key: ObjectKey) -> None:
        """Add a value of the name, which may have others."""
        self._keys.add(hash(value), key)

    def discard(self, value: str, key: ObjectKey) -> None:
        """Remove a value of the name."""
        self._keys.discard(hash(value), key)


class Identity(Struct, frozen=True):
    """The identity of an object, its resourceVersion and its owners."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class Identified(Struct, frozen=True):
    """An object of any kind, reduced to its identity."""

    metadata: Identity = Identity()

    @classmethod
    def of(cls, meta: ObjectMeta) -> Identified:
        """The identity of an object."""
        identity = Identity(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            owner_references=meta.owner_references,
        )
        return cls(metadata=identity)


def identities(kind: AnyKind) -> Kind[Identified]:
    """The kind, its objects cached as `Identified`."""
    return msgspec.structs.replace(kind, type=Identified)


class SelectiveInformer(PartialInformer[T]):
    """Metadata-only informer, for kinds with very many objects of which few matter.

    It fetches metadata only, and caches the metadata of objects that `keep` accepts; `kind.type` is the
    cached form. Handlers are notified of cached objects, and of their last change. If a selector splits the
    kind between this informer and `elsewhere`, the first list is requested at the revision of `elsewhere`.

    Source: Kubernetes API concepts, "Metadata-only fetches".
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        clock: Clock,
        *,
        keep: Callable[[msgspec.Raw], bool],
        elsewhere: Informer[Any] | None = None,
        **options: Unpack[InformerOptions[T]],
    ) -> None:
        options["metadata_only"] = True
        super().__init__(client, kind, clock, keep=keep, **options)
        if elsewhere is not None:
            self.split_with(elsewhere)

    def take(self, obj: T) -> None:
        """Cache a fetched object; handlers are not notified."""
        self.others.discard(key_of(obj))
        self.cache.upsert(obj)

    def release(self, key: ObjectKey) -> None:
        """Drop an object that no longer matters."""
        self._evict(key)
        if key in self._listed:
            self._listed_others.add(key)

    def moved_out(self, key: ObjectKey, revision: int) -> None:
        """Record that the object was observed `elsewhere` at that revision; handlers are not notified."""
        if key in self.others or key in self.cache:
            self.cache.remove(key, revision)
            self.others.discard(key)

    def may_move_in(self, key: ObjectKey, revision: int) -> None:
        """Record that the object left `elsewhere` at that revision (0: unknown), and may be here."""
        self._tidy()
        if key not in self.cache and self.others.left_at(key) != 0:
            self.others.leave(key, revision)

    async def _list_page(self, token: str, limit: int) -> Answer:
        if token or not limit or self._elsewhere is None or self.synced.is_set():
            return await super()._list_page(token, limit)
        # Start at the same revision, because an object that moves between two lists would be in neither.
        await self._elsewhere.synced.wait()
        self._begin_list()
        revision = str(self._elsewhere.revision or "")
        page = await self._fetch_page("", limit, metadata_only=True, resource_version=revision)
        # A server may have dropped the revision.
        return await super()._list_page(token, limit) if isinstance(page, ApiError) and revision else page
