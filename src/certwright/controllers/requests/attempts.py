"""Attempts at issuers that sign while the request is reconciled, before their circuit breaker.

Orders have a controller of their own, which asks the breaker of ACME issuers.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from certwright.controllers.retry.applicants import Applicant
from certwright.controllers.retry.backoff import Hold
from certwright.controllers.retry.gate import IssuerGate
from certwright.issuers.contract import Failed, Outcome, Pending, Signed
from certwright.kube.api.meta import ObjectKey
from certwright.resources.causes import Cause

CHECK_BREAKER: Final = timedelta(seconds=1)
"""After a failure of the issuer: the next pass asks the breaker until when the request waits."""
ISSUER_FAILING: Final = "IssuerFailing"
"""Reason of the Event of a request that waits for the breaker."""


class Attempts:
    """Asks the `gate` before a request is sent to an issuer's server, and reports what came of it."""

    def __init__(self, gate: IssuerGate) -> None:
        self._gate = gate

    async def admit(self, applicant: Applicant) -> Hold | None:
        """Start an attempt, and return None; or return until when it waits, and why. An attempt at an issuer
        that fails is recorded first. Raises what writes to the API raise."""
        if (hold := self._gate.may_attempt(applicant)) is not None:
            self._gate.hold(applicant, hold)
            return hold
        self._gate.start_attempt(applicant)
        if self._gate.is_doubted(applicant):
            await self._gate.record(applicant)
        return None

    def forget(self, key: ObjectKey) -> None:
        """The request with that applicant's key needs no attempt any more. Idempotent."""
        self._gate.forget(key)

    def report(self, applicant: Applicant, outcome: Outcome) -> None:
        """Report the outcome of an attempt that was admitted."""
        match outcome:
            case Signed():
                self._gate.succeeded(applicant)
            case Failed(cause=Cause.INVALID_REQUEST):
                self._gate.answered(applicant, is_taken=False)
            case Pending(cause=cause, not_before=until) if cause is not None:
                self._gate.failed(applicant, cause, until, message=outcome.message)
            case Pending(is_taken=True):
                self._gate.taken(applicant)
            case _:
                # It was not sent: a Secret is missing.
                self._gate.withdrawn(applicant)
