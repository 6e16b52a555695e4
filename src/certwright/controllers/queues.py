"""Work queues of the controllers by name, and what one controller enqueues for another."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from functools import partial
from typing import NamedTuple

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import owner_value
from certwright.controllers.cache.revisions import is_finished
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import Ours, ours
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import Clock
from certwright.resources.table import CLUSTER_ISSUERS

_ISSUERS = ("issuers", "clusterissuers")


class Precedence(NamedTuple):
    """Which keys go first (`rank`, the lowest first), and which wait for each other (`flow`)."""

    rank: Callable[[ObjectKey], float] | None = None
    flow: Callable[[ObjectKey], Hashable] | None = None


class Queues:
    """The queues of this replica; `mine` selects what it works on (None: everything)."""

    def __init__(self, clock: Clock, caches: Caches, mine: Mine | None) -> None:
        self._clock = clock
        self._caches = caches
        self._mine = mine
        self._by_name: dict[str, WorkQueue[ObjectKey]] = {}
        self._checked_again: set[ObjectKey] = set()

    def create(self, name: str, precedence: Precedence, *, is_divided: bool) -> WorkQueue[ObjectKey]:
        """The queue of that controller; one that `is_divided` admits this replica's keys only."""
        admit = ours(name, self._mine, self._caches) if self._mine is not None and is_divided else None
        if admit is not None and name in _ISSUERS:
            admit = partial(self._is_issuer_ours, admit)
        queue = WorkQueue(self._clock, rank=precedence.rank, flow=precedence.flow, admit=admit)
        self._by_name[name] = queue
        return queue

    def add(self, name: str, key: ObjectKey) -> None:
        """Enqueue a key of that controller, if it runs."""
        if (queue := self._by_name.get(name)) is not None:
            queue.add(key)

    def check_issuer(self, issuer: IssuerView) -> None:
        """Have an issuer checked again; another replica's too, because the state of an account at its server
        is known in this process only."""
        key = ObjectKey(issuer.namespace, issuer.name)
        self._checked_again.add(key)
        self.add("clusterissuers" if issuer.kind == CLUSTER_ISSUERS.kind else "issuers", key)

    def wake_issuance(self, key: ObjectKey, at: datetime) -> None:
        """Enqueue a Certificate and its issuance at that time: its open request, the Order of that, its
        Challenges."""
        wake = partial(self._add_at, at)
        wake("certificates", key)
        for request in self._caches.requests_of(owner_value(*key)):
            if is_finished(request):
                continue
            wake("certificaterequests", request.metadata.key)
            for order in self._caches.orders_of(request.metadata):
                wake("orders", order.metadata.key)
                for challenge in self._caches.challenges_of(order.metadata):
                    wake("challenges", challenge.metadata.key)

    def _add_at(self, at: datetime, name: str, key: ObjectKey) -> None:
        if (queue := self._by_name.get(name)) is not None:
            queue.add_after(key, at - self._clock.now())

    def _is_issuer_ours(self, admit: Ours, issuer: ObjectKey) -> bool | None:
        return issuer in self._checked_again or admit(issuer)
