"""The problems of Certificates and issuers that are worth a notification: pure functions of the objects."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from certwright.kube.api import conditions
from certwright.notifications.messages import Problem, ProblemKind
from certwright.notifications.settings import NotificationSettings
from certwright.resources import reasons
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.retry import read_retry, rfc3339

_LONGEST_GRACE = timedelta(days=1)


def of_certificate(
    certificate: Certificate, settings: NotificationSettings, now: datetime
) -> Iterator[Problem]:
    """The problems of a Certificate: failing attempts, and a renewal that is overdue shortly before the
    end."""
    meta, status = certificate.metadata, certificate.status
    issuing = conditions.find(status.conditions, reasons.ISSUING)
    record = read_retry(meta.annotations)
    subject = f"Certificate {meta.key}"
    look = f"certwright status certificate {meta.name} -n {meta.namespace}"
    next_attempt = record.next_attempt if record is not None else None
    message = record.message if record is not None else issuing.message if issuing is not None else ""
    is_failing = status.last_failure_time is not None
    if is_failing and (status.failed_issuance_attempts or 1) >= settings.failed_attempts:
        yield Problem(
            kind=ProblemKind.FAILING,
            subject=subject,
            cause=message or "the last request has failed",
            fix=(record.advice if record is not None else "") or f"`{look}` explains it",
            since=status.last_failure_time,
            attempts=status.failed_issuance_attempts or 1,
            next_attempt=next_attempt,
            not_after=status.not_after,
        )
    if status.not_after is not None and is_overdue(certificate, settings, now):
        yield Problem(
            kind=ProblemKind.EXPIRING,
            subject=subject,
            cause=message if is_failing and message else _cause(certificate),
            fix=f"`{look}` explains it; `certwright renew {meta.name} -n {meta.namespace}` renews it now",
            next_attempt=next_attempt,
            not_after=status.not_after,
        )


def is_overdue(certificate: Certificate, settings: NotificationSettings, now: datetime) -> bool:
    """Whether the certificate ends soon, and should have been renewed a tenth of its life ago, a day at
    most."""
    status = certificate.status
    if status.not_after is None or status.not_after - now > settings.expires_within:
        return False
    if status.renewal_time is None:
        return True
    life = status.not_after - (status.not_before or status.not_after)
    return now >= status.renewal_time + min(life / 10, _LONGEST_GRACE)


def _cause(certificate: Certificate) -> str:
    moment = certificate.status.renewal_time
    return "no renewal is planned" if moment is None else f"its renewal was due at {rfc3339(moment)}"


def of_issuer(
    kind: str, issuer: Issuer | ClusterIssuer, settings: NotificationSettings, now: datetime
) -> Iterator[Problem]:
    """The problem of an issuer that has not been ready for a while."""
    ready = conditions.find(issuer.status.conditions, reasons.READY)
    if ready is None or ready.status == "True" or ready.last_transition_time is None:
        return
    if now - ready.last_transition_time < settings.issuer_not_ready_for:
        return
    meta = issuer.metadata
    where = f" -n {meta.namespace}" if meta.namespace else ""
    yield Problem(
        kind=ProblemKind.ISSUER,
        subject=f"{kind} {meta.key}",
        cause=f"{ready.reason}: {ready.message}",
        fix=f"`certwright status {kind.lower()} {meta.name}{where}` explains it",
        since=ready.last_transition_time,
    )
