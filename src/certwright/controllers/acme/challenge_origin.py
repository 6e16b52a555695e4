"""Where a Challenge comes from: whether it may be acted on, and what its Order and the CA say of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from certwright.controllers.acme import order_requests
from certwright.controllers.acme.issuer_resolution import IssuerResolver
from certwright.controllers.acme.provenance import Provenance, offers
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer
from certwright.resources.acme import ACMEAuthorization, Challenge, Order

Described = Callable[[Order, str], ACMEAuthorization | None]
"""The authorization of an Order at that URL, as this process has read it from the CA; None: it has not."""


class ChallengeOrigin:
    """Compares a Challenge with the Order that owns it, its issuer, and the CA's own description."""

    def __init__(self, provenance: Provenance, resolver: IssuerResolver, described: Described) -> None:
        self._provenance = provenance
        self._resolver = resolver
        self._described = described

    def problem(self, challenge: Challenge, issuer: ResolvedIssuer) -> str:
        """Why the Challenge must not be acted on, as a sentence; empty where it may be."""
        shown_for = partial(order_requests.shown_for, issuer.client.key)
        return self._provenance.problem_of_challenge(challenge, issuer.spec.solvers, shown_for)

    async def problem_of_clean_up(self, challenge: Challenge) -> str:
        """Why a Challenge that is being deleted must not be cleaned up, as a sentence; empty where it may
        be."""
        account = await self._resolver.account_of(challenge.spec.issuer_ref, challenge.metadata)
        if account is None:
            return "its issuer is missing, is no ACME issuer, or has no account key"
        spec, key = account
        shown_for = partial(order_requests.shown_for, key)
        return self._provenance.problem_of_clean_up(challenge, spec.solvers, shown_for)

    def order_ended(self, challenge: Challenge) -> str:
        """That the Challenge's Order has failed, as a sentence; empty where it has not."""
        order = self._provenance.order_of(challenge)
        if order is None or not order.status.is_final or order.status.state == "valid":
            return ""
        return f'Order "{order.metadata.name}" has ended as {order.status.state}'

    def is_described(self, challenge: Challenge) -> bool:
        """Whether this process has read the challenge from the CA, for the Order that owns it."""
        order = self._provenance.order_of(challenge)
        if order is None:
            return False
        authorization = self._described(order, challenge.spec.authorization_url)
        return (
            authorization is not None
            and authorization.identifier == challenge.spec.dns_name
            and offers(authorization, challenge.spec)
        )
