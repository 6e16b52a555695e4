"""Queue priorities of Orders and Challenges: one for a live name never waits for one for a dead name.

An object that can proceed goes first, then all others; Orders that merely have to report that they still wait
go last. Equals take turns by namespace, issuer, and the domain that the name lies in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from certwright.controllers.cache.caches import Caches
from certwright.kube.api.meta import ObjectKey
from certwright.resources.challenge import Challenge
from certwright.resources.issuer_ref import IssuerReference

_GOES_ON, _BEGINS, _WAITS = 0.0, 1.0, 2.0


class OrderPrecedence:
    """Priorities of Orders; `is_proven` says whether the CA has called a Challenge valid."""

    def __init__(self, caches: Caches, is_proven: Callable[[Challenge], bool]) -> None:
        self._caches = caches
        self._is_proven = is_proven

    def rank(self, key: ObjectKey) -> float:
        """The lowest first."""
        order = self._caches.orders.cache.get(key)
        if order is None or order.status.is_final:
            return _GOES_ON
        if not order.status.url:
            return _BEGINS
        challenges = self._caches.challenges_of(order.metadata)
        failed = any(
            challenge.status.is_final and challenge.status.state != "valid" for challenge in challenges
        )
        return _GOES_ON if failed or all(map(self._is_proven, challenges)) else _WAITS

    def flow(self, key: ObjectKey) -> Hashable:
        """Orders of one flow wait for each other."""
        order = self._caches.orders.cache.get(key)
        if order is None:
            return key.namespace
        names = (*order.spec.dns_names, *order.spec.ip_addresses, order.spec.common_name)
        return flow_of(key, order.spec.issuer_ref, names[0])


class ChallengePrecedence:
    """Priorities of Challenges; `is_seen` says whether a self-check of one has succeeded."""

    def __init__(self, caches: Caches, is_seen: Callable[[ObjectKey], bool]) -> None:
        self._caches = caches
        self._is_seen = is_seen

    def rank(self, key: ObjectKey) -> float:
        """The lowest first."""
        return _GOES_ON if self._is_seen(key) else _BEGINS

    def flow(self, key: ObjectKey) -> Hashable:
        """Challenges of one flow wait for each other."""
        challenge = self._caches.challenges.cache.get(key)
        if challenge is None:
            return key.namespace
        return flow_of(key, challenge.spec.issuer_ref, challenge.spec.dns_name)


def flow_of(key: ObjectKey, issuer: IssuerReference, name: str) -> Hashable:
    """The flow of an object: those of one namespace, one issuer and one domain wait for each other."""
    # Not the public suffix list: to load it costs 4 MB, and here it is about politeness only.
    domain = tuple(name.lower().rsplit(".", 2)[-2:])
    return key.namespace, issuer.kind_or_default, issuer.name, domain
