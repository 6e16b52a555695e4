"""Which key is woken by the news of an object.

An informer tells its handlers what there was and what there is now: `old` is None for a new object, `new` for
a deleted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from certwright.controllers.caches import Caches, issuer_value, owning_certificate, secret_value
from certwright.controllers.dependents import Dependents
from certwright.controllers.secrets import Secrets
from certwright.resources.certificate import Certificate
from certwright.resources.core import Secret
from certwright.resources.meta import Object, ObjectKey
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

Add = Callable[[ObjectKey], None]
"""Has a key looked at soon."""


def key_of(old: Object | None, new: Object | None) -> ObjectKey:
    """The key of the object that the news are of."""
    obj = new if new is not None else old
    assert obj is not None
    return obj.metadata.key


def add_owner(add: Add, *states: Object | None) -> None:
    """Wake the Certificates that own, or owned, the object."""
    for obj in states:
        if obj is not None and (name := owning_certificate(obj)) is not None:
            add(ObjectKey(obj.metadata.namespace, name))


def sharing(caches: Caches, certificate: Certificate | None) -> list[Certificate]:
    """The Certificates that have the same target Secret, with itself."""
    if certificate is None:
        return []
    return caches.certificates_for(secret_value(certificate.metadata.namespace, certificate.spec.secret_name))


def wake_with_secrets(secrets: Secrets, add: Add, dependents: Dependents[ObjectKey]) -> None:
    """Wake those who have looked at a Secret when it changes."""

    def secret_changed(secret: ObjectKey, _states: Sequence[Secret]) -> None:
        for key in dependents.of(secret):
            add(key)

    secrets.add_use(dependents.__contains__)
    secrets.add_handler(secret_changed)


def wake_with_issuer(caches: Caches, add: Add, those_of: Callable[[str], Sequence[Object]]) -> None:
    """Wake those who wait for an issuer when it changes."""

    def issuer_changed(kind: str) -> Callable[[Object | None, Object | None], None]:
        def changed(old: Object | None, new: Object | None) -> None:
            key = key_of(old, new)
            for request in those_of(issuer_value(kind, key.namespace, key.name)):
                add(request.metadata.key)

        return changed

    caches.issuers.add_handler(issuer_changed(ISSUERS.kind))
    if caches.cluster_issuers is not None:
        caches.cluster_issuers.add_handler(issuer_changed(CLUSTER_ISSUERS.kind))
