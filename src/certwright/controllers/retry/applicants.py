"""Who asks an issuer for a certificate, as the circuit breakers know it.

A breaker identifies a Certificate by its key, so that all its requests are one. A request without Certificate
has a key that no Certificate can have: its name contains a slash.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from certwright.controllers.cache.shard_filter import owning_certificate
from certwright.kube.api.meta import ObjectKey
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


def _without(prefix: str, key: ObjectKey) -> ObjectKey | None:
    name = key.name.removeprefix(prefix)
    return ObjectKey(key.namespace, name) if name != key.name else None
