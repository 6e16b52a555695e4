"""Garbage: objects whose owners are gone are deleted, in the background.

Keeps, by the owner's uid, who depends on it, so that a deletion costs as much as there are dependents.
Source: Kubernetes documentation, "Garbage Collection", owners and dependents.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from certwright.apiserver import objects
from certwright.apiserver.backend import Backend
from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.deletes import remove
from certwright.apiserver.objects import Owner
from certwright.apiserver.reads import CHUNK
from certwright.store.contract import Changed, Key, Missing, Row, StoreError

_log = logging.getLogger(__name__)
_ATTEMPTS = 5
_TOGETHER = 64


@dataclass(slots=True)
class _Family:
    """Everybody who names one owner. `where` is the namespace that the owner is looked for in."""

    owner: Owner
    where: str
    members: dict[Key, ResourceDefinition] = field(default_factory=dict)


class GarbageCollector:
    """Watches who owns whom, and deletes what nobody owns any more."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._families: dict[str, _Family] = {}
        self._suspects: asyncio.Queue[str] = asyncio.Queue()
        self._working = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to look at."""
        return self._suspects.empty() and not self._working

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Note the owners of what was written."""
        new = objects.owners_of(row.meta)
        old = objects.owners_of(previous.meta) if previous is not None else ()
        if new != old:
            self._leave(row.key, old)
            self._join(definition, row.key, new)

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Forget what was deleted, and suspect its dependents."""
        self._leave(row.key, objects.owners_of(row.meta))
        if self._families and (uid := objects.uid_of(row.meta)) in self._families:
            self._suspects.put_nowait(uid)

    def _join(self, definition: ResourceDefinition, key: Key, owners: tuple[Owner, ...]) -> None:
        for owner in owners:
            family = self._families.get(owner.uid)
            if family is None:
                family = self._families[owner.uid] = _Family(owner, key.namespace)
                # The owner may be gone already: then no deletion will ever tell.
                self._suspects.put_nowait(owner.uid)
            family.members[key] = definition

    def _leave(self, key: Key, owners: tuple[Owner, ...]) -> None:
        for owner in owners:
            family = self._families.get(owner.uid)
            if family is not None:
                family.members.pop(key, None)
                if not family.members:
                    del self._families[owner.uid]

    async def load(self) -> None:
        """Find all owners in the store, once, when the server starts."""
        for definition in one_per_bucket(self._backend):
            after: tuple[str, str] | None = None
            while True:
                page = await self._backend.store.list(
                    definition.bucket, limit=CHUNK, after=after, meta_only=True
                )
                for row in page.rows:
                    self._join(definition, row.key, objects.owners_of(row.meta))
                if not page.more or not page.rows:
                    break
                after = (page.rows[-1].key.namespace, page.rows[-1].key.name)

    async def run(self) -> None:
        """Load, then look after suspects for ever."""
        await self.load()
        while True:
            uid = await self._suspects.get()
            self._working = True
            try:
                await self._examine(uid)
            except StoreError:
                _log.warning(
                    "garbage collection of what %s owned failed and is tried again", uid, exc_info=True
                )
                await self._backend.clock.sleep(1)
                self._suspects.put_nowait(uid)
            finally:
                self._working = False

    async def _examine(self, uid: str) -> None:
        family = self._families.get(uid)
        if family is None or await self._lives(family.owner, family.where):
            return
        members = list(family.members.items())
        for start in range(0, len(members), _TOGETHER):
            some = members[start : start + _TOGETHER]
            await asyncio.gather(*(self._bereave(definition, key, uid) for key, definition in some))

    async def _lives(self, owner: Owner, namespace: str) -> bool:
        """Whether the owner is there. A kind that is not served cannot be judged, so it counts as living."""
        definition = self._backend.registry.by_kind(owner.group, owner.kind)
        if definition is None:
            return True
        key = Key(definition.bucket, namespace if definition.namespaced else "", owner.name)
        row = await self._backend.store.latest(key)
        return row is not None and objects.uid_of(row.meta) == owner.uid

    async def _bereave(self, definition: ResourceDefinition, key: Key, uid: str) -> None:
        """Delete a dependent, or only its reference while it has another living owner."""
        for _ in range(_ATTEMPTS):
            row = await self._backend.store.latest(key)
            owners = objects.owners_of(row.meta) if row is not None else ()
            if row is None or all(owner.uid != uid for owner in owners):
                return
            others = [owner for owner in owners if owner.uid != uid]
            try:
                if any([await self._lives(owner, key.namespace) for owner in others]):
                    await self._strip(definition, row, uid)
                else:
                    await remove(self._backend, definition, row)
            except (Changed, Missing):
                continue
            return

    async def _strip(self, definition: ResourceDefinition, row: Row, uid: str) -> None:
        obj = objects.to_object(definition, row)
        meta = obj["metadata"]
        meta["ownerReferences"] = [owner for owner in meta["ownerReferences"] if owner["uid"] != uid]
        if not meta["ownerReferences"]:
            del meta["ownerReferences"]
        await self._backend.put(definition, row.key, objects.columns(obj), previous=row)

    async def orphan(self, uid: str) -> None:
        """Take the owner of that uid out of the owner references of all its dependents."""
        family = self._families.get(uid)
        for key, definition in list(family.members.items()) if family is not None else ():
            for _ in range(_ATTEMPTS):
                row = await self._backend.store.latest(key)
                if row is None:
                    break
                try:
                    await self._strip(definition, row, uid)
                except (Changed, Missing):
                    continue
                break


def one_per_bucket(backend: Backend) -> list[ResourceDefinition]:
    """Every resource once, in one of its versions."""
    found: dict[str, ResourceDefinition] = {}
    for definition in backend.registry.all():
        if not definition.virtual:
            found.setdefault(definition.bucket, definition)
    return list(found.values())
