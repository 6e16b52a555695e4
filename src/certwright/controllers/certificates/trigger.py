"""Decide whether a certificate must be issued.

Wakes on:  Certificate; its Secret; its current CertificateRequest; its issuer; renewalTime; the end of a
           backoff
Reads:     snapshot
Writes:    Certificate.status.conditions[Issuing] = True; while it waits, the time of the next attempt
Next:      keys
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from certwright.controllers import backoff
from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates import retry_time, rules
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.controllers.circuit_breaker import Hold
from certwright.kube.api import conditions
from certwright.resources import causes, reasons
from certwright.resources.causes import Cause
from certwright.resources.certificate import Certificate
from certwright.resources.retry import RetryRecord, read_retry

WAITING_FOR_ISSUER = "WaitingForIssuer"
"""Reason of Issuing=False: no attempt was made, because the issuer fails. Earlier versions used the cause."""
_CLEARED = "The certificate in the Secret is as specified and not due for renewal: the last failure is over"
_DEFERRALS = (WAITING_FOR_ISSUER, Cause.UNAVAILABLE)


HoldOf = Callable[[Certificate, datetime], Hold | None]
"""Why an issuance may not begin because of its issuer, at that time; None: it may."""


class Trigger:
    """The step that starts an issuance. An issuance that a client has started (`Issuing=True`) continues,
    whatever the rules say.

    `hold_of` is asked last: whether the issuer may be called; it enqueues a Certificate that waits for its
    issuer.
    """

    def __init__(self, limits: BackoffLimits, hold_of: HoldOf = lambda _certificate, _now: None) -> None:
        self._limits = limits
        self._hold_of = hold_of

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Set `Issuing=True` where a rule demands it, the Secret is ours, and no wait is in force."""
        if snapshot.is_issuing or rules.secret_is_not_ours(snapshot) is not None:
            return
        corrected = backoff.correction_of(snapshot.certificate, snapshot.now, self._limits)
        if corrected is not None:
            draft.change(
                last_failure_time=corrected.last_failure, failed_issuance_attempts=corrected.failures
            )
            draft.add_event("Warning", "StatusRepaired", corrected.sentence)
            snapshot = snapshot.with_certificate(draft.certificate)
        verdict = rules.first(rules.TRIGGER_RULES, snapshot)
        retry_at = retry_time.retry_at(snapshot, self._limits)
        is_early = retry_at is not None and snapshot.now < retry_at
        if verdict is None:
            # A failure stays until its wait is over: a manual renewal of a certificate that is not due may
            # have failed, which is to be read.
            if not is_early:
                _clear(snapshot, draft)
        elif retry_at is not None and is_early:
            # Record and show what the Certificate waits for. That is so already, unless cert-manager or an
            # older version has written it, or the time has changed.
            issuing = conditions.find(snapshot.certificate.status.conditions, reasons.ISSUING)
            before = causes.retry_of(snapshot.certificate)
            if issuing is None or before is None:
                return
            is_recorded = read_retry(snapshot.certificate.metadata.annotations) == before
            is_shown = issuing.message == before.text
            if is_recorded and is_shown and before.next_attempt == retry_at.replace(microsecond=0):
                return
            message = before.message or retry_time.failure_text(snapshot)
            record = retry_time.new_record(message, snapshot, retry_at, by_request=before.by_request)
            _show(record, issuing.reason, snapshot, draft)
        elif (hold := self._hold_of(snapshot.certificate, snapshot.now)) is not None:
            _report_deferral(hold, snapshot, draft)
        else:
            draft.set_condition(reasons.ISSUING, "True", verdict.reason, verdict.message, now=snapshot.now)
            draft.add_event("Normal", "Issuing", verdict.message)

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """When the answer may change though nothing changes but the time."""
        if snapshot.is_issuing:
            return None
        status = snapshot.certificate.status
        moments = (retry_time.retry_at(snapshot, self._limits), status.renewal_time)
        return min((moment for moment in moments if moment and moment > snapshot.now), default=None)


def _clear(snapshot: Snapshot, draft: Draft) -> None:
    """Remove an announced wait, because no issuance is due any more."""
    status = snapshot.certificate.status
    issuing = conditions.find(status.conditions, reasons.ISSUING)
    is_refused = issuing is not None and issuing.status == "False"
    if status.last_failure_time is None:
        if is_refused and issuing is not None and issuing.reason in _DEFERRALS:
            draft.remove_condition(reasons.ISSUING)
            draft.set_retry(None)
        return
    draft.change(last_failure_time=None, failed_issuance_attempts=None)
    draft.set_retry(None)
    if is_refused:
        draft.remove_condition(reasons.ISSUING)
    draft.add_event("Normal", "FailureCleared", _CLEARED)


def _report_deferral(hold: Hold, snapshot: Snapshot, draft: Draft) -> None:
    issuing = conditions.find(snapshot.certificate.status.conditions, reasons.ISSUING)
    failed_at = snapshot.certificate.status.last_failure_time
    has_failed = failed_at is not None
    reason = issuing.reason if issuing is not None and has_failed else WAITING_FOR_ISSUER
    record = RetryRecord(
        message=retry_time.failure_text(snapshot) if has_failed else "Waiting for the issuer",
        failed_at=failed_at,
        advice=hold.sentence,
        # Where the time depends on the issuer, none is announced: none is better than a wrong one.
        next_attempt=hold.until.replace(microsecond=0) if hold.is_exact else None,
        waits_for_issuer=True,
    )
    # The time moves with each probe of the issuer: a later one is not worth a write before it has come.
    before = causes.retry_of(snapshot.certificate)
    moment = before.next_attempt if before is not None else None
    if hold.is_exact and moment is not None and snapshot.now < moment <= hold.until:
        record = msgspec.structs.replace(record, next_attempt=moment)
    if record == before and issuing is not None and issuing.message == record.text:
        return
    _show(record, reason, snapshot, draft)


def _show(record: RetryRecord, reason: str, snapshot: Snapshot, draft: Draft) -> None:
    draft.set_retry(record)
    draft.set_condition(reasons.ISSUING, "False", reason, record.text, now=snapshot.now)
