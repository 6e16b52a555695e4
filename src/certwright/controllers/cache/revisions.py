"""Which revision of its Certificate a CertificateRequest was made for, and whether it is finished. Pure."""

from __future__ import annotations

from certwright.kube.api import conditions
from certwright.kube.api.meta import ObjectMeta
from certwright.resources import names, reasons
from certwright.resources.certificate import Certificate
from certwright.resources.request import CertificateRequest

_REVISION_DIGITS = 9
"""Digits of a revision in a request's annotation, at most."""


def is_finished(request: CertificateRequest) -> bool:
    """Whether nothing will happen to the request any more."""
    ready = conditions.find(request.status.conditions, reasons.READY)
    return ready is not None and ready.reason in (reasons.ISSUED, reasons.FAILED, reasons.DENIED)


def revision_number(meta: ObjectMeta) -> int:
    """The revision of its Certificate that a request was made for; 0 where its annotation is missing or no
    number."""
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
    """The revision that the issuance in progress, or the next one, has; the first is 1."""
    return issued_revision(certificate) + 1
