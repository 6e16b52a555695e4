"""Indexes of the caches: their names, and the functions from an object to its index values. Pure.

An index value is `namespace/name` of the object at which a look-up starts. A CertificateRequest is indexed by
the revision of its Certificate, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from certwright.controllers.cache.issuer_sets import issuer_value
from certwright.controllers.cache.shard_filter import owning_certificate
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.meta import Object, ObjectMeta, Owned, controller_of
from certwright.kube.api.naming import bounded_name
from certwright.resources import names, reasons
from certwright.resources.acme import Challenge, Order, OrderSpec
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.references import IssuerReference, secret_names
from certwright.resources.request import (
    CertificateRequest,
    CertificateSigningRequest,
    is_open,
    parse_signer_name,
)

_LONGEST_NAME: Final = 253
SUFFIX_LENGTH: Final = 5
"""Random letters at the end of the name of a next-key Secret."""

BY_OWNER = "owner"
BY_TARGET = "target"
BY_ISSUER = "issuer"
BY_FAILURE = "failure"
FAILING = "failing"
BY_CONDITION = "condition"
BY_CA = "ca"
BY_REFERENCE = "reference"
BY_NEXT_KEY = "next key"
BY_URL = "url"
BY_CERTIFICATE = "certificate"
BY_NAMES = "names"


def owner_value(namespace: str, name: str) -> str:
    """The index value of an owning Certificate."""
    return f"{namespace}/{name}"


def secret_value(namespace: str, name: str) -> str:
    """The index value of a target Secret."""
    return f"{namespace}/{name}"


def issuer_of(reference: IssuerReference, namespace: str) -> str:
    """The index value of the issuer that an object in `namespace` refers to."""
    return issuer_value(reference.kind_or_default, namespace, reference.name)


def owning_certificates(obj: Owned) -> Iterable[str]:
    """The Certificate that controls the object."""
    name = owning_certificate(obj)
    return () if name is None else (owner_value(obj.metadata.namespace, name),)


def next_key_name(certificate: str, suffix: str) -> str:
    """The name of a next-key Secret of a Certificate; `suffix` has `SUFFIX_LENGTH` letters."""
    return f"{bounded_name(certificate, limit=_LONGEST_NAME - SUFFIX_LENGTH - 1)}-{suffix}"


def owners_of_next_key(secret: Secret) -> Iterable[str]:
    """The Certificate that controls the Secret, if the Secret contains a next private key: recognised by its
    label, or without the label, which an admission webhook may remove, by its name and data."""
    name, data = owning_certificate(secret), secret.data
    # A Secret with a certificate is a target, which the Certificate may own too.
    if name is None or names.TLS_CERT_KEY in data:
        return ()
    meta = secret.metadata
    if meta.labels.get(names.NEXT_PRIVATE_KEY_LABEL) != "true" and (
        data.keys() != {names.TLS_PRIVATE_KEY_KEY}
        or meta.name != next_key_name(name, meta.name[-SUFFIX_LENGTH:])
    ):
        return ()
    return (owner_value(meta.namespace, name),)


def target_secrets(certificate: Certificate) -> Iterable[str]:
    """The Secret that the Certificate writes."""
    return (target_value(certificate),)


def target_value(certificate: Certificate) -> str:
    """The index value of the Certificate's target Secret."""
    return secret_value(certificate.metadata.namespace, certificate.spec.secret_name)


def next_keys(certificate: Certificate) -> Iterable[str]:
    """The Secret with the Certificate's next private key."""
    name = certificate.status.next_private_key_secret_name
    return (secret_value(certificate.metadata.namespace, name),) if name else ()


def secrets_of_issuer(issuer: Issuer | ClusterIssuer) -> Iterable[str]:
    """All Secrets that the issuer's spec names."""
    return {secret_value(issuer.metadata.namespace, name) for name in secret_names(issuer.spec)}


def failures(certificate: Certificate) -> Iterable[str]:
    """`FAILING` and the time, for a Certificate whose last attempt has failed."""
    failed_at = certificate.status.last_failure_time
    return (FAILING, failed_at.isoformat()) if failed_at is not None else ()


def conditions_but_ready(certificate: Certificate) -> Iterable[str]:
    """The types of the Certificate's conditions, without `Ready`, which all have."""
    return {condition.type for condition in certificate.status.conditions if condition.type != reasons.READY}


def own_issuers(certificate: Certificate) -> Iterable[str]:
    """The Certificate's issuer, if it is of our group."""
    reference = certificate.spec.issuer_ref
    return (issuer_of(reference, certificate.metadata.namespace),) if reference.is_ours else ()


def ca_secrets(issuer: Issuer | ClusterIssuer) -> Iterable[str]:
    """The Secret with the key pair of a CA issuer."""
    return (issuer.spec.ca.secret_name,) if issuer.spec.ca is not None else ()


def awaited_issuers(request: CertificateRequest) -> Iterable[str]:
    """The issuer or set of an unfinished request."""
    reference = request.spec.issuer_ref
    if is_finished(request) or not (reference.is_ours or reference.is_set):
        return ()
    return (issuer_of(reference, request.metadata.namespace),)


def awaited_signers(request: CertificateSigningRequest) -> Iterable[str]:
    """The issuer of an open CertificateSigningRequest."""
    signer = parse_signer_name(request.spec.signer_name) if is_open(request) else None
    return () if signer is None else (issuer_value(*signer),)


def owner_uids(obj: Object) -> Iterable[str]:
    """The UID of the object's controller."""
    owner = controller_of(obj.metadata)
    return () if owner is None else (owner.uid,)


def open_issuers(obj: Order | Challenge) -> Iterable[str]:
    """The issuer of an Order or Challenge that is not final."""
    if obj.status.is_final:
        return ()
    return (issuer_of(obj.spec.issuer_ref, obj.metadata.namespace),)


def names_of(namespace: str, spec: OrderSpec) -> str:
    """The index value of an issuer and a set of names, in a namespace."""
    reference = spec.issuer_ref
    identifiers = sorted({*spec.dns_names, *spec.ip_addresses})
    return "/".join((namespace, reference.kind_or_default, reference.name, *identifiers))


def issued_names(order: Order) -> Iterable[str]:
    """The issuer and names of an Order with a certificate."""
    has = order.status.state == "valid" and order.status.certificate
    return (names_of(order.metadata.namespace, order.spec),) if has else ()


def named_certificates(order: Order) -> Iterable[str]:
    """The Certificate in an Order's annotation, for which the Order was made."""
    name = order.metadata.annotations.get(names.CERTIFICATE_NAME)
    return (owner_value(order.metadata.namespace, name),) if name else ()


def order_urls(order: Order) -> Iterable[str]:
    """The Order's URL at its server."""
    return (order.status.url,) if order.status.url else ()


_REVISION_DIGITS = 9
"""Digits of a revision in a request's annotation, at most."""


def is_finished(request: CertificateRequest) -> bool:
    """Whether nothing will happen to the request any more."""
    ready = conditions.find(request.status.conditions, reasons.READY)
    return ready is not None and ready.reason in (reasons.ISSUED, reasons.FAILED, reasons.DENIED)


def revision_number(meta: ObjectMeta) -> int:
    """The revision of the Certificate that a request was made for; 0 if the annotation is missing or
    invalid."""
    text = meta.annotations.get(names.CERTIFICATE_REVISION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _REVISION_DIGITS else 0


def issued_revision(certificate: Certificate) -> int:
    """The revision of the last certificate issued; 0 for none.

    `status.revision` is ignored where the next revision could not be read from a request's annotation
    (negative, or too large): no controller writes such a number.
    """
    revision = certificate.status.revision or 0
    return revision if 0 <= revision < 10**_REVISION_DIGITS - 1 else 0


def next_revision(certificate: Certificate) -> int:
    """The revision of the issuance in progress, or of the next issuance; the first is 1."""
    return issued_revision(certificate) + 1


def awaits_signature(request: CertificateRequest) -> bool:
    """Whether the request is approved and has no answer yet."""
    existing = request.status.conditions
    is_refused = any(conditions.is_true(existing, kind) for kind in (reasons.DENIED, reasons.INVALID_REQUEST))
    return conditions.is_true(existing, reasons.APPROVED) and not is_refused and not is_finished(request)
