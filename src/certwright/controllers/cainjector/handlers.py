"""Event handlers of the CA injector, besides those for the objects and for Secrets."""

from __future__ import annotations

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add, key_of
from certwright.controllers.cainjector.reconcile import targets_of
from certwright.controllers.cainjector.targets import Target
from certwright.kube.client.informer import Informer
from certwright.resources.certificate import Certificate


def wake_with_certificates(informer: Informer[Target], caches: Caches, add: Add) -> None:
    """Enqueue the objects that name a Certificate when it is created, deleted, or has another Secret."""

    def changed(old: Certificate | None, new: Certificate | None) -> None:
        if old is not None and new is not None and old.spec.secret_name == new.spec.secret_name:
            return
        for target in targets_of(informer, key_of(old, new)):
            add(target.metadata.key)

    caches.certificates.add_handler(changed)
