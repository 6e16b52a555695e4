"""Circuit breaker of an ACME issuer: Orders request admission before they are placed, and record the CA's
response. See `controllers/issuer_gate.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.waits import Wait
from certwright.controllers.circuit_breaker import Hold
from certwright.controllers.issuer_gate import Applicant, IssuerGate, applicant_of, signing_applicant
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.resources.acme import Challenge, Order
from certwright.resources.causes import Cause
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATE_SIGNING_REQUESTS

Admit = Callable[[Order, ResolvedIssuer, bool], Awaitable[Wait | None]]
"""Whether the CA's limits allow a new order now; a `Wait` until they do. The last argument: whether it names
the certificate that it replaces (RFC 9773 §5)."""

LimitOf = Callable[[Order, ResolvedIssuer, bool], Wait | None]
"""What `Admit` would answer now; changes nothing."""

Preflight = Callable[[Order, ResolvedIssuer], Awaitable[Wait | None]]
"""Whether the solvers can serve the names of an Order; a `Wait` while they cannot."""


class CircuitGate:
    """The circuit breaker for Orders and Challenges. `preflight` runs before an attempt is admitted, `admit`
    (the CA's limits) afterwards. `get_request` and `get_order` return the objects of that name."""

    def __init__(
        self,
        gate: IssuerGate,
        preflight: Preflight,
        admit: Admit,
        limit_of: LimitOf,
        get_request: Callable[[ObjectKey], CertificateRequest | None],
        get_order: Callable[[ObjectKey], Order | None],
    ) -> None:
        self._gate = gate
        self._preflight = preflight
        self._admit = admit
        self._limit_of = limit_of
        self._get_request = get_request
        self._get_order = get_order

    async def admit(self, order: Order, issuer: ResolvedIssuer, replaces: bool) -> Wait | None:
        """Start an attempt to place the order (None); else why not, and until when. Raises what writes to the
        API raise."""
        if (wait := await self._preflight(order, issuer)) is not None:
            return wait
        applicant = self._applicant_of(order)
        if applicant is not None and (hold := self._gate.admit(applicant)) is not None:
            return _later(_wait(hold), self._limit_of(order, issuer, replaces))
        wait = await self._admit(order, issuer, replaces)
        if applicant is not None and wait is not None:
            self._gate.withdraw(applicant)
        elif applicant is not None:
            # A crash must not lose the attempt, because attempts in an hour are limited.
            await self._gate.record(applicant)
        return wait

    def admit_continuation(self, taken: Order | Challenge) -> Wait | None:
        """Allow a question to the CA about an accepted order (None); else why not, and until when."""
        applicant = self._applicant_of(taken)
        hold = self._gate.admit_continuation(applicant) if applicant is not None else None
        return _wait(hold) if hold is not None else None

    def ends_pause(self, waits: Order | Challenge, since: datetime | None) -> bool:
        """Whether a pause of our own, which began at `since`, ends now: a user demands the certificate
        (`renew`), the object makes the trial of the CA, or the CA works again."""
        applicant = self._applicant_of(waits)
        return applicant is not None and self._gate.ends_pause(applicant, since)

    def placed(self, order: Order) -> None:
        """Record that the CA has accepted the order: the result depends on its names."""
        if (applicant := self._applicant_of(order)) is not None:
            self._gate.record_acceptance(applicant)

    def record_answer(self, asked: Order | Challenge) -> None:
        """Record that the CA has refused the order, or has judged a name: it works."""
        if (applicant := self._applicant_of(asked)) is not None:
            self._gate.record_answer(
                applicant, is_taken=not isinstance(asked, Order) or bool(asked.status.url)
            )

    def record_failure(self, asked: Order | Challenge, error: AcmeError, until: datetime | None) -> None:
        """Record that the CA did not answer, could not, or refuses the account. `until`: its Retry-After."""
        cause = Cause.RATE_LIMITED if isinstance(error, Refused) and error.is_limit else Cause.UNAVAILABLE
        is_taken = not isinstance(asked, Order) or bool(asked.status.url)
        if (applicant := self._applicant_of(asked)) is not None:
            self._gate.record_failure(applicant, cause, until, is_taken=is_taken, message=str(error))

    def _applicant_of(self, waits: Order | Challenge) -> Applicant | None:
        owner, namespace = controller_of(waits.metadata), waits.metadata.namespace
        if owner is None:
            return None
        if isinstance(waits, Challenge):
            order = self._get_order(ObjectKey(namespace, owner.name))
            return self._applicant_of(order) if order is not None else None
        if owner.kind == CERTIFICATE_SIGNING_REQUESTS.kind:
            return signing_applicant(waits.spec.issuer_ref, namespace, owner.name)
        is_request = owner.kind == CERTIFICATE_REQUESTS.kind
        request = self._get_request(ObjectKey(namespace, owner.name)) if is_request else None
        # The Order of a request to a set names the member.
        return applicant_of(request, waits.spec.issuer_ref) if request is not None else None


def _wait(hold: Hold) -> Wait:
    # Where the time depends on the issuer, none is announced.
    why = f"not asking the CA, {hold.sentence}"
    return Wait(why, hold.until, names_time=not hold.is_exact, is_brief=hold.is_brief)


def _later(wait: Wait, limited: Wait | None) -> Wait:
    """The wait to announce: that of the CA's limit, where it is known to end after the breaker's."""
    if limited is None or limited.until is None or wait.until is None or limited.until <= wait.until:
        return wait
    return limited
