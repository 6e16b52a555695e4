"""The Challenge objects of Orders: created, compared with what an Order needs, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from certwright.controllers.acme import order_requests
from certwright.controllers.acme.challenge_plan import ChallengeChanged, claim_same, needed_challenges
from certwright.controllers.acme.order_state import Ensured, FollowFrom
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.meta import CONTROLLER_REFERENCE, changed_by_admission, removed_metadata
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.resources.acme import Challenge, Order
from certwright.resources.table import CHALLENGES


class OrderChallenges:
    """`challenges_of` gives the Challenges that an Order owns."""

    def __init__(
        self,
        challenges: Informer[Challenge],
        client: Client,
        challenges_of: Callable[[Order], Iterable[Challenge]],
    ) -> None:
        self._challenges = challenges
        self._client = client
        self._challenges_of = challenges_of

    async def ensure(
        self, order: Order, issuer: ResolvedIssuer, ensured: Ensured | None
    ) -> tuple[tuple[Challenge, ...], Ensured]:
        """Create the Challenges that the Order lacks, and delete those of solvers that the issuer no longer
        has. Returns all that it needs. `ensured`: the result of the last call for this Order.

        Raises `NoSolver`, and what writes to the API raise.
        """
        current = {challenge.metadata.name: challenge for challenge in self._challenges_of(order)}
        follow_from = FollowFrom(
            order.metadata.resource_version, issuer.view.resource_version, issuer.client.key.thumbprint
        )
        if ensured == (follow_from, frozenset(current)):
            # An Order of a hundred names is enqueued for each that is proven.
            return tuple(current.values()), ensured
        shown_for = partial(order_requests.shown_for, issuer.client.key)
        needed = []
        for desired in needed_challenges(order, issuer.spec.solvers, shown_for):
            same = claim_same(desired, current, order.metadata.name)
            needed.append(same if same is not None else await self._create(desired))
        for leftover in current.values():
            # A failed one is kept to be read.
            if not leftover.status.is_final and leftover.metadata.deletion_timestamp is None:
                await self._delete(leftover)
        return tuple(needed), Ensured(follow_from, frozenset(challenge.metadata.name for challenge in needed))

    async def delete(self, order: Order) -> None:
        """Delete all Challenges of the Order. Raises what writes to the API raise."""
        for challenge in list(self._challenges_of(order)):
            if challenge.metadata.deletion_timestamp is None:
                await self._delete(challenge)

    async def _create(self, challenge: Challenge) -> Challenge:
        meta = challenge.metadata
        try:
            made = await self._client.create(CHALLENGES, challenge)
        except AlreadyExists:
            made = await self._client.get(CHALLENGES, meta.name, meta.namespace)
        else:
            if CONTROLLER_REFERENCE in removed_metadata(meta, made.metadata):
                await self._delete(made)
                raise ChallengeChanged(
                    changed_by_admission(f'Challenge "{meta.name}"', (CONTROLLER_REFERENCE,))
                )
        self._challenges.put(made)
        return made

    async def _delete(self, challenge: Challenge) -> None:
        meta = challenge.metadata
        try:
            await self._client.delete(CHALLENGES, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return
