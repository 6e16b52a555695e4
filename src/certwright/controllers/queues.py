"""Work queues of the controllers by name, and what one controller enqueues for another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import owner_value
from certwright.controllers.cache.revisions import is_finished
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import Ours, ours
from certwright.controllers.precedence import Precedence
from certwright.controllers.retry.applicants import request_of, signing_request_of
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import Object, ObjectKey
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import Clock
from certwright.resources.request import CertificateRequest

_ISSUERS = ("issuers", "clusterissuers")

WakeNamed = Callable[[str, ObjectKey], None]
"""Enqueue a key of the controller of that name."""


def _namespace_of(key: ObjectKey) -> str:
    return key.namespace


class Queues:
    """The queues of this replica; `mine` selects what it works on (None: everything)."""

    def __init__(self, clock: Clock, caches: Caches, mine: Mine | None) -> None:
        self._clock = clock
        self._caches = caches
        self._mine = mine
        self._by_name: dict[str, WorkQueue[ObjectKey]] = {}
        self._checked_again: set[ObjectKey] = set()

    def create(
        self, name: str, precedence: Precedence, *, is_divided: bool, most_per_namespace: int | None
    ) -> WorkQueue[ObjectKey]:
        """The queue of that controller; one that `is_divided` admits this replica's keys only. At most
        `most_per_namespace` keys of one namespace are processed at the same time, and namespaces take turns;
        None: in the order in which they became ready."""
        admit = ours(name, self._mine, self._caches) if self._mine is not None and is_divided else None
        if admit is not None and name in _ISSUERS:
            admit = partial(self._is_issuer_ours, admit)
        is_shared = most_per_namespace is not None
        queue = WorkQueue(
            self._clock,
            rank=precedence.rank,
            flow=precedence.flow or (_namespace_of if is_shared else None),
            admit=admit,
            owner=_namespace_of if is_shared else None,
            most_per_owner=most_per_namespace or 1,
        )
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
        self.check_issuer_at(key)

    def check_issuer_at(self, issuer: ObjectKey) -> None:
        """Have the Issuer, or, without a namespace, the ClusterIssuer of that key checked again."""
        self.add("issuers" if issuer.namespace else "clusterissuers", issuer)

    def wake_issuance(self, key: ObjectKey, at: datetime) -> None:
        """Enqueue the object with that applicant's key and its issuance at that time: the open request, its
        Order, its Challenges."""
        wake = partial(self._add_at, at)
        informer = self._caches.signing_requests
        if (request_key := request_of(key)) is not None:
            self._wake_request(self._caches.requests.cache.get(request_key), wake)
        elif (signing_key := signing_request_of(key)) is not None:
            wake("certificatesigningrequests", signing_key)
            self._wake_orders(informer.cache.get(signing_key) if informer is not None else None, wake)
        else:
            wake("certificates", key)
            for request in self._caches.requests_of(owner_value(*key)):
                self._wake_request(request, wake)

    def _wake_request(self, request: CertificateRequest | None, wake: WakeNamed) -> None:
        if request is not None and not is_finished(request):
            wake("certificaterequests", request.metadata.key)
            self._wake_orders(request, wake)

    def _wake_orders(self, request: Object | None, wake: WakeNamed) -> None:
        for order in self._caches.orders_of(request.metadata) if request is not None else ():
            wake("orders", order.metadata.key)
            for challenge in self._caches.challenges_of(order.metadata):
                wake("challenges", challenge.metadata.key)

    def _add_at(self, at: datetime, name: str, key: ObjectKey) -> None:
        if (queue := self._by_name.get(name)) is not None:
            queue.add_after(key, at - self._clock.now())

    def _is_issuer_ours(self, admit: Ours, issuer: ObjectKey) -> bool | None:
        return issuer in self._checked_again or admit(issuer)
