"""The informer of Deliveries, and which events enqueue them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from certwright.controllers.cache import event_handlers as events
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.deliveries.options import Root
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.resources.certificate import Certificate
from certwright.resources.delivery import Delivery
from certwright.resources.table import DELIVERIES

_BY_DIRECTORY: Final = "directory"
_BY_CERTIFICATE: Final = "certificate"


def follow_deliveries(
    client: Client, clock: Clock, namespace: str, roots: Mapping[str, Root]
) -> Informer[Delivery]:
    """The informer; the kind need not be served."""
    return Informer(
        client,
        DELIVERIES,
        clock,
        namespace=namespace,
        is_optional=True,
        indexers={
            _BY_DIRECTORY: lambda delivery: filter(None, (directory_of(delivery, roots),)),
            _BY_CERTIFICATE: lambda delivery: filter(None, (_certificate_of(delivery),)),
        },
    )


def first_at(informer: Informer[Delivery], delivery: Delivery, roots: Mapping[str, Root]) -> Delivery:
    """The oldest Delivery to the same directory, also by another root."""
    return min(_at_directory_of(delivery, informer, roots), key=_seniority, default=delivery)


def path_of(delivery: Delivery) -> str:
    """The place as users know it; the root's directory is the operator's."""
    return f"{delivery.spec.root}:{delivery.spec.path}"


def directory_of(delivery: Delivery, roots: Mapping[str, Root]) -> str:
    """Its directory, without links, because two roots may lead to it. Empty for a Delivery that may not write
    there: it keeps no other from it."""
    root = roots.get(delivery.spec.root)
    if root is None or not root.is_for(delivery.metadata.namespace):
        return ""
    return f"{os.path.realpath(root.directory)}/{delivery.spec.path}"


def wake_deliveries(
    informer: Informer[Delivery], caches: Caches, roots: Mapping[str, Root], add: Add
) -> None:
    """Enqueue Deliveries for their own events, for those of others to the same directory, and for those of
    their Certificate."""

    def changed(old: Delivery | None, new: Delivery | None) -> None:
        add(events.key_of(old, new))
        if old is None or (new is not None and path_of(old) == path_of(new)):
            return
        for rival in _at_directory_of(old, informer, roots):
            add(rival.metadata.key)

    def certificate_changed(old: Certificate | None, new: Certificate | None) -> None:
        if old is not None and new is not None and old.spec.secret_name == new.spec.secret_name:
            return
        for delivery in informer.cache.by_index(_BY_CERTIFICATE, str(events.key_of(old, new))):
            add(delivery.metadata.key)

    informer.add_handler(changed)
    caches.certificates.add_handler(certificate_changed)


def _at_directory_of(
    delivery: Delivery, informer: Informer[Delivery], roots: Mapping[str, Root]
) -> list[Delivery]:
    return informer.cache.by_index(_BY_DIRECTORY, directory_of(delivery, roots))


def _seniority(delivery: Delivery) -> tuple[datetime, str]:
    created = delivery.metadata.creation_timestamp
    return created or datetime.max.replace(tzinfo=UTC), delivery.metadata.uid


def _certificate_of(delivery: Delivery) -> str:
    ref = delivery.spec.certificate_ref
    return str(ObjectKey(delivery.metadata.namespace, ref.name)) if ref is not None else ""
