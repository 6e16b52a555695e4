"""The issuer that signed the certificate of a Certificate: where its spec names a set, one of the members."""

from __future__ import annotations

from collections.abc import Iterable

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import owner_value
from certwright.controllers.cache.revisions import revision_number
from certwright.kube.api import conditions
from certwright.kube.api.meta import is_controlled_by
from certwright.resources import reasons
from certwright.resources.certificate import Certificate
from certwright.resources.issuer_set import read_member
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest


def signer_of(caches: Caches, certificate: Certificate) -> IssuerReference | None:
    """The issuer that the last signed request of the Certificate was sent to, if it is a member of the
    Certificate's set still; without a set the issuer of the spec. None: unknown."""
    reference, meta = certificate.spec.issuer_ref, certificate.metadata
    if not reference.is_set:
        return reference
    requests = caches.requests_of(owner_value(meta.namespace, meta.name))
    signer = recorded_signer(certificate, requests)
    return (
        signer if signer is not None and caches.sets.has_member(reference, meta.namespace, signer) else None
    )


def recorded_signer(
    certificate: Certificate, requests: Iterable[CertificateRequest]
) -> IssuerReference | None:
    """The issuer that the last signed one of these requests was sent to, of those that the Certificate owns;
    None: unknown. The owner of a request may have written it."""
    uid = certificate.metadata.uid
    signed = [
        request for request in requests if is_controlled_by(request.metadata, uid) and _is_signed(request)
    ]
    last = max(signed, key=lambda request: revision_number(request.metadata), default=None)
    if last is None:
        return None
    return read_member(last.metadata.annotations) if last.spec.issuer_ref.is_set else last.spec.issuer_ref


def _is_signed(request: CertificateRequest) -> bool:
    return conditions.is_true(request.status.conditions, reasons.READY)
