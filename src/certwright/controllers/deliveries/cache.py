"""The informer of Deliveries, and which events enqueue them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Final

from certwright.controllers.cache import event_handlers as events
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.deliveries.checks import DELIVERED
from certwright.controllers.deliveries.permissions import PATH_IN_USE, DeliveryOptions, Refused, check
from certwright.kube.api import conditions
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
    client: Client, clock: Clock, namespace: str, options: DeliveryOptions
) -> Informer[Delivery]:
    """The informer; the kind need not be served."""
    return Informer(
        client,
        DELIVERIES,
        clock,
        namespace=namespace,
        is_optional=True,
        indexers={
            _BY_DIRECTORY: lambda delivery: filter(None, (directory_of(delivery, options),)),
            _BY_CERTIFICATE: lambda delivery: filter(None, (_certificate_of(delivery),)),
        },
    )


def at_directory_of(
    delivery: Delivery, informer: Informer[Delivery], options: DeliveryOptions
) -> list[Delivery]:
    """The Deliveries to the same directory, also by another root, the oldest first."""
    return sorted(informer.cache.by_index(_BY_DIRECTORY, directory_of(delivery, options)), key=_seniority)


def has_failed(delivery: Delivery) -> bool:
    """Whether the Delivery has never delivered, and another Delivery is not the cause."""
    condition = conditions.find(delivery.status.conditions, DELIVERED)
    return (
        delivery.status.current is None
        and condition is not None
        and condition.status == "False"
        and condition.reason != PATH_IN_USE
    )


async def secret_name_of(delivery: Delivery, caches: Caches) -> str | None:
    """The name of the delivered Secret; None: the Certificate does not exist."""
    spec = delivery.spec
    if spec.certificate_ref is None:
        return spec.secret_ref.name if spec.secret_ref is not None else None
    certificate = await caches.find_certificate(
        ObjectKey(delivery.metadata.namespace, spec.certificate_ref.name)
    )
    return certificate.spec.secret_name if certificate is not None else None


def path_of(delivery: Delivery) -> str:
    """The place as users know it; the root's directory is the operator's."""
    return f"{delivery.spec.root}:{delivery.spec.path}"


def directory_of(delivery: Delivery, options: DeliveryOptions) -> str:
    """The Delivery's directory, with links resolved, because two roots may lead to one directory. Empty if
    its spec or the operator's flags forbid the Delivery, which then occupies no directory."""
    root = options.roots.get(delivery.spec.root)
    if root is None:
        return ""
    try:
        check(delivery, root, options)
    except Refused:
        return ""
    return f"{os.path.realpath(root.directory)}/{delivery.spec.path}"


def enqueue_deliveries(
    informer: Informer[Delivery], caches: Caches, options: DeliveryOptions, add: Add
) -> None:
    """Enqueue Deliveries for their own events, for events of other Deliveries to the same directory, and of
    their Certificate."""

    def changed(old: Delivery | None, new: Delivery | None) -> None:
        add(events.key_of(old, new))
        if old is None or (new is not None and old.spec == new.spec and has_failed(old) == has_failed(new)):
            return
        for rival in at_directory_of(old, informer, options):
            add(rival.metadata.key)

    def certificate_changed(old: Certificate | None, new: Certificate | None) -> None:
        if old is not None and new is not None and old.spec.secret_name == new.spec.secret_name:
            return
        for delivery in informer.cache.by_index(_BY_CERTIFICATE, str(events.key_of(old, new))):
            add(delivery.metadata.key)

    informer.add_handler(changed)
    caches.certificates.add_handler(certificate_changed)


def _seniority(delivery: Delivery) -> tuple[datetime, str]:
    created = delivery.metadata.creation_timestamp
    return created or datetime.max.replace(tzinfo=UTC), delivery.metadata.uid


def _certificate_of(delivery: Delivery) -> str:
    ref = delivery.spec.certificate_ref
    return str(ObjectKey(delivery.metadata.namespace, ref.name)) if ref is not None else ""
