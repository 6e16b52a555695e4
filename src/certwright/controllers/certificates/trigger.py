"""Decide whether a certificate must be issued.

Wakes on:  Certificate; its Secret; its current CertificateRequest; renewalTime; the end of a backoff
Reads:     snapshot
Writes:    Certificate.status.conditions[Issuing] = True
Next:      keys
"""

from __future__ import annotations

from datetime import datetime

from certwright.controllers.certificates import rules
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.rules import Backoff
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.resources import reasons


class Trigger:
    """Starts an issuance; one that a client has started (`Issuing=True`) goes on whatever the rules say."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Set `Issuing=True` where a rule demands it, the Secret is ours, and no backoff is running."""
        if snapshot.is_issuing or rules.secret_belongs_to_another(snapshot) is not None:
            return
        verdict = rules.first(rules.TRIGGER_RULES, snapshot)
        if verdict is None or self._must_wait(snapshot):
            return
        draft.set_condition(reasons.ISSUING, "True", verdict.reason, verdict.message, now=snapshot.now)
        draft.tell("Normal", "Issuing", verdict.message)

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """When the answer may become another one though nothing changes but the time."""
        if snapshot.is_issuing:
            return None
        status = snapshot.certificate.status
        moments = (rules.retry_at(snapshot, self._backoff), status.renewal_time)
        return min((moment for moment in moments if moment and moment > snapshot.now), default=None)

    def _must_wait(self, snapshot: Snapshot) -> bool:
        moment = rules.retry_at(snapshot, self._backoff)
        return moment is not None and snapshot.now < moment
