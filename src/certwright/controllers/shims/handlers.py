"""Event handlers of the shims: which changes enqueue an Ingress, Gateway or ListenerSet."""

from __future__ import annotations

from typing import TypeVar

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add, key_of
from certwright.controllers.shims.sources import Sources, attached_to, using_secret
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.kube.client.informer import Informer
from certwright.resources.certificate import Certificate
from certwright.resources.ingress import Gateway, IngressLike, ListenerSet

T = TypeVar("T", bound=IngressLike)


def wake_own(informer: Informer[T], add: Add) -> None:
    """Enqueue objects for their own events, unless only something has changed that does not matter here, such
    as their status."""

    def changed(old: T | None, new: T | None) -> None:
        if old is None or new is None or not _is_same(old, new):
            add(key_of(old, new))

    informer.add_handler(changed)


def _is_same(old: IngressLike, new: IngressLike) -> bool:
    before, after = old.metadata, new.metadata
    return (old.spec, before.uid, before.labels, before.annotations, before.deletion_timestamp) == (
        new.spec,
        after.uid,
        after.labels,
        after.annotations,
        after.deletion_timestamp,
    )


def wake_with_certificates(informer: Informer[T], caches: Caches, add: Add) -> None:
    """Enqueue the owner of a Certificate that is changed or deleted, and those that could not create theirs
    because one of that name existed."""

    def changed(old: Certificate | None, new: Certificate | None) -> None:
        if old is None or (new is not None and _is_same_certificate(old, new)):
            return
        owner = controller_of(old.metadata)
        if owner is not None and owner.kind == informer.kind.kind:
            add(ObjectKey(old.metadata.namespace, owner.name))
        if new is None:
            for source in using_secret(informer, old.metadata.key):
                add(source.metadata.key)

    caches.certificates.add_handler(changed)


def _is_same_certificate(old: Certificate, new: Certificate) -> bool:
    before, after = old.metadata, new.metadata
    return (old.spec, before.labels, before.annotations, before.owner_references) == (
        new.spec,
        after.labels,
        after.annotations,
        after.owner_references,
    )


def wake_with_parents(informer: Informer[ListenerSet], sources: Sources, add: Add) -> None:
    """Enqueue the ListenerSets of a Gateway that changes: they may inherit its issuer."""

    def changed(old: Gateway | None, new: Gateway | None) -> None:
        if old is None or new is None or old.metadata.annotations != new.metadata.annotations:
            for listener_set in attached_to(informer, key_of(old, new)):
                add(listener_set.metadata.key)

    if sources.gateways is not None:
        sources.gateways.add_handler(changed)
