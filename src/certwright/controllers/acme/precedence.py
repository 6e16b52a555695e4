"""Who goes first of many Orders and Challenges: one for a name that is alive waits for none that is dead.

What can go on goes first, then what is new, and last what merely has to say that it still waits. Equals take
turns by namespace, issuer, and the domain that the name lies in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from certwright.controllers.caches import Caches
from certwright.resources.challenge import Challenge
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.meta import ObjectKey

GOES_ON, IS_NEW, WAITS = 0.0, 1.0, 2.0


class OrderPrecedence:
    """Of Orders; `is_proven` says whether the CA has called a Challenge valid."""

    def __init__(self, caches: Caches, is_proven: Callable[[Challenge], bool]) -> None:
        self._caches = caches
        self._is_proven = is_proven

    def rank(self, key: ObjectKey) -> float:
        """The lowest first."""
        order = self._caches.orders.cache.get(key)
        if order is None or order.status.is_final:
            return GOES_ON
        if not order.status.url:
            return IS_NEW
        challenges = self._caches.challenges_of(order.metadata)
        proven = [self._is_proven(one) for one in challenges]
        failed = any(one.status.is_final and one.status.state != "valid" for one in challenges)
        return GOES_ON if all(proven) or failed else WAITS

    def flow(self, key: ObjectKey) -> Hashable:
        """Orders of one flow wait for each other."""
        order = self._caches.orders.cache.get(key)
        if order is None:
            return key.namespace
        names = (*order.spec.dns_names, *order.spec.ip_addresses, order.spec.common_name)
        return _flow(key, order.spec.issuer_ref, names[0])


class ChallengePrecedence:
    """Of Challenges; `is_seen` says whether the proof of one was seen; None: nothing was done for it yet."""

    def __init__(self, caches: Caches, is_seen: Callable[[ObjectKey], bool | None]) -> None:
        self._caches = caches
        self._is_seen = is_seen

    def rank(self, key: ObjectKey) -> float:
        """The lowest first."""
        is_seen = self._is_seen(key)
        if is_seen is None:
            return IS_NEW
        return GOES_ON if is_seen else WAITS

    def flow(self, key: ObjectKey) -> Hashable:
        """Challenges of one flow wait for each other."""
        challenge = self._caches.challenges.cache.get(key)
        if challenge is None:
            return key.namespace
        return _flow(key, challenge.spec.issuer_ref, challenge.spec.dns_name)


def _flow(key: ObjectKey, issuer: IssuerReference, name: str) -> Hashable:
    # Not the public suffix list: to load it costs 4 MB, and here it is about politeness only.
    domain = tuple(name.lower().rsplit(".", 2)[-2:])
    return key.namespace, issuer.kind_or_default, issuer.name, domain
