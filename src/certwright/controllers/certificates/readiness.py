"""Judge whether the certificate in the Secret is fit for use, and record its dates.

Wakes on:  Certificate; its Secret; its current CertificateRequest; notAfter
Reads:     snapshot
Writes:    Certificate.status.conditions[Ready], notBefore, notAfter, renewalTime
Next:      revisions; trigger at renewalTime
"""

from __future__ import annotations

from datetime import datetime

from certwright.controllers.certificates import desired, renewals, rules
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.snapshot import Plan, Snapshot
from certwright.kube.api import conditions
from certwright.pki.certificates import CertificateFacts
from certwright.resources import reasons

UP_TO_DATE = "Certificate is up to date and has not expired"
WINDOW_ERROR = "Renewal is planned without regard to spec.renewal.windows"


class Readiness:
    """Reports the actual state, whatever the other steps are doing."""

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Set the `Ready` condition and the dates of the certificate in the Secret."""
        leaf = snapshot.leaf
        facts = leaf if isinstance(leaf, CertificateFacts) else None
        plan = renewals.plan(snapshot, facts) if facts else None
        if plan is not None and plan.problem and _is_news(plan, snapshot):
            draft.add_event("Warning", reasons.WINDOW_ERROR, f"{WINDOW_ERROR}: {plan.problem}")
        draft.change(
            not_before=facts.not_before if facts else None,
            not_after=facts.not_after if facts else None,
            renewal_time=plan.moment if plan else None,
        )
        verdict = rules.first(rules.READINESS_RULES, snapshot)
        if verdict is None:
            draft.set_condition(reasons.READY, "True", "Ready", UP_TO_DATE, now=snapshot.now)
        else:
            draft.set_condition(reasons.READY, "False", verdict.reason, verdict.message, now=snapshot.now)

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """When the certificate becomes valid, or expires if nothing renews it before."""
        begins = snapshot.certificate.status.not_before
        if begins is not None and begins > snapshot.now:
            return begins
        moment = snapshot.certificate.status.not_after
        # At notAfter itself it is still valid (RFC 5280 §4.1.2.5, "inclusive"): one second later it is not.
        return moment + desired.ONE_SECOND if moment and moment >= snapshot.now else None


def _is_news(plan: Plan, snapshot: Snapshot) -> bool:
    """Whether the renewal time or the spec has changed: then this pass writes the status, and the next one
    finds no change."""
    status = snapshot.certificate.status
    ready = conditions.find(status.conditions, reasons.READY)
    judged = ready.observed_generation if ready else -1
    return status.renewal_time != plan.moment or judged != snapshot.certificate.metadata.generation
