"""Event handlers: map each change of an object to the keys that it enqueues.

An informer passes the old and the new state of the object: `old` is None for a new object, `new` for a
deleted one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Any

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import is_finished, secret_value
from certwright.controllers.cache.issuer_sets import AnySet, issuer_value, kind_of, value_of
from certwright.controllers.cache.secrets import Dependents, Secrets
from certwright.controllers.cache.shard_filter import is_own_write, owning_certificate
from certwright.kube.api import conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import Object, ObjectKey, Owned, controller_of
from certwright.kube.client.informer import Informer
from certwright.resources import reasons
from certwright.resources.acme import Challenge, Order
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.names import CIRCUIT_BREAKER
from certwright.resources.request import CertificateRequest, CertificateSigningRequest
from certwright.resources.retry import read_breaker
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATES,
    CHALLENGES,
    ORDERS,
)

Add = Callable[[ObjectKey], None]
"""Enqueues a key."""


def key_of(old: Object | None, new: Object | None) -> ObjectKey:
    """The key of the object that the event is about."""
    obj = new if new is not None else old
    assert obj is not None
    return obj.metadata.key


def add_owner(add: Add, *states: Owned | None) -> None:
    """Enqueue the Certificates that own, or owned, the object."""
    woken = None
    for obj in states:
        if obj is None or (name := owning_certificate(obj)) is None:
            continue
        # Nearly always the same before and after.
        if woken != (key := ObjectKey(obj.metadata.namespace, name)):
            add(woken := key)


def add_owner_of_request(add: Add, old: CertificateRequest | None, new: CertificateRequest | None) -> None:
    """As `add_owner`, except for approvals: only the signing controller needs those, and each issuance has
    one."""
    if old is None or new is None or not _is_mere_approval(old, new):
        add_owner(add, old, new)


def _is_mere_approval(old: CertificateRequest, new: CertificateRequest) -> bool:
    approved = conditions.find(new.status.conditions, reasons.APPROVED)
    if approved is None or conditions.find(old.status.conditions, reasons.APPROVED) is not None:
        return False
    before = msgspec.structs.replace(old.status, conditions=(*old.status.conditions, approved))
    meta = msgspec.structs.replace(old.metadata, resource_version=new.metadata.resource_version)
    return before == new.status and meta == new.metadata and old.spec == new.spec


def sharing(caches: Caches, certificate: Certificate | None) -> Sequence[ObjectKey]:
    """The Certificates with the same target Secret, including the Certificate itself while it exists."""
    if certificate is None:
        return ()
    target = secret_value(certificate.metadata.namespace, certificate.spec.secret_name)
    return caches.certificate_keys_for(target)


def enqueue_certificates(caches: Caches, enqueue: Add) -> None:
    """Enqueue Certificates for their own events, and for those of their requests and Secrets."""

    def add(key: ObjectKey) -> None:
        if not is_own_write(CERTIFICATES, key):
            enqueue(key)

    def certificate_changed(old: Certificate | None, new: Certificate | None) -> None:
        add(key_of(old, new))
        if old is None or new is None or old.spec.secret_name != new.spec.secret_name:
            # Others with the same secretName may win or lose their right to it.
            for certificate in (old, new):
                for rival in sharing(caches, certificate):
                    add(rival)

    def secret_changed(secret: ObjectKey, states: Sequence[Owned]) -> None:
        for key in caches.certificate_keys_for(secret_value(*secret)):
            add(key)
        add_owner(add, *states)

    caches.certificates.add_handler(certificate_changed)
    caches.requests.add_handler(partial(add_owner_of_request, add))
    caches.secrets.add_handler(secret_changed)


def enqueue_own(informer: Informer[Any] | None, add: Add) -> None:
    """Enqueue the objects of an informer, which exists, for their own events."""
    assert informer is not None
    informer.add_handler(lambda old, new: add(key_of(old, new)))


def enqueue_issuers(informer: Informer[Any] | None, add: Add) -> None:
    """Enqueue the issuers of an informer, which exists, for their own events, except for the verdict of their
    own check and for records of their breaker: checking an issuer may cost its server requests."""
    assert informer is not None
    kind = informer.kind

    def changed(old: Object | None, new: Object | None) -> None:
        # The object that a write returns may also contain a change by a user.
        is_same = old is not None and new is not None and old.metadata.generation == new.metadata.generation
        is_own = is_same and is_own_write(kind, key_of(old, new))
        # The first record: the condition of the issuer must say what fails.
        is_first = (
            _differ_by_breaker(old, new) and old is not None and not read_breaker(old.metadata.annotations)
        )
        if is_first or not (is_own or _differ_by_breaker(old, new)):
            add(key_of(old, new))

    informer.add_handler(changed)


def _differ_by_breaker(old: Object | None, new: Object | None) -> bool:
    """Whether two states of an issuer differ only in the record of their breaker."""
    if not isinstance(old, Issuer | ClusterIssuer) or not isinstance(new, Issuer | ClusterIssuer):
        return False
    return _without_breaker(old) == _without_breaker(new)


def _without_breaker(issuer: Issuer | ClusterIssuer) -> Issuer | ClusterIssuer:
    meta = issuer.metadata
    annotations = {name: text for name, text in meta.annotations.items() if name != CIRCUIT_BREAKER}
    meta = msgspec.structs.replace(meta, annotations=annotations, resource_version="")
    return msgspec.structs.replace(issuer, metadata=meta)


def enqueue_with_secrets(secrets: Secrets, add: Add, dependents: Dependents[ObjectKey]) -> None:
    """Enqueue the objects that depend on a Secret when the Secret changes."""

    def secret_changed(secret: ObjectKey, _states: Sequence[Owned]) -> None:
        for key in dependents.of(secret):
            add(key)

    secrets.add_use(dependents.__contains__)
    secrets.add_handler(secret_changed)


def enqueue_with_issuer(caches: Caches, add: Add, those_of: Callable[[str], Sequence[Object]]) -> None:
    """Enqueue the objects that wait for an issuer when the issuer changes."""

    def issuer_changed(kind: str, old: Object | None, new: Object | None) -> None:
        if _differ_by_breaker(old, new):
            # The breaker itself notifies Certificates that wait for it.
            return
        key = key_of(old, new)
        for request in those_of(issuer_value(kind, key.namespace, key.name)):
            add(request.metadata.key)

    for informer in caches.issuer_informers:
        informer.add_handler(partial(issuer_changed, informer.kind.kind))


def on_member_change(caches: Caches, notify: Callable[[AnySet], None]) -> None:
    """Call `notify` with each set that has a changed issuer as a member."""

    def changed(kind: str, old: Object | None, new: Object | None) -> None:
        key = key_of(old, new)
        for issuer_set in caches.sets.with_member(issuer_value(kind, key.namespace, key.name)):
            notify(issuer_set)

    for informer in caches.issuer_informers:
        informer.add_handler(partial(changed, informer.kind.kind))


def enqueue_sets(caches: Caches, add: Add, informer: Informer[Any] | None) -> None:
    """Enqueue the sets of that informer when a set or one of its members changes."""
    assert informer is not None
    kind = informer.kind.kind

    def member_changed(issuer_set: AnySet) -> None:
        if kind_of(issuer_set) == kind:
            add(issuer_set.metadata.key)

    informer.add_handler(lambda old, new: add(key_of(old, new)))
    on_member_change(caches, member_changed)


def enqueue_with_member(caches: Caches, add: Add) -> None:
    """Enqueue the requests to a set when the set or one of its members changes."""

    def enqueue(issuer_set: AnySet) -> None:
        for request in caches.requests_for(value_of(issuer_set)):
            add(request.metadata.key)

    def set_changed(old: AnySet | None, new: AnySet | None) -> None:
        for issuer_set in (new, old):
            if issuer_set is not None:
                enqueue(issuer_set)
                return

    for informer in caches.sets.informers:
        informer.add_handler(set_changed)
    on_member_change(caches, enqueue)


def enqueue_orders_with_member(caches: Caches, add: Add) -> None:
    """Enqueue the open Orders of requests to a set when a member of the set changes: another member may
    sign."""

    def enqueue(issuer_set: AnySet) -> None:
        for request in caches.requests_for(value_of(issuer_set)):
            for order in caches.orders_of(request.metadata):
                if not order.status.is_final:
                    add(order.metadata.key)

    on_member_change(caches, enqueue)


def enqueue_requests(caches: Caches, add: Add) -> None:
    """Enqueue CertificateRequests for their own events, and for those of their Orders that matter to them."""

    def request_changed(old: CertificateRequest | None, new: CertificateRequest | None) -> None:
        # A finished request needs no work, and there is one for each certificate.
        if new is None or not is_finished(new):
            add(key_of(old, new))

    enqueue_with_order(caches, add, CERTIFICATE_REQUESTS)
    caches.requests.add_handler(request_changed)


def enqueue_with_order(caches: Caches, add: Add, kind: Kind[Any]) -> None:
    """Enqueue the requests of that kind for the events of their Orders that matter to them."""

    def order_changed(old: Order | None, new: Order | None) -> None:
        # The reconcile that creates an Order goes on from it, and a request does not show intermediate
        # progress.
        if new is not None and _observed_by_request(old) == _observed_by_request(new):
            return
        for order in (old, new):
            owner = controller_of(order.metadata) if order is not None else None
            if order is not None and owner is not None and owner.kind == kind.kind:
                add(ObjectKey(order.metadata.namespace if kind.namespaced else "", owner.name))

    caches.orders.add_handler(order_changed)


def _observed_by_request(order: Order | None) -> Hashable:
    if order is None:
        return "", "", False
    status = order.status
    state = status.state if status.state in reasons.FINAL_STATES else ""
    return state, status.reason, bool(status.certificate)


def enqueues_order(caches: Caches, add: Add) -> Callable[[Challenge], None]:
    """A function that enqueues the Order of a Challenge."""

    def enqueue_order(challenge: Challenge) -> None:
        if (owner := controller_of(challenge.metadata)) is None:
            return
        key = ObjectKey(challenge.metadata.namespace, owner.name)
        order = caches.orders.cache.get(key)
        is_over = order is not None and order.status.is_final
        if not is_over and not is_own_write(ORDERS, key):
            add(key)

    return enqueue_order


def enqueue_orders(caches: Caches, add: Add) -> None:
    """Enqueue Orders for their own events, and for those of their Challenges and requests."""
    enqueue_order = enqueues_order(caches, add)

    def order_changed(old: Order | None, new: Order | None) -> None:
        if not is_own_write(ORDERS, key := key_of(old, new)):
            add(key)

    def challenge_changed(old: Challenge | None, new: Challenge | None) -> None:
        if old is None or new is None or _observed_by_order(old) != _observed_by_order(new):
            for challenge in (old, new):
                if challenge is not None:
                    enqueue_order(challenge)

    def request_changed(old: CertificateRequest | None, new: CertificateRequest | None) -> None:
        # An Order is refused until its request exists and is approved. Ours are made later than that.
        if new is not None and _is_approved(old) != _is_approved(new):
            for order in caches.orders_of(new.metadata):
                add(order.metadata.key)

    def signing_request_changed(
        _: CertificateSigningRequest | None, new: CertificateSigningRequest | None
    ) -> None:
        if new is not None:
            for order in caches.orders_of(new.metadata):
                add(order.metadata.key)

    caches.orders.add_handler(order_changed)
    caches.challenges.add_handler(challenge_changed)
    caches.requests.add_handler(request_changed)
    if caches.signing_requests is not None:
        caches.signing_requests.add_handler(signing_request_changed)


def enqueue_challenges(caches: Caches, add: Add) -> None:
    """Enqueue Challenges for their own events, except for writes of their own reconcile."""

    def changed(old: Challenge | None, new: Challenge | None) -> None:
        if not is_own_write(CHALLENGES, key := key_of(old, new)):
            add(key)

    caches.challenges.add_handler(changed)


def enqueue_refused(caches: Caches, add: Add, refused: Collection[ObjectKey]) -> None:
    """Enqueue the refused Challenges of a changed Order, and all Challenges of a failed Order."""

    def order_changed(old: Order | None, new: Order | None) -> None:
        order = new if new is not None else old
        has_failed = new is not None and _has_failed(new) and not (old is not None and _has_failed(old))
        if order is None or not (refused or has_failed):
            return
        for challenge in caches.challenges_of(order.metadata):
            if has_failed or challenge.metadata.key in refused:
                add(challenge.metadata.key)

    caches.orders.add_handler(order_changed)


def _has_failed(order: Order) -> bool:
    return order.status.is_final and order.status.state != "valid"


def _is_approved(request: CertificateRequest | None) -> bool:
    return request is not None and conditions.is_true(request.status.conditions, reasons.APPROVED)


def _observed_by_order(challenge: Challenge) -> Hashable:
    meta, status = challenge.metadata, challenge.status
    return status.state, status.reason, meta.uid, meta.owner_references
