"""A local copy for kinds of which there are very many, and few of them matter.

Only metadata is fetched, and only that of objects whose names `keep` accepts is held. Of the others nothing
is known but that there is something of that name (`others`), so that a name which comes to matter later can
be asked for at the server, and one that is not there need not be.

Where a selector splits the kind between this copy and another one, `elsewhere` (see `partial.py`), the first
list is asked for as of the revision that the other copy is at.

Source: Kubernetes API concepts, "Metadata-only fetches".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from certwright.kube.api.errors import ApiError
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import ObjectKey, ObjectMeta, Struct
from certwright.kube.client.cache import key_of
from certwright.kube.client.filtered_informer import PartialInformer
from certwright.kube.client.informer import Informer, identity
from certwright.kube.client.listing import PAGE
from certwright.kube.client.reflector import Answer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock

T = TypeVar("T")


class Identity(Struct, frozen=True):
    """Which object it is, and in which state."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Identified(Struct, frozen=True):
    """An object of any kind, of which nothing else is held."""

    metadata: Identity = Identity()

    @classmethod
    def of(cls, meta: ObjectMeta) -> Identified:
        """That of an object."""
        return cls(Identity(meta.name, meta.namespace, meta.uid, meta.resource_version))


def identities(kind: AnyKind) -> Kind[Identified]:
    """The kind, its objects held as `Identified`."""
    return dataclasses.replace(kind, type=Identified)


class SelectiveInformer(PartialInformer[T]):
    """Follows the metadata of one kind; `kind.type` says what is held of it. Handlers hear of objects that
    are kept, and where one was held, of its last change."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        clock: Clock,
        *,
        keep: Callable[[ObjectKey], bool],
        elsewhere: Informer[Any] | None = None,
        namespace: str = "",
        labels: str = "",
        page: int = PAGE,
    ) -> None:
        super().__init__(
            client,
            kind,
            clock,
            keep=lambda raw: keep(identity(raw)),
            namespace=namespace,
            labels=labels,
            metadata_only=True,
            page=page,
        )
        if elsewhere is not None:
            self.split_with(elsewhere)

    def take(self, obj: T) -> None:
        """Hold what was read of an object that has come to matter; nobody is told."""
        self.others.discard(key_of(obj))
        self.cache.upsert(obj)

    def release(self, key: ObjectKey) -> None:
        """Hold no longer what has ceased to matter."""
        self._let_go(key)
        if key in self._listed:
            self._listed_others.add(key)

    def moved_out(self, key: ObjectKey, revision: int) -> None:
        """The object has been seen `elsewhere` at that revision; nobody is told."""
        if key in self.others or key in self.cache:
            self.cache.remove(key, revision)
            self.others.discard(key)

    def may_move_in(self, key: ObjectKey, revision: int) -> None:
        """The object has left `elsewhere` at that revision (0: unknown); it may be here."""
        self._tidy()
        if key not in self.cache and self.others.left_at(key) != 0:
            self.others.leave(key, revision)

    async def _list_page(self, token: str, limit: int) -> Answer:
        if token or not limit or self._elsewhere is None or self.synced.is_set():
            return await super()._list_page(token, limit)
        # Both begin at the same moment: what moves between two lists would be in neither.
        await self._elsewhere.synced.wait()
        self._begin_list()
        revision = str(self._elsewhere.revision or "")
        page = await self._fetch_page("", limit, metadata_only=True, resource_version=revision)
        # A server need not know a revision for long.
        return await super()._list_page(token, limit) if isinstance(page, ApiError) and revision else page
