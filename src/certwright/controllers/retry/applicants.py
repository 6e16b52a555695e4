"""Who asks an issuer for a certificate, as the circuit breakers know it.

A breaker identifies a Certificate by its key, so that all its requests are one. A request without Certificate
has a key that no Certificate can have: its name contains a slash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import owner_value
from certwright.controllers.cache.revisions import is_finished
from certwright.controllers.cache.shard_filter import owning_certificate
from certwright.kube.api.meta import Object, ObjectKey
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest

_REQUEST: Final = "certificaterequest/"
_SIGNING_REQUEST: Final = "certificatesigningrequest/"


class Applicant(NamedTuple):
    """The key of a Certificate or a request, and the issuer that its reference means in `namespace`."""

    issuer: IssuerReference
    namespace: str
    key: ObjectKey


def applicant_of(request: CertificateRequest, member: IssuerReference | None = None) -> Applicant:
    """The applicant of a CertificateRequest at its issuer, or at that member of its set."""
    return Applicant(member or request.spec.issuer_ref, request.metadata.namespace, key_of(request))


def signing_applicant(issuer: IssuerReference, namespace: str, name: str) -> Applicant:
    """The applicant of a CertificateSigningRequest, which has no namespace; `namespace` is the issuer's."""
    return Applicant(issuer, namespace, key_of_signing_request(name))


def key_of(request: CertificateRequest) -> ObjectKey:
    """The key of the Certificate that a request belongs to; else one that none can have."""
    key, name = request.metadata.key, owning_certificate(request)
    return ObjectKey(key.namespace, name) if name is not None else key_of_request(key)


def key_of_request(request: ObjectKey) -> ObjectKey:
    """The applicant's key of a CertificateRequest without a Certificate."""
    return ObjectKey(request.namespace, f"{_REQUEST}{request.name}")


def key_of_signing_request(name: str) -> ObjectKey:
    """The applicant's key of a CertificateSigningRequest."""
    return ObjectKey("", f"{_SIGNING_REQUEST}{name}")


def request_of(applicant: ObjectKey) -> ObjectKey | None:
    """The CertificateRequest with that applicant's key; None: it is another object's."""
    return _without(_REQUEST, applicant)


def signing_request_of(applicant: ObjectKey) -> ObjectKey | None:
    """The CertificateSigningRequest with that applicant's key; None: it is another object's."""
    return _without(_SIGNING_REQUEST, applicant)


def issuance_of(caches: Caches, applicant: ObjectKey) -> Iterator[tuple[str, ObjectKey]]:
    """The objects of an applicant's issuance, each with the name of its controller: the applicant, its open
    request, the Orders of that, their Challenges."""
    owners: list[Object] = []
    if (request_key := request_of(applicant)) is not None:
        requests = [caches.requests.cache.get(request_key)]
    elif (signing_key := signing_request_of(applicant)) is not None:
        requests = []
        yield "certificatesigningrequests", signing_key
        informer = caches.signing_requests
        if informer is not None and (signing_request := informer.cache.get(signing_key)) is not None:
            owners.append(signing_request)
    else:
        requests = list(caches.requests_of(owner_value(*applicant)))
        yield "certificates", applicant
    for request in requests:
        if request is not None and not is_finished(request):
            yield "certificaterequests", request.metadata.key
            owners.append(request)
    for owner in owners:
        for order in caches.orders_of(owner.metadata):
            yield "orders", order.metadata.key
            for challenge in caches.challenges_of(order.metadata):
                yield "challenges", challenge.metadata.key


def _without(prefix: str, key: ObjectKey) -> ObjectKey | None:
    name = key.name.removeprefix(prefix)
    return ObjectKey(key.namespace, name) if name != key.name else None
