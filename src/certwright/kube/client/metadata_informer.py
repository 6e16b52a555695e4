"""Metadata-only informer, for kinds with very many objects of which few matter.

Only metadata is fetched, and cached only for objects that `keep` accepts. Of the others the informer
only knows that an object of that name exists (`others`), so that a name which matters later can be fetched
from the server, and a missing one need not be.

If a selector splits the kind between this informer and another one, `elsewhere` (see `filtered_informer.py`),
the first list is requested at the revision of the other informer.

Source: Kubernetes API concepts, "Metadata-only fetches".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

import msgspec

from certwright.kube.api.errors import ApiError
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import ObjectKey, ObjectMeta, OwnerReference, Struct
from certwright.kube.client.cache import key_of
from certwright.kube.client.filtered_informer import PartialInformer
from certwright.kube.client.informer import Informer, InformerOptions
from certwright.kube.client.reflector import Answer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock

T = TypeVar("T")


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
    """Follows the metadata of one kind; `kind.type` is the cached form. Handlers are notified of objects that
    are kept, and if one was cached, of its last change."""

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
        """Cache an object that was fetched because it matters; handlers are not notified."""
        self.others.discard(key_of(obj))
        self.cache.upsert(obj)

    def release(self, key: ObjectKey) -> None:
        """Drop an object that no longer matters."""
        self._evict(key)
        if key in self._listed:
            self._listed_others.add(key)

    def moved_out(self, key: ObjectKey, revision: int) -> None:
        """Record that the object was seen `elsewhere` at that revision; handlers are not notified."""
        if key in self.others or key in self.cache:
            self.cache.remove(key, revision)
            self.others.discard(key)

    def may_move_in(self, key: ObjectKey, revision: int) -> None:
        """Record that the object left `elsewhere` at that revision (0: unknown); it may be here."""
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
