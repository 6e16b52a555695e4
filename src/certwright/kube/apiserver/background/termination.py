"""Termination of Namespaces and CustomResourceDefinitions, with their contents.

Both are marked first, then emptied in the background, then removed. After a restart the work continues. What
remains in a namespace is reported in its conditions.

Source: Kubernetes API reference, NamespaceCondition v1 core; what `kubectl describe namespace` shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from certwright.kube.api.errors import ApiError
from certwright.kube.apiserver.background import gc
from certwright.kube.apiserver.background.gc import stored_resources
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds import controllers
from certwright.kube.apiserver.crds import status as crd_status
from certwright.kube.apiserver.crds.rules import CLEANUP_FINALIZER
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import NAMESPACES, Backend, in_batches, is_terminating
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import lightly, outline, to_metadata
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.verbs.deletes import BACKGROUND, remove
from certwright.kube.apiserver.verbs.shaping import is_released
from certwright.kube.store.contract import Changed, Key, Missing, Row, StoreError
from certwright.kube.util.tasks import TaskSet


@dataclass(slots=True)
class RemainingContents:
    """How many objects remain of each resource, and which finalizers keep them."""

    objects: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    refused: bool = False

    def add(self, definition: ResourceDefinition, row: Row) -> None:
        """Count a remaining object."""
        self.objects[f"{definition.plural}.{definition.group}"] += 1
        self.finalizers.update(to_metadata(row).get("finalizers", ()))

    def note_in(self, namespace: Json, now: str) -> bool:
        """Write the namespace's conditions; whether they have changed."""
        resources = ", ".join(
            f"{name} has {n} resource instances" for name, n in sorted(self.objects.items())
        )
        finalizers = ", ".join(
            f"{name} in {n} resource instances" for name, n in sorted(self.finalizers.items())
        )
        in_content = f"Some content in the namespace has finalizers remaining: {finalizers}"
        status = namespace.setdefault("status", {})
        before = {condition["type"]: condition for condition in status.get("conditions", ())}
        conditions = []
        for kind, is_true, reason, message in (
            (
                "DeletionDiscoveryFailure", False,
                "ResourcesDiscovered", "All resources successfully discovered",
            ),
            (
                "DeletionGroupVersionParsingFailure", False,
                "ParsedGroupVersions", "All legacy kube types successfully parsed",
            ),
            (
                "DeletionContentFailure", False,
                "ContentDeleted", "All content successfully deleted, may be waiting on finalization",
            ),
            ("ContentRemaining", True, "SomeResourcesRemain", f"Some resources are remaining: {resources}")
            if resources
            else ("ContentRemaining", False, "ContentRemoved", "All content successfully removed"),
            ("FinalizersRemaining", True, "SomeFinalizersRemain", in_content)
            if finalizers
            else (
                "FinalizersRemaining", False,
                "ContentHasNoFinalizers", "All content-preserving finalizers finished",
            ),
        ):  # fmt: skip
            made = {"type": f"Namespace{kind}", "status": str(is_true), "reason": reason, "message": message}
            old = before.get(made["type"], {})
            is_same = old.get("status") == made["status"]
            made["lastTransitionTime"] = old.get("lastTransitionTime", now) if is_same else now
            conditions.append(made)
        if conditions == status.get("conditions"):
            return False
        status["conditions"] = conditions
        return True


_log = logging.getLogger(__name__)
_FINALIZER = "kubernetes"
_PAUSE_S = 5  # after a webhook has denied a deletion, or was unavailable


class Termination:
    """Empties and removes terminating objects."""

    observed_buckets = None

    def __init__(self, backend: Backend, tasks: TaskSet, *, closed: Callable[[str], None]) -> None:
        self._backend = backend
        self._tasks = tasks
        self._closed = closed  # called with the bucket of a resource that is no longer served
        self._underway: dict[Key, asyncio.Event] = {}

    @property
    def idle(self) -> bool:
        """Whether no object is being emptied."""
        return not self._underway

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Start with a newly marked object."""
        if (
            (definition.bucket == NAMESPACES or definition.is_crd)
            and row.key not in self._underway
            and is_terminating(row)
        ):
            self._underway[row.key] = asyncio.Event()
            self._tasks.start(
                self._finish(definition, row.key), name=f"terminate {row.key.bucket} {row.key.name}"
            )

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Wake the tasks that wait for a deletion. End the watches on objects of a deleted definition."""
        if definition.is_crd:
            plural, _, group = row.key.name.partition(".")
            self._closed(f"{group}/{plural}")
        if self._underway:
            for moved in self._underway.values():
                moved.set()

    async def resume(self) -> None:
        """Resume the terminations from before the restart."""
        await self._backend.replay(self, (NAMESPACES, controllers.BUCKET))

    async def _finish(self, definition: ResourceDefinition, key: Key) -> None:
        moved = self._underway[key]
        try:
            while True:
                moved.clear()
                try:
                    if definition.is_crd:
                        await self._report_progress(definition, key)
                    remaining = await self._empty(definition, key)
                    if not remaining.objects and await self._release(definition, key):
                        return
                    if definition.bucket == NAMESPACES:
                        await self._report(definition, key, remaining)
                except (Changed, Missing):
                    continue
                except StoreError:
                    _log.warning(
                        "emptying %s %s failed and is tried again", key.bucket, key.name, exc_info=True
                    )
                    await self._backend.clock.sleep(1)
                    continue
                if remaining.refused:
                    # No event follows when the webhook changes its decision.
                    await self._backend.clock.sleep(_PAUSE_S)
                else:
                    await moved.wait()
        finally:
            del self._underway[key]

    async def _empty(self, definition: ResourceDefinition, key: Key) -> RemainingContents:
        """Delete the contents, and return what remains."""
        remaining = RemainingContents()
        if definition.bucket == NAMESPACES:
            namespace = key.name
            resources = [resource for resource in stored_resources(self._backend) if resource.namespaced]
        else:
            namespace, resources = "", list(self._backend.registry.crd_kinds(key.name)[:1])
        for resource in resources:
            rows = await self._backend.rows(resource.bucket, namespace)
            # Delete the unreadable rows that listing all rows has found.
            for damaged in self._backend.store.damage.of(resource.bucket, namespace):
                with suppress(Changed, Missing):
                    await self._backend.discard(resource, damaged.key)
            delete = partial(self._left_over, resource, remaining=remaining, asks=bool(namespace))
            for left in await in_batches(delete, rows):
                if left is not None:
                    remaining.add(resource, left)
        return remaining

    async def _report(self, definition: ResourceDefinition, key: Key, remaining: RemainingContents) -> None:
        """Report in the namespace's status why it still exists."""
        row = await self._backend.store.latest(key)
        if row is None:
            return
        obj = objects.to_object(definition, row)
        if remaining.note_in(obj, self._backend.timestamp()):
            await self._backend.put(definition, key, objects.columns(obj), previous=row)

    async def _left_over(
        self, resource: ResourceDefinition, row: Row, remaining: RemainingContents, *, asks: bool
    ) -> Row | None:
        """Delete one object, and return what remains of it. `asks`: with admission, as for the contents of a
        namespace.

        The objects of a terminating definition are deleted without admission, as in Kubernetes.
        """
        current = await self._backend.readable(row.key)
        if current is None:
            return None
        if asks and b'"deletionTimestamp"' not in current.meta:
            request = gc.deletion_request(gc.NAMESPACE_CONTROLLER, resource, current, BACKGROUND)
            try:
                await self._backend.admission.deleting(request, current)
            except ApiError as error:
                _log.warning("%s cannot be deleted and is tried again: %s", row.key, error)
                remaining.refused = True
                return current
        last, gone = await remove(self._backend, resource, current)
        return None if gone else last

    async def _report_progress(self, definition: ResourceDefinition, key: Key) -> None:
        """Report in a CustomResourceDefinition's status that its objects are being deleted."""
        row = await self._backend.store.latest(key)
        obj = outline(definition, row) if row is not None else None
        if row is None or obj is None or CLEANUP_FINALIZER not in obj["metadata"].get("finalizers", ()):
            return
        status = crd_status.with_deletion(obj, self._backend.timestamp())
        if status != obj["status"]:
            obj = controllers.with_status(self._backend, definition, obj, status)
            await self._backend.put(definition, key, objects.columns(obj), previous=row)

    async def _release(self, definition: ResourceDefinition, key: Key) -> bool:
        """Remove our finalizer; whether the object is removed (other finalizers may remain)."""
        backend = self._backend
        row = await backend.store.latest(key)
        if row is None:
            return True
        obj = lightly(definition, row)
        # Remove the finalizer that this module handles.
        holder, own = obj["metadata"], CLEANUP_FINALIZER
        if obj["kind"] == "Namespace":
            holder, own = obj.setdefault("spec", {}), _FINALIZER
        before = holder.get("finalizers") or []
        holder["finalizers"] = [name for name in before if name != own]
        if not holder["finalizers"]:
            del holder["finalizers"]
        changed = len(before) != len(holder.get("finalizers", ()))
        if is_released(obj):
            # Watchers see a definition's previous state, because a status update removes its finalizer.
            last = objects.tombstone(row) if definition.is_crd else objects.columns(obj)
            await backend.delete(definition, row, last)
            return True
        if changed:
            if definition.is_crd:
                status = crd_status.with_deleted(obj, backend.timestamp())
                obj = controllers.with_status(backend, definition, obj, status)
            await backend.put(definition, key, objects.columns(obj), previous=row)
        return False


class ServedKinds:
    """Keeps the registry in sync with the committed CustomResourceDefinitions."""

    observed_buckets = (controllers.BUCKET,)

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Serve a written definition."""
        self._registry.put_crd(outline(definition, row))

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Stop serving a deleted definition."""
        self._registry.drop_crd(row.key.name)
