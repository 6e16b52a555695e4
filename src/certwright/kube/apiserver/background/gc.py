"""Garbage collector: deletes objects whose owners are gone, in the background.

An index from the owner's uid to its dependents limits the cost of a deletion to the number of dependents. The
index is built at the start from all objects' metadata, a page at a time. A finalizer keeps an owner during a
foreground deletion, or until its dependents are orphaned.

The collector deletes and changes objects by requests of its own ServiceAccount, as kube-controller-manager
does, so that admission webhooks see a known user.

Source: Kubernetes documentation, "Garbage Collection", owners and dependents; "Owners and Dependents" (an
owner reference across namespaces is none; reason `OwnerRefInvalidNamespace`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from certwright.kube.api import naming
from certwright.kube.api.errors import NotFound
from certwright.kube.apiserver.background.worker import Worker
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.users import account_identity
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import CHUNK, Backend, Call, in_batches
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import WHOLE
from certwright.kube.apiserver.model.objects import Owner
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.apiserver.requests.patch import MERGE
from certwright.kube.apiserver.verbs.deletes import (
    BACKGROUND,
    FOREGROUND,
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    remove,
)
from certwright.kube.apiserver.verbs.shaping import is_released, refuse_patch
from certwright.kube.apiserver.verbs.updates import Update, modify
from certwright.kube.store.contract import Changed, DamagedRow, Exists, Key, Missing, Row
from certwright.kube.util.caches import Lru
from certwright.kube.util.http_messages import Request
from certwright.kube.util.multi_map import MultiMap

_ATTEMPTS = 5
_MOST_RECENT = 2_048
_GC_FINALIZERS = (FOREGROUND_FINALIZER.encode(), ORPHAN_FINALIZER.encode())


@dataclass(frozen=True, slots=True)
class _DeletedOwner:
    """A deleted owner."""

    uid: str


@dataclass(frozen=True, slots=True)
class _Claim:
    """An owner reference to verify: it may be wrong."""

    uid: str
    key: Key


@dataclass(frozen=True, slots=True)
class _Dying:
    """A terminating owner that waits for its dependents."""

    definition: ResourceDefinition
    key: Key


_Item = _DeletedOwner | _Claim | _Dying


class GarbageCollector:
    """Controller that observes owner references, and deletes objects whose owners do not exist."""

    observed_buckets = None

    def __init__(self, backend: Backend, *, read: Callable[[Row], None] = lambda _: None) -> None:
        """`read` is called with each object stored at the start, without its body, so that no other component
        needs to read all of them."""
        self._backend = backend
        self._read = read
        self._dependents = Dependents()
        self._worker = Worker(backend, "garbage collection", self._process)
        self._waiting: dict[str, _Dying] = {}  # by uid: owners that are being deleted in the foreground
        # The objects written last, by uid. Events come in order, so what is here was not deleted before the
        # event that is handled.
        self._recent = Lru[str, Key](_MOST_RECENT)
        self._warnings = OwnerWarnings(backend)
        self._is_loaded = False

    @property
    def idle(self) -> bool:
        """Whether the queue is empty; False until the index is built."""
        return self._is_loaded and self._worker.idle

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Update the index with the owners of a written object."""
        self._recent.put(objects.uid_of(row.meta), row.key)
        new = objects.owners_of(row.meta)
        old = objects.owners_of(previous.meta) if previous is not None else ()
        if new != old:
            self._remove_references(row.key, old)
            for owner in new:
                self._dependents.add(owner.uid, row.key)
                # The owner may be deleted already; then no later deletion triggers the check.
                if not self._is_at_hand(owner, row.key.namespace):
                    self._worker.add(_Claim(owner.uid, row.key))
        if b'"deletionTimestamp"' in row.meta:
            self._note_dying(definition, row)

    def _note_dying(self, definition: ResourceDefinition, row: Row) -> None:
        if any(name in row.meta for name in _GC_FINALIZERS):
            self._worker.add(_Dying(definition, row.key))

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Remove a deleted object from the index, and enqueue its dependents."""
        self._remove_references(row.key, objects.owners_of(row.meta))
        uid = objects.uid_of(row.meta)
        self._recent.drop(uid)
        if uid in self._dependents:
            self._worker.add(_DeletedOwner(uid))

    def _is_at_hand(self, owner: Owner, namespace: str) -> bool:
        """Whether the owner exists as far as known, so that no lookup is needed: the observers have not been
        notified of a deletion."""
        place = self._key_of(owner, namespace) if namespace else None
        return place is not None and self._recent.get(owner.uid) == place

    def _remove_references(self, key: Key, owners: tuple[Owner, ...]) -> None:
        for owner in owners:
            self._dependents.discard(owner.uid, key)
            if dying := self._waiting.get(owner.uid):
                self._worker.add(dying)

    async def run(self) -> None:
        """Read all owner references from the store, then process the queue until cancelled."""
        for definition in stored_resources(self._backend):
            async for rows in self._backend.pages(definition.bucket, meta_only=True):
                await self._observe_rows(definition, rows)
                await asyncio.sleep(0)  # let other tasks run
        self._is_loaded = True
        await self._worker.run()

    async def _observe_rows(self, definition: ResourceDefinition, rows: list[Row]) -> None:
        claims: list[tuple[Key, Owner]] = []
        for row in rows:
            self._read(row)
            for owner in objects.owners_of(row.meta):
                self._dependents.add(owner.uid, row.key)
                claims.append((row.key, owner))
            if b'"deletionTimestamp"' in row.meta:
                self._note_dying(definition, row)
        for key, owner in claims:
            if not key.namespace or not await self._exists(owner, key.namespace):
                self._worker.add(_Claim(owner.uid, key))

    async def _process(self, item: _Item) -> None:
        match item:
            case _Dying():
                await self._finish(item)
            case _Claim(uid, key):
                row = await self._backend.readable(key)
                owner = _owner_of(row, uid)
                # A cluster-scoped object with a namespaced owner gets a warning even though the owner exists.
                if owner is not None and not (key.namespace and await self._exists(owner, key.namespace)):
                    await self._delete_dependent(key, uid)
            case _DeletedOwner(uid):
                await in_batches(lambda key: self._delete_dependent(key, uid), self._dependents.of(uid))

    # --- deleted owners -----------------------------------------------------------------------------------

    async def _exists(self, owner: Owner, namespace: str) -> bool:
        """Whether the owner exists; an owner that cannot be checked counts as living."""
        place = self._key_of(owner, namespace)
        if place is None:
            return True
        try:
            row = await self._backend.store.latest(place)
        except DamagedRow:
            return True
        return row is not None and objects.uid_of(row.meta) == owner.uid

    def _key_of(self, owner: Owner, namespace: str) -> Key | None:
        """The key of the owner. None: a kind that is not served, or a namespaced owner of a cluster-scoped
        object, cannot be checked."""
        definition = self._backend.registry.by_kind(owner.group, owner.kind)
        if definition is None or definition.virtual or (definition.namespaced and not namespace):
            return None
        return Key(definition.bucket, namespace if definition.namespaced else "", owner.name)

    async def _delete_dependent(self, key: Key, uid: str, policy: str = "") -> None:
        """Delete a dependent; if it has a living owner, only its references to missing owners."""
        for _ in range(_ATTEMPTS):
            row = await self._backend.readable(key)
            definition, own = self._backend.registry.by_bucket(key.bucket), _owner_of(row, uid)
            if row is None or own is None or definition is None:
                return
            if not policy:
                if b'"deletionTimestamp"' in row.meta:
                    return
                await self._warnings.check(
                    definition, row, own, {each.namespace for each in self._dependents.of(uid)}
                )
                if await self._exists(own, key.namespace):
                    return
            others = [
                owner for owner in objects.owners_of(row.meta) if owner.uid not in (uid, *self._waiting)
            ]
            try:
                missing = await self._missing(others, key.namespace)
                if len(missing) < len(others):
                    # All at once: each write of an object with thousands of them takes long.
                    await self._strip(definition, row, {uid, *missing})
                else:
                    asked = deletion_request(GARBAGE_COLLECTOR, definition, row, policy)
                    await self._backend.admission.deleting(asked, row)
                    await remove(self._backend, definition, row, policy)
            except (Changed, Missing):
                continue
            return

    async def _missing(self, owners: Iterable[Owner], namespace: str) -> list[str]:
        """The uids of owners that do not exist."""
        uids = []
        for number, owner in enumerate(owners, 1):
            if not await self._exists(owner, namespace):
                uids.append(owner.uid)
            if number % CHUNK == 0:
                await asyncio.sleep(0)
        return uids

    async def _strip(self, definition: ResourceDefinition, row: Row, uids: Collection[str]) -> None:
        def strip(obj: Json) -> Json:
            meta = obj["metadata"]
            left = [owner for owner in meta.get("ownerReferences") or () if owner["uid"] not in uids]
            meta["ownerReferences"] = left
            if not left:
                del meta["ownerReferences"]
            return obj

        await self._patch(definition, row, strip)

    async def _patch(self, definition: ResourceDefinition, row: Row, change: Callable[[Json], Json]) -> None:
        """Change an object as a client would, with admission. Raises `ApiError`, `Changed` and `Missing`."""
        if definition.conversion is None and not definition.is_crd:
            call = patch_request(GARBAGE_COLLECTOR, definition, row.key)
            with suppress(NotFound):
                await modify(self._backend, call, Update(change, pinned=False, refuse=refuse_patch))
            return
        # Only a webhook could convert it to a version that admission knows; and definitions are deleted by
        # separate code. Only metadata changes.
        new = change(objects.to_object(definition, row))
        if is_released(new) and not definition.is_crd:
            await self._backend.delete(definition, row, objects.columns(new))
        else:
            await self._backend.put(definition, row.key, objects.columns(new), previous=row)

    # --- waiting owners -----------------------------------------------------------------------------------

    async def _finish(self, dying: _Dying) -> None:
        """Continue the deletion of an owner that one of our finalizers keeps."""
        row = await self._backend.readable(dying.key)
        meta = objects.to_metadata(row) if row is not None else {}
        finalizers = meta.get("finalizers", ()) if "deletionTimestamp" in meta else ()
        uid = meta.get("uid", "")
        if ORPHAN_FINALIZER in finalizers:
            await self._orphan(uid)
            await self._remove_finalizer(dying, ORPHAN_FINALIZER)
        elif FOREGROUND_FINALIZER in finalizers:
            self._waiting[uid] = dying
            if not await self._dependents_left(uid, dying.key.namespace):
                self._waiting.pop(uid, None)
                await self._remove_finalizer(dying, FOREGROUND_FINALIZER)

    async def _dependents_left(self, uid: str, namespace: str) -> bool:
        """Delete the dependents, in that namespace (empty: the cluster), of an owner in foreground deletion;
        whether it must wait for any. A reference from another namespace does not delay the owner."""
        left = False
        for key in self._dependents.of(uid):
            if namespace not in ("", key.namespace):
                continue
            row = await self._backend.readable(key)
            if row is not None and b'"deletionTimestamp"' not in row.meta:
                policy = FOREGROUND if objects.uid_of(row.meta) in self._dependents else BACKGROUND
                await self._delete_dependent(key, uid, policy)
                row = await self._backend.readable(key)
            owners = objects.owners_of(row.meta) if row is not None else ()
            left = left or any(owner.uid == uid and owner.block_owner_deletion for owner in owners)
        return left

    async def _remove_finalizer(self, dying: _Dying, finalizer: str) -> None:
        def without(obj: Json) -> Json:
            meta = obj["metadata"]
            meta["finalizers"] = [name for name in meta.get("finalizers", ()) if name != finalizer]
            if not meta["finalizers"]:
                del meta["finalizers"]
            return obj

        row = await self._backend.readable(dying.key)
        if row is not None and finalizer.encode() in row.meta:
            await self._patch(dying.definition, row, without)

    async def _orphan(self, uid: str) -> None:
        """Remove the owner of that uid from the owner references of all its dependents."""
        for key in self._dependents.of(uid):
            row, definition = await self._backend.readable(key), self._backend.registry.by_bucket(key.bucket)
            if row is not None and definition is not None and _owner_of(row, uid) is not None:
                await self._strip(definition, row, (uid,))


def _owner_of(row: Row | None, uid: str) -> Owner | None:
    """The object's reference to the owner with that uid, if any."""
    owners = objects.owners_of(row.meta) if row is not None else ()
    return next((owner for owner in owners if owner.uid == uid), None)


def stored_resources(backend: Backend) -> list[ResourceDefinition]:
    """Every resource once, in one of its versions."""
    by_bucket: dict[str, ResourceDefinition] = {}
    for definition in backend.registry.all():
        if not definition.virtual:
            by_bucket.setdefault(definition.bucket, definition)
    return list(by_bucket.values())


_COMPONENT = "garbage-collector-controller"
_REMEMBERED = 1000
_MOST_NAMESPACES = 16


class OwnerWarnings:
    """Writes one Event for each owner reference to an object of another namespace."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._reported = Lru[tuple[Key, str], str](_REMEMBERED)

    async def check(
        self, definition: ResourceDefinition, row: Row, owner: Owner, namespaces: set[str]
    ) -> None:
        """Warn where `owner` is in a namespace other than that of the object.

        It is looked up in `namespaces`, where its other dependents are, because a lookup in all of them would
        cost too much.
        """
        backend, kind = self._backend, self._backend.registry.by_kind(owner.group, owner.kind)
        event, namespace = backend.registry.find("", "v1", "events"), row.key.namespace
        if kind is None or kind.virtual or not kind.namespaced or event is None:
            return
        if self._reported.get((row.key, owner.uid)):
            return
        text = f"ownerRef [{owner.api_version}/{owner.kind}, namespace: {namespace}, name: {owner.name}"
        text += f", uid: {owner.uid}] "
        if namespace:
            for other in sorted(namespaces - {namespace, ""})[:_MOST_NAMESPACES]:
                candidate = await backend.readable(Key(kind.bucket, other, owner.name))
                if candidate is not None and objects.uid_of(candidate.meta) == owner.uid:
                    break
            else:
                return
            text += f'does not exist in namespace "{namespace}"'
        else:
            text += "is namespaced, and the object is not"
        self._reported.put((row.key, owner.uid), text)
        now, name = backend.timestamp(), f"{row.key.name}.{naming.new_uid()[:8]}"
        about = {
            "kind": definition.kind,
            "namespace": namespace,
            "name": row.key.name,
            "uid": objects.uid_of(row.meta),
            "apiVersion": definition.api_version,
            "resourceVersion": str(row.revision),
        }
        obj: Json = {
            "metadata": {
                "name": name,
                "namespace": namespace or "default",
                "uid": naming.new_uid(),
                "creationTimestamp": now,
            },
            "involvedObject": {key: value for key, value in about.items() if value},
            "reason": "OwnerRefInvalidNamespace",
            "message": text,
            "source": {"component": _COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
            "eventTime": None,
            "reportingComponent": _COMPONENT,
            "reportingInstance": "",
        }
        key = Key(event.bucket, namespace or "default", name)
        with suppress(Exists):
            await backend.put(event, key, objects.columns(obj), previous=None)


class Dependents(MultiMap[str, Key]):
    """Index from the uid of an owner to the keys of its dependents: some 300 bytes for an owner with one
    dependent, as most have."""

    def add(self, key: str, value: Key) -> None:
        """Add a dependent."""
        # There are few namespaces.
        super().add(key, Key(value.bucket, sys.intern(value.namespace), value.name))


GARBAGE_COLLECTOR, NAMESPACE_CONTROLLER = "generic-garbage-collector", "namespace-controller"
"""The controllers, by their ServiceAccounts."""
_HOME = "kube-system"
_AGENT = "kube-controller-manager"


def deletion_request(controller: str, definition: ResourceDefinition, row: Row, policy: str = "") -> Call:
    """The DELETE of the object of `row`, and of no later one of the same name."""
    key, user = row.key, account_identity(_HOME, controller)
    options: Json = {"preconditions": {"uid": objects.uid_of(row.meta)}}
    if policy:
        options["propagationPolicy"] = policy
    request = Request("DELETE", _target(definition, key), body=objects.encode_json(options), user=user)
    return Call(request, user, "delete", definition, _route(definition, key), {}, WHOLE)


def patch_request(controller: str, definition: ResourceDefinition, key: Key) -> Call:
    """A PATCH of an object, whatever it changes."""
    user, headers = account_identity(_HOME, controller), {"user-agent": _AGENT, "content-type": MERGE}
    request = Request("PATCH", _target(definition, key), headers, b"{}", user=user)
    return Call(request, user, "patch", definition, _route(definition, key), {}, WHOLE)


def _target(definition: ResourceDefinition, key: Key) -> str:
    base = f"/apis/{definition.api_version}" if definition.group else f"/api/{definition.version}"
    inside = f"/namespaces/{key.namespace}" if key.namespace else ""
    return f"{base}{inside}/{definition.plural}/{key.name}"


def _route(definition: ResourceDefinition, key: Key) -> Route:
    return Route(definition.group, definition.version, key.namespace, definition.plural, key.name, "")
