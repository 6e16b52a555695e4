"""Attempts at issuers that sign while the request is reconciled, before their circuit breaker.

Orders have a controller of their own, which asks the breaker of ACME issuers.
"""

from __future__ import annotations

from certwright.controllers.retry.backoff import Hold
from certwright.controllers.retry.gate import IssuerGate
from certwright.issuers.contract import Failed, Outcome, Pending, Signed
from certwright.resources.causes import Cause
from certwright.resources.request import CertificateRequest


class Attempts:
    """Asks the `gate` before a request is sent to an issuer's server, and reports what came of it."""

    def __init__(self, gate: IssuerGate) -> None:
        self._gate = gate

    async def admit(self, request: CertificateRequest) -> Hold | None:
        """Whether the request may be sent now (None), or until when it waits, and why. An attempt at an
        issuer that fails is recorded first. Raises what writes to the API raise."""
        hold = self._gate.may_ask(request)
        if hold is None and self._gate.is_doubted(request):
            await self._gate.record(request)
        return hold

    def report(self, request: CertificateRequest, outcome: Outcome) -> None:
        """Report the outcome of an attempt that was admitted."""
        match outcome:
            case Signed():
                self._gate.succeeded(request)
            case Failed(cause=Cause.INVALID_REQUEST):
                self._gate.answered(request, is_taken=False)
            case Pending(cause=cause, not_before=until) if cause is not None:
                self._gate.failed(request, cause, until, message=outcome.message)
            case Pending(is_taken=True):
                self._gate.taken(request)
            case _:
                # It was not sent: a Secret is missing.
                self._gate.withdrawn(request)
