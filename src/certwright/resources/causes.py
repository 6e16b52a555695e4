"""Causes of failed issuances, as far as they determine the next attempt.

The objects carry a cause. The failed CertificateRequest has a condition `FailureCause` beside cert-manager's
`Ready`; the Certificate's condition `Issuing=False` has the cause as its reason. So any client can read them,
and a restart loses nothing. A request without `FailureCause` failed for an unknown reason.

An issuer of another group may write the condition `FailureCause` too: reason is one of `Cause`, the message
is the fix. The time from which it accepts the next request is the annotation `certwright.io/not-before` of
the CertificateRequest. The old form, `; not before …` at the end of the message, is accepted there only.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.resources import migration, reasons
from certwright.resources.certificate import Certificate
from certwright.resources.names import NOT_BEFORE
from certwright.resources.request import CertificateRequest
from certwright.resources.retry import RetryRecord, parse_moment, read_retry

FAILURE_CAUSE = "FailureCause"
"""Condition type of a CertificateRequest with the cause of its failure."""


class Cause(StrEnum):
    """Failures by the backoff that they need. The values are reasons of conditions."""

    INVALID_REQUEST = "InvalidRequest"
    """The request can never succeed as it is."""
    UNAVAILABLE = "IssuerUnavailable"
    """The issuer is unreachable or overloaded."""
    RATE_LIMITED = "RateLimited"
    """A rate limit of the issuer is exhausted."""
    DENIED = "Denied"
    """The request was denied by an approver."""
    UNKNOWN = "Failed"
    """None of the others, or unknown; cert-manager's reason for all failures."""


class Why(NamedTuple):
    """Why a request has failed. `advice` is the fix (may be empty), `not_before` when the issuer accepts
    the next one, `generation` that of the issuer that judged (0: unknown)."""

    cause: Cause = Cause.UNKNOWN
    advice: str = ""
    not_before: datetime | None = None
    generation: int = 0


_CAUSES = {cause.value: cause for cause in Cause}


def condition_of(why: Why) -> Condition | None:
    """The condition `FailureCause` of a failed request; None for an unknown cause."""
    if why.cause is Cause.UNKNOWN:
        return None
    return Condition(
        type=FAILURE_CAUSE,
        status="True",
        reason=why.cause,
        message=why.advice,
        observed_generation=why.generation,
    )


def of_request(request: CertificateRequest) -> Why:
    """Why the request failed; a denial and an invalid request have cert-manager's conditions for that."""
    existing = request.status.conditions
    if conditions.is_true(existing, reasons.DENIED):
        return Why(Cause.DENIED)
    named = parse_moment(request.metadata.annotations.get(NOT_BEFORE, ""))
    condition = conditions.find(existing, FAILURE_CAUSE)
    if condition is None or condition.status != "True":
        invalid = conditions.is_true(existing, reasons.INVALID_REQUEST)
        return Why(Cause.INVALID_REQUEST if invalid else Cause.UNKNOWN, not_before=named)
    advice = condition.message
    if not request.spec.issuer_ref.is_ours:
        advice, former = migration.split_not_before(advice)
        named = named or former
    cause = _CAUSES.get(condition.reason, Cause.UNKNOWN)
    return Why(cause, advice, named, condition.observed_generation)


def of_certificate(certificate: Certificate) -> Cause:
    """The cause of the last failure, from the Certificate alone; `UNKNOWN` if it has none."""
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    if issuing is None or issuing.status == "True":
        return Cause.UNKNOWN
    return _CAUSES.get(issuing.reason, Cause.UNKNOWN)


def retry_of(certificate: Certificate) -> RetryRecord | None:
    """The retry record while no issuance is in progress; an older version kept it in the message."""
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    if issuing is None or issuing.status == "True":
        return None
    failed_at = certificate.status.last_failure_time
    record = read_retry(certificate.metadata.annotations)
    if record is None:
        return migration.retry_record(issuing.message, failed_at)
    # A record of an earlier failure: cert-manager has recorded the last one.
    return record if record.failed_at == failed_at else RetryRecord(failed_at=failed_at)


def waiting_for(request: CertificateRequest, text: str) -> str:
    """The message of the Issuing condition while the request waits; `text` is the request's own message."""
    return f'Waiting for CertificateRequest "{request.metadata.name}": {text}'


def is_marked(certificate: Certificate) -> bool:
    """Whether a user has requested immediate issuance (`renew`), and the request does not wait yet."""
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    if issuing is None or issuing.status != "True" or issuing.reason != reasons.MANUALLY_TRIGGERED:
        return False
    return not migration.is_used_mark(issuing.message)
