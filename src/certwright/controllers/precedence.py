"""Queue priorities: started work is finished first, then the most urgent work is begun.

Of many due Certificates, each is finished before further ones begin. So the first of a thousand is ready
after seconds, and a failure in between leaves most of them either done or untouched. An Order or Challenge
for a live name never waits for a dead name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.shard_filter import owning_request
from certwright.controllers.issuer_gate import key_of
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.queue import STAGE
from certwright.resources.acme import Challenge
from certwright.resources.references import IssuerReference

_AN_HOUR_S: Final = 3600.0
# No urgency is as much as a stage, which would take 2**64 hours.
_STARTED, _NEW, _WAITING = 0 * STAGE, 1 * STAGE, 2 * STAGE


class Precedence(NamedTuple):
    """The order of keys in a queue: `rank`, the lowest first; within a rank, the flows (`flow`) take
    turns."""

    rank: Callable[[ObjectKey], float] | None = None
    flow: Callable[[ObjectKey], Hashable] | None = None


class Urgency:
    """Urgency of Certificates and of what belongs to them, by the end of the certificate."""

    def __init__(self, caches: Caches, now: Callable[[], datetime]) -> None:
        self._caches = caches
        self._now = now

    @property
    def certificates(self) -> Precedence:
        """Precedence of Certificates: issuances that have begun, then by urgency."""
        return Precedence(self._rank, self.flow)

    @property
    def requests(self) -> Precedence:
        """Precedence of CertificateRequests: the precedence of their Certificates."""
        return Precedence(
            lambda request: self.of(self.certificate_of(request)),
            lambda request: self.flow(self.certificate_of(request)),
        )

    def orders(self, is_proven: Callable[[Challenge], bool]) -> Precedence:
        """Precedence of Orders; `is_proven`: whether the CA has called a Challenge valid.

        Orders that would only report another wait go last. Orders of equal rank take turns by namespace,
        issuer and domain.
        """
        return Precedence(partial(self._order_rank, is_proven), self._order_flow)

    def challenges(self, is_seen: Callable[[ObjectKey], bool]) -> Precedence:
        """Precedence of Challenges, which take turns as Orders do: first Challenges whose self-check has
        succeeded (`is_seen`)."""
        return Precedence(lambda key: _STARTED if is_seen(key) else _NEW, self._challenge_flow)

    def of(self, certificate: ObjectKey) -> float:
        """0 if the certificate is missing, expired or expires within an hour, 1 if within two hours, 2 if
        within four … The scale is coarse so that flows of equal urgency take turns."""
        left_s = self._caches.ends_at(certificate) - self._now().timestamp()
        return float(max(0, math.ceil(math.log2(max(left_s, 1.0) / _AN_HOUR_S))))

    def flow(self, certificate: ObjectKey) -> Hashable:
        """The flow of a Certificate: its namespace, and whether it is new or a renewal, so that many renewals
        do not delay new Certificates, nor the reverse."""
        return certificate.namespace, self._caches.ends_at(certificate) > 0

    def certificate_of(self, request: ObjectKey | None) -> ObjectKey:
        """The Certificate of a CertificateRequest; without one, a key that no Certificate has."""
        found = self._caches.requests.cache.get(request) if request is not None else None
        return key_of(found) if found is not None else request or ObjectKey("", "")

    def _rank(self, certificate: ObjectKey) -> float:
        return self.of(certificate) + (_STARTED if self._caches.has_next_key(certificate) else _NEW)

    def _order_rank(self, is_proven: Callable[[Challenge], bool], key: ObjectKey) -> float:
        order = self._caches.orders.cache.get(key)
        if order is None or order.status.is_final:
            return _STARTED
        if not order.status.url:
            return _NEW + self.of(self.certificate_of(owning_request(order)))
        challenges = self._caches.challenges_of(order.metadata)
        failed = any(
            challenge.status.is_final and challenge.status.state != "valid" for challenge in challenges
        )
        return _STARTED if failed or all(map(is_proven, challenges)) else _WAITING

    def _order_flow(self, key: ObjectKey) -> Hashable:
        order = self._caches.orders.cache.get(key)
        if order is None:
            return key.namespace
        names = (*order.spec.dns_names, *order.spec.ip_addresses, order.spec.common_name)
        flow = flow_of(key, order.spec.issuer_ref, names[0])
        return flow, self.flow(self.certificate_of(owning_request(order)))

    def _challenge_flow(self, key: ObjectKey) -> Hashable:
        challenge = self._caches.challenges.cache.get(key)
        if challenge is None:
            return key.namespace
        return flow_of(key, challenge.spec.issuer_ref, challenge.spec.dns_name)


def flow_of(key: ObjectKey, issuer: IssuerReference, name: str) -> Hashable:
    """The flow of an object, whose members wait for each other: its namespace, issuer and domain."""
    # Not the public suffix list: to load it costs 4 MB, and here it is about politeness only.
    domain = tuple(name.lower().rsplit(".", 2)[-2:])
    return key.namespace, issuer.kind_or_default, issuer.name, domain
