"""Keep the Certificates of an annotated Ingress, Gateway or ListenerSet.

`desired.py` computes the desired Certificates; this module compares, writes and reports. The event handlers,
which enqueue the objects, are at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add, key_of
from certwright.controllers.shims.annotations import ShimOptions
from certwright.controllers.shims.desired import Desired, desired_for, size_of, updated
from certwright.controllers.shims.sources import Sources, attached_to, using_secret
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.meta import ObjectKey, controller_of, is_controlled_by
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.commit import merge_patch
from certwright.kube.runtime.controller import Result
from certwright.resources.certificate import Certificate
from certwright.resources.ingress import Gateway, IngressLike, ListenerSet
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES

T = TypeVar("T", bound=IngressLike)

BAD_CONFIG = "BadConfig"
CREATED = "CreateCertificate"
UPDATED = "UpdateCertificate"
DELETED = "DeleteCertificate"
ISSUER_NOT_FOUND = "IssuerNotFound"
_FOREGROUND = "foregroundDeletion"
_LARGE = 200
"""Hosts and listeners of an object; more take longer than 10 ms."""
_BATCH = 50
"""Certificates that are compared without a pause, which takes 10 ms."""
_MOST_PROBLEMS = 20
"""Events about problems of one object."""


class ShimReconciler(Generic[T]):
    """Reconciles the objects of one kind. `inherited` returns the annotations of an object's Gateway;
    `lacks_issuer`, whether an issuer of our group does not exist."""

    def __init__(
        self,
        informer: Informer[T],
        caches: Caches,
        toolbox: Toolbox,
        *,
        options: ShimOptions,
        inherited: Callable[[T], Mapping[str, str]],
        lacks_issuer: Callable[[IssuerReference, str], bool],
    ) -> None:
        self._kind = informer.kind
        self._informer = informer
        self._caches = caches
        self._toolbox = toolbox
        self._options = options
        self._inherited = inherited
        self._lacks_issuer = lacks_issuer

    async def reconcile(self, key: ObjectKey) -> Result:
        """Create, update and delete Certificates. Raises what the writes raise."""
        source = self._informer.cache.get(key)
        if source is None or source.metadata.deletion_timestamp or _FOREGROUND in source.metadata.finalizers:
            return Result()
        desired = await self._desired(source)
        if desired is None:
            return Result()
        for problem in desired.problems[:_MOST_PROBLEMS]:
            self._warn(source, BAD_CONFIG, problem)
        if (more := len(desired.problems) - _MOST_PROBLEMS) > 0:
            self._warn(source, BAD_CONFIG, f"{more} more problems; correct the reported ones first")
        self._report_issuer(source, desired)
        for number, certificate in enumerate(desired.certificates.values(), 1):
            await self._keep(source, certificate)
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        await self._delete_others(source, desired)
        return Result()

    async def _desired(self, source: T) -> Desired | None:
        inherited = self._inherited(source)
        if size_of(source) <= _LARGE:
            return desired_for(self._kind, source, inherited, self._options)
        # The author of one large object must not stop the event loop.
        return await self._toolbox.executor.run(
            lambda: desired_for(self._kind, source, inherited, self._options), source.metadata.namespace
        )

    def _report_issuer(self, source: T, desired: Desired) -> None:
        issuer, namespace = desired.issuer, source.metadata.namespace
        if issuer is None or not desired.certificates or not self._lacks_issuer(issuer, namespace):
            return
        kind = issuer.kind_or_default
        where = "" if kind.startswith("Cluster") else f" in namespace {namespace}"
        message = f'there is no {kind} "{issuer.name}"{where}; create it, or correct the annotation'
        self._warn(source, ISSUER_NOT_FOUND, message)

    async def _keep(self, source: T, certificate: Certificate) -> None:
        name = certificate.metadata.name
        existing = await self._caches.find_certificate(certificate.metadata.key)
        if existing is None:
            await self._create(source, certificate)
        elif not is_controlled_by(existing.metadata, source.metadata.uid):
            owner = controller_of(existing.metadata)
            # A former object's Certificate is about to be deleted with that object, which enqueues this key.
            if owner is None or (owner.kind, owner.name) != (self._kind.kind, source.metadata.name):
                whose = f"belongs to {owner.kind} {owner.name}" if owner else "was not made for an Ingress"
                message = f'Certificate "{name}" {whose} and is left as it is; use another Secret name, or '
                self._warn(source, BAD_CONFIG, f"{message}delete that Certificate")
        elif (target := updated(existing, certificate, self._options)) != existing:
            patch: dict[str, Any] = merge_patch(msgspec.to_builtins(existing), msgspec.to_builtins(target))
            meta, client = existing.metadata, self._toolbox.client
            patch.setdefault("metadata", {})["resourceVersion"] = meta.resource_version
            self._caches.certificates.put(await client.patch(CERTIFICATES, name, meta.namespace, patch))
            self._note(source, UPDATED, f'Successfully updated Certificate "{name}"')

    async def _create(self, source: T, certificate: Certificate) -> None:
        try:
            self._caches.certificates.put(await self._toolbox.client.create(CERTIFICATES, certificate))
        except AlreadyExists:
            # Its event is on the way, and enqueues this key if it is of this object.
            return
        self._note(source, CREATED, f'Successfully created Certificate "{certificate.metadata.name}"')

    async def _delete_others(self, source: T, desired: Desired) -> None:
        if desired.secrets is None:
            return
        for certificate in self._caches.certificates_of(source.metadata):
            meta = certificate.metadata
            if certificate.spec.secret_name in desired.secrets or meta.deletion_timestamp is not None:
                continue
            try:
                await self._toolbox.client.delete(CERTIFICATES, meta.name, meta.namespace, uid=meta.uid)
            except NotFound:
                continue
            self._note(source, DELETED, f'Successfully deleted unrequired Certificate "{meta.name}"')

    def _note(self, source: T, reason: str, message: str) -> None:
        self._toolbox.recorder.event(self._kind, source, "Normal", reason, message)

    def _warn(self, source: T, reason: str, message: str) -> None:
        self._toolbox.recorder.event(self._kind, source, "Warning", reason, message)


def _parts(obj: IngressLike | Certificate) -> tuple[object, ...]:
    """The parts of an object whose changes matter to the shims."""
    meta = obj.metadata
    return (
        obj.spec,
        meta.uid,
        meta.labels,
        meta.annotations,
        meta.owner_references,
        meta.deletion_timestamp,
    )


def enqueue_own(informer: Informer[T], add: Add) -> None:
    """Enqueue objects for their own events, unless only something has changed that does not matter here, such
    as their status."""

    def changed(old: T | None, new: T | None) -> None:
        if old is None or new is None or _parts(old) != _parts(new):
            add(key_of(old, new))

    informer.add_handler(changed)


def enqueue_with_certificates(informer: Informer[T], caches: Caches, add: Add) -> None:
    """Enqueue the owner of a changed or deleted Certificate, and the objects that could not create their
    Certificate because its name was taken."""

    def changed(old: Certificate | None, new: Certificate | None) -> None:
        if old is None or (new is not None and _parts(old) == _parts(new)):
            return
        owner = controller_of(old.metadata)
        if owner is not None and owner.kind == informer.kind.kind:
            add(ObjectKey(old.metadata.namespace, owner.name))
        if new is None:
            for source in using_secret(informer, old.metadata.key):
                add(source.metadata.key)

    caches.certificates.add_handler(changed)


def enqueue_with_parents(informer: Informer[ListenerSet], sources: Sources, add: Add) -> None:
    """Enqueue the ListenerSets of a changed Gateway, whose issuer they may inherit."""

    def changed(old: Gateway | None, new: Gateway | None) -> None:
        if old is None or new is None or old.metadata.annotations != new.metadata.annotations:
            for listener_set in attached_to(informer, key_of(old, new)):
                add(listener_set.metadata.key)

    if sources.gateways is not None:
        sources.gateways.add_handler(changed)
