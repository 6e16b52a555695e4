"""Log lines for changes of a Certificate's status: one for each issuance, renewal and failure.

They are derived from the status before and after a write, so a repeated reconcile logs nothing.
"""

from __future__ import annotations

import logging

from certwright.kit import logs
from certwright.kube.api import conditions
from certwright.resources import reasons
from certwright.resources.certificate import Certificate
from certwright.resources.retry import read_retry
from certwright.resources.table import ISSUER_SETS, ISSUERS

_log = logging.getLogger(__name__)


def log_change(before: Certificate, after: Certificate) -> None:
    """Log what the write of a status has changed, if an operator needs to know."""
    old, new = before.status, after.status
    if new == old:
        return
    if new.revision != old.revision and new.revision is not None:
        _log_issued(before, after)
    elif new.last_failure_time not in (None, old.last_failure_time):
        _log_failed(after)
    elif _ready(before) is not _ready(after):
        _log_readiness(before, after)


def log_blocked(certificate: Certificate, reason: str, message: str) -> None:
    """Log that an issuance cannot continue."""
    _event(logging.WARNING, "issuance blocked", certificate, reason=reason, cause=message)


def _event(level: int, message: str, certificate: Certificate, **values: logs.Value) -> None:
    key = certificate.metadata.key
    logs.event(_log, level, message, subject=f"Certificate/{key}", certificate=str(key), **values)


def _issuer(certificate: Certificate) -> str:
    reference, namespace = certificate.spec.issuer_ref, certificate.metadata.namespace
    if reference.kind_or_default in (ISSUERS.kind, ISSUER_SETS.kind):
        return f"{reference.kind_or_default}/{namespace}/{reference.name}"
    # The scope of external kinds is unknown.
    return f"{reference.kind_or_default}/{reference.name}"


def _log_issued(before: Certificate, after: Certificate) -> None:
    status = after.status
    _event(
        logging.INFO,
        "certificate renewed" if before.status.revision else "certificate issued",
        after,
        issuer=_issuer(after),
        secret=after.spec.secret_name,
        revision=status.revision,
        notAfter=status.not_after,
        renewal=status.renewal_time,
    )


def _log_failed(after: Certificate) -> None:
    status = after.status
    issuing = conditions.find(status.conditions, reasons.ISSUING)
    record = read_retry(after.metadata.annotations)
    _event(
        logging.WARNING,
        "issuance failed",
        after,
        issuer=_issuer(after),
        reason=issuing.reason if issuing is not None else None,
        attempts=status.failed_issuance_attempts or 1,
        nextAttempt=record.next_attempt if record is not None else None,
        notAfter=status.not_after,
        cause=issuing.message if issuing is not None else None,
    )


def _ready(certificate: Certificate) -> bool | None:
    """Whether it is Ready; None before the first verdict."""
    ready = conditions.find(certificate.status.conditions, reasons.READY)
    return ready.status == "True" if ready is not None else None


def _log_readiness(before: Certificate, after: Certificate) -> None:
    ready = conditions.find(after.status.conditions, reasons.READY)
    if ready is None:
        return
    if ready.status == "True":
        _event(logging.INFO, "certificate ready", after, notAfter=after.status.not_after)
    elif _ready(before):
        # A changed spec is re-issued, which is the normal course.
        is_issuing = conditions.is_true(after.status.conditions, reasons.ISSUING)
        is_normal = is_issuing and ready.reason != reasons.EXPIRED
        level = logging.INFO if is_normal else logging.WARNING
        _event(level, "certificate not ready", after, reason=ready.reason, cause=ready.message)
