"""The time of the next attempt after a failure, computed from a snapshot, and the sentence in the
Certificate.

`backoff.py` has the formula. This module gathers its inputs, and knows which changes end the wait.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from certwright.controllers import backoff
from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates import rules
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.kube.api import conditions
from certwright.resources import causes, reasons
from certwright.resources.causes import FAILURE_CAUSE, Cause, Why
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.retry import RetryRecord, read_retry

# While another writer keeps overwriting the Secret.
_SHORTEST_TRUCE = timedelta(hours=1)

_NOT_DUE = "no attempt follows before the renewal, because the present certificate is as specified"

_ADVICE = {
    Cause.INVALID_REQUEST: "as it is it cannot succeed: change the spec, which is retried immediately",
    Cause.UNAVAILABLE: "the issuer is unreachable or overloaded",
    Cause.RATE_LIMITED: "the issuer grants no more at present and would refuse earlier attempts too",
    Cause.DENIED: "the approver that denied the request must approve the next one",
    Cause.UNKNOWN: "",
}


def retry_at(snapshot: Snapshot, limits: BackoffLimits) -> datetime | None:
    """The earliest time of an automatic attempt; None: any time.

    A changed spec may be the cure, so it ends the wait: the request that failed no longer matches. Source:
    cert-manager design 20220118 (exponential backoff for certificate issuance).
    """
    if snapshot.certificate.status.last_failure_time is None:
        return None
    requests = snapshot.requests_of(snapshot.next_revision)
    if any(snapshot.differences(request) for request in requests):
        return None
    if not requests and _has_spec_changed(snapshot):
        return None
    issuer = snapshot.issuer
    failure = backoff.failed_issuance(
        snapshot.certificate,
        _why(snapshot),
        issuer_minimum=minimum_of(issuer),
        issuer_changed=_has_changed(issuer, snapshot),
    )
    assert failure is not None
    if not rules.is_contested(snapshot):
        return _announced(backoff.next_attempt(failure, limits), snapshot)
    # Cannot be disabled, because the two writers would continue as fast as an issuer can sign.
    minimum = max(limits.minimum, _SHORTEST_TRUCE)
    truce = BackoffLimits(minimum=minimum, maximum=max(limits.maximum, minimum))
    return backoff.next_attempt(replace(failure, not_after=None), truce)


def _announced(moment: datetime, snapshot: Snapshot) -> datetime:
    """The announced time, if it is `moment` delayed because other Certificates failed in the same second."""
    record = read_retry(snapshot.certificate.metadata.annotations)
    failed_at = snapshot.certificate.status.last_failure_time
    if record is None or record.next_attempt is None or failed_at is None or record.failed_at != failed_at:
        return moment
    latest = moment + (moment - failed_at) * backoff.SPREAD
    return record.next_attempt if moment < record.next_attempt <= latest else moment


def _has_spec_changed(snapshot: Snapshot) -> bool:
    """Whether the spec is another than at the last failure, whose request has been deleted."""
    certificate = snapshot.certificate
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    if issuing is None or not issuing.observed_generation:
        return False
    return issuing.observed_generation != certificate.metadata.generation


def minimum_of(issuer: Issuer | ClusterIssuer | None) -> timedelta | None:
    """The minimum wait after a failure in the issuer's annotation; None without a valid value. (The issuer's
    own status reports an invalid value.)"""
    try:
        return backoff.minimum_in(issuer.metadata.annotations) if issuer is not None else None
    except ValueError:
        return None


def _has_changed(issuer: Issuer | ClusterIssuer | None, snapshot: Snapshot) -> bool:
    """Whether the issuer's spec is another than when it found the last request impossible."""
    if issuer is None:
        return False
    for request in snapshot.requests_of(snapshot.next_revision):
        cause = conditions.find(request.status.conditions, FAILURE_CAUSE)
        if cause is not None and cause.observed_generation:
            return cause.observed_generation != issuer.metadata.generation
    return False


def failure_text(snapshot: Snapshot) -> str:
    """Why the last attempt failed, in the words of its request; empty if unknown."""
    for request in reversed(snapshot.requests_of(snapshot.next_revision)):
        ready = conditions.find(request.status.conditions, reasons.READY)
        if ready is not None and ready.status == "False" and ready.reason != reasons.PENDING:
            return ready.message
    return ""


def new_record(
    message: str, snapshot: Snapshot, moment: datetime | None, *, by_request: bool = True
) -> RetryRecord:
    """The record after a failure, with the time of the next attempt and what to do. `moment` None: nothing
    is due, so that no attempt follows."""
    why = _why(snapshot)
    return RetryRecord(
        failed_at=snapshot.certificate.status.last_failure_time,
        by_request=by_request,
        message=message,
        advice=_advice(why, snapshot) if moment is not None else f"{_NOT_DUE}; {_advice(why, snapshot)}",
        next_attempt=moment.replace(microsecond=0) if moment is not None else None,
        not_before=why.not_before,
    )


def _why(snapshot: Snapshot) -> Why:
    """Why the last attempt failed, from its request; without the request, from the Certificate's own
    record."""
    requests = snapshot.requests_of(snapshot.next_revision)
    for request in reversed(requests):
        why = causes.of_request(request)
        if why.cause is not Cause.UNKNOWN or why.not_before is not None:
            return why
    record = causes.retry_of(snapshot.certificate) if not requests else None
    named = record.not_before if record is not None else None
    return Why(causes.of_certificate(snapshot.certificate), not_before=named)


def _advice(why: Why, snapshot: Snapshot) -> str:
    meta = snapshot.certificate.metadata
    renew = f"`certwright renew {meta.name} -n {meta.namespace}` retries immediately"
    return "; ".join(part for part in (why.advice or _ADVICE[why.cause], renew) if part)
