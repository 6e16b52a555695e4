"""Rebuild circuit-breaker state from API objects after a restart: attempts, failures, waiting requests.

One pass over the caches serves all issuers; issuers without failures yield nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import issuer_of, owner_value
from certwright.controllers.cache.revisions import is_finished, next_revision, revision_number
from certwright.controllers.cache.shard_filter import owning_request
from certwright.controllers.retry.applicants import key_of
from certwright.controllers.retry.backoff import is_possible
from certwright.kube.api import conditions
from certwright.kube.api.meta import ObjectKey, is_controlled_by
from certwright.resources import causes, reasons
from certwright.resources.acme import Order
from certwright.resources.causes import Cause
from certwright.resources.certificate import Certificate
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest

GetRequest = Callable[[ObjectKey], CertificateRequest | None]


class Attempt(NamedTuple):
    """An attempt of an external issuer that failed."""

    at: datetime
    key: ObjectKey
    cause: Cause


@dataclass(slots=True)
class History:
    """The history of one issuer, which `reference` means in `namespace`. `waited` were held back by its
    breaker; `unrecorded` may have made attempts that were not recorded."""

    reference: IssuerReference
    namespace: str
    attempts: list[Attempt] = field(default_factory=list)
    waited: list[tuple[ObjectKey, datetime | None]] = field(default_factory=list)
    unrecorded: set[ObjectKey] = field(default_factory=set)
    issued_at: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that an issuer in good order would not have."""
        return not (self.attempts or self.waited or self.unrecorded)

    def since_success(self) -> list[Attempt]:
        """The attempts after it has last issued, the first one first."""
        after = self.issued_at
        return sorted(
            (attempt for attempt in self.attempts if after is None or attempt.at > after), key=_moment
        )


def name_of(reference: IssuerReference, namespace: str) -> str:
    """A unique name of an issuer. It ends in `kind/namespace/name`."""
    own = issuer_of(reference, namespace)
    return own if reference.is_ours else f"{reference.group}/{own}"


def cause_of_failure(certificate: Certificate, caches: Caches) -> Cause:
    """The cause of the last failure: of its request, else of the Certificate. A time that the request names
    counts for its Certificate alone, because the owner of the request may write it."""
    meta, revision = certificate.metadata, next_revision(certificate)
    for request in caches.requests_of(owner_value(meta.namespace, meta.name)):
        cause = causes.of_request(request).cause
        if revision_number(request.metadata) == revision and cause is not Cause.UNKNOWN:
            return cause
    return causes.of_certificate(certificate)


def histories(caches: Caches, now: datetime) -> list[History]:
    """Those of all issuers that were not in good order, or may not have been."""
    by_name: dict[str, History] = {}

    def of(reference: IssuerReference, namespace: str) -> History:
        return by_name.setdefault(name_of(reference, namespace), History(reference, namespace))

    for certificate in _troubled(caches):
        _add_certificate(
            of(certificate.spec.issuer_ref, certificate.metadata.namespace), certificate, caches, now
        )
    for order in caches.orders.cache.values():
        if not order.status.is_final:
            _add_order(of(order.spec.issuer_ref, order.metadata.namespace), order, caches.requests.cache.get)
    some = {name: history for name, history in by_name.items() if not history.is_empty}
    if not some:
        return []
    for certificate in caches.certificates.cache.values():
        history = some.get(name_of(certificate.spec.issuer_ref, certificate.metadata.namespace))
        if history is not None and (moment := _issued_at(certificate, caches)) is not None:
            history.issued_at = max(moment, history.issued_at or moment)
    return list(some.values())


def _troubled(caches: Caches) -> Iterable[Certificate]:
    """Requests that failed or are being issued; others carry no information."""
    either = (*caches.failing_certificates(), *caches.certificates_issuing())
    return {certificate.metadata.key: certificate for certificate in either}.values()


def _add_certificate(history: History, certificate: Certificate, caches: Caches, now: datetime) -> None:
    key, status = certificate.metadata.key, certificate.status
    at = status.last_failure_time
    # Issuers of our own kinds report their failures themselves: a Certificate that failed there is about its
    # names. An impossible time is left to the trigger, which corrects it.
    if at is not None and is_possible(at, now) and not certificate.spec.issuer_ref.is_ours:
        history.attempts.append(Attempt(at, key, cause_of_failure(certificate, caches)))
    if (record := causes.retry_of(certificate)) is not None and record.waits_for_issuer:
        history.waited.append((key, status.not_after))


def _add_order(history: History, order: Order, get_request: GetRequest) -> None:
    """An Order without a URL may have been sent to its CA without a record of that. It counts once for each
    open request of this replica, because the owner of a namespace may write any number of Orders."""
    owner = owning_request(order)
    request = get_request(owner) if owner is not None and not order.status.url else None
    if request is None or is_finished(request):
        return
    if is_controlled_by(order.metadata, request.metadata.uid):
        history.unrecorded.add(key_of(request))


def _issued_at(certificate: Certificate, caches: Caches) -> datetime | None:
    meta, status = certificate.metadata, certificate.status
    if not status.revision:
        return None
    for request in caches.requests_of(owner_value(meta.namespace, meta.name)):
        ready = conditions.find(request.status.conditions, reasons.READY)
        if (
            revision_number(request.metadata) == status.revision
            and ready is not None
            and ready.status == "True"
        ):
            return ready.last_transition_time
    return status.not_before


def _moment(attempt: Attempt) -> datetime:
    return attempt.at
