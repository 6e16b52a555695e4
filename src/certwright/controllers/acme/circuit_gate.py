"""Circuit breaker of an ACME issuer: Orders request admission before they are placed, and record the CA's
response. See `controllers/retry/breaker.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.cache.shard_filter import owning_request
from certwright.controllers.retry.backoff import Hold
from certwright.controllers.retry.gate import IssuerGate
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.resources.causes import Cause
from certwright.resources.challenge import Challenge
from certwright.resources.issuer_set_member import sent_to
from certwright.resources.order import Order
from certwright.resources.request import CertificateRequest

Admit = Callable[[Order, ResolvedIssuer, bool], Awaitable[Wait | None]]
"""Whether the CA's limits allow a new order now; a `Wait` until they do. The last argument: whether it names
the certificate that it replaces (RFC 9773 §5)."""


class CircuitGate:
    """Stands before `admit`. `get_request` and `get_order` give the objects of that name."""

    def __init__(
        self,
        gate: IssuerGate,
        admit: Admit,
        get_request: Callable[[ObjectKey], CertificateRequest | None],
        get_order: Callable[[ObjectKey], Order | None],
    ) -> None:
        self._gate = gate
        self._admit = admit
        self._get_request = get_request
        self._get_order = get_order

    async def admit(self, order: Order, issuer: ResolvedIssuer, replaces: bool) -> Wait | None:
        """Whether the order may be placed now (None); else why not, and until when."""
        request = self._request_of(order)
        hold = self._gate.may_ask(request) if request is not None else None
        if hold is not None:
            # For moments only: not worth a write.
            return _wait(hold)
        wait = await self._admit(order, issuer, replaces)
        if wait is not None and request is not None:
            self._gate.withdrawn(request)
        return wait

    def may_go_on(self, taken: Order | Challenge) -> Wait | None:
        """Whether the CA may be asked about an order that it has taken (None); else why not, until when."""
        request = self._request_of(taken)
        hold = self._gate.may_go_on(request) if request is not None else None
        return _wait(hold) if hold is not None else None

    def is_hurried(self, waits: Order | Challenge, since: datetime | None) -> bool:
        """Whether a pause of our own, which began at `since`, is cut short: the certificate is wanted
        immediately (`renew`), it is its turn to try the CA, or the CA works again."""
        request = self._request_of(waits)
        return request is not None and (self._gate.is_marked(request) or self._gate.is_called(request, since))

    def is_doubted(self, order: Order) -> bool:
        """Whether an attempt is to be recorded before it is made: it may be in vain."""
        request = self._request_of(order)
        return request is not None and self._gate.is_doubted(request)

    async def record(self, order: Order) -> None:
        """Return when the attempt is recorded. Raises what writes to the API raise."""
        if (request := self._request_of(order)) is not None:
            await self._gate.record(request)

    def placed(self, order: Order) -> None:
        """The CA has taken the order: what follows depends on its names."""
        if (request := self._request_of(order)) is not None:
            self._gate.taken(request)

    def answered(self, asked: Order | Challenge) -> None:
        """The CA has refused the order, or has judged a name: it works."""
        if (request := self._request_of(asked)) is not None:
            self._gate.answered(request, is_taken=not isinstance(asked, Order) or bool(asked.status.url))

    def troubled(self, asked: Order | Challenge, error: AcmeError, until: datetime | None) -> None:
        """The CA did not answer, or could not, or refuses the account; `until`: its own Retry-After."""
        cause = Cause.RATE_LIMITED if isinstance(error, Refused) and error.is_limit else Cause.UNAVAILABLE
        is_taken = not isinstance(asked, Order) or bool(asked.status.url)
        if (request := self._request_of(asked)) is not None:
            self._gate.failed(request, cause, until, is_taken=is_taken, message=str(error))

    def _request_of(self, waits: Order | Challenge) -> CertificateRequest | None:
        if isinstance(waits, Order):
            key = owning_request(waits)
            request = self._get_request(key) if key is not None else None
            is_of_set = request is not None and request.spec.issuer_ref.is_set
            return sent_to(request, waits.spec.issuer_ref) if request is not None and is_of_set else request
        owner = controller_of(waits.metadata)
        order = (
            self._get_order(ObjectKey(waits.metadata.namespace, owner.name)) if owner is not None else None
        )
        return self._request_of(order) if order is not None else None


def _wait(hold: Hold) -> Wait:
    # Where the time depends on the issuer, none is announced.
    why = f"not asking the CA, {hold.sentence}"
    return Wait(why, hold.until, names_time=not hold.is_exact, is_brief=hold.is_brief)
