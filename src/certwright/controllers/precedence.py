"""Queue priorities: what has begun is finished first, then the most urgent.

Of many Certificates that are due, each is finished before further ones begin. So the first of a thousand is
ready after seconds, and a failure in between leaves most of them either done or untouched. An Order or
Challenge for a live name never waits for one for a dead name.
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
_GOES_ON, _BEGINS, _WAITS = 0 * STAGE, 1 * STAGE, 2 * STAGE


class Precedence(NamedTuple):
    """Which keys go first (`rank`, the lowest first), and which wait for each other (`flow`)."""

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
        """Precedence of CertificateRequests: that of their Certificates."""
        return Precedence(
            lambda request: self.of(self.certificate_of(request)),
            lambda request: self.flow(self.certificate_of(request)),
        )

    def orders(self, is_proven: Callable[[Challenge], bool]) -> Precedence:
        """Precedence of Orders; `is_proven` says whether the CA has called a Challenge valid.

        Orders that merely have to report that they still wait go last. Equals take turns by namespace,
        issuer, and the domain that the name lies in.
        """
        return Precedence(partial(self._order_rank, is_proven), self._order_flow)

    def challenges(self, is_seen: Callable[[ObjectKey], bool]) -> Precedence:
        """Precedence of Challenges, which take turns as Orders do: first those of which a self-check has
        succeeded (`is_seen`)."""
        return Precedence(lambda key: _GOES_ON if is_seen(key) else _BEGINS, self._challenge_flow)

    def of(self, certificate: ObjectKey) -> float:
        """0 if its certificate is missing, expired or expires within an hour, 1 if within two, 2 if within
        four … So coarse that flows can take turns among those that are as urgent."""
        left_s = self._caches.ends_at(certificate) - self._now().timestamp()
        return float(max(0, math.ceil(math.log2(max(left_s, 1.0) / _AN_HOUR_S))))

    def flow(self, certificate: ObjectKey) -> Hashable:
        """Certificates of one flow wait for each other: those of one namespace, new ones apart from renewals,
        so that many of one kind delay none of the other."""
        return certificate.namespace, self._caches.ends_at(certificate) > 0

    def certificate_of(self, request: ObjectKey | None) -> ObjectKey:
        """The Certificate of a CertificateRequest; a key that none has, if it has none."""
        found = self._caches.requests.cache.get(request) if request is not None else None
        return key_of(found) if found is not None else request or ObjectKey("", "")

    def _rank(self, certificate: ObjectKey) -> float:
        return self.of(certificate) + (_GOES_ON if self._caches.has_next_key(certificate) else _BEGINS)

    def _order_rank(self, is_proven: Callable[[Challenge], bool], key: ObjectKey) -> float:
        order = self._caches.orders.cache.get(key)
        if order is None or order.status.is_final:
            return _GOES_ON
        if not order.status.url:
            return _BEGINS + self.of(self.certificate_of(owning_request(order)))
        challenges = self._caches.challenges_of(order.metadata)
        failed = any(
            challenge.status.is_final and challenge.status.state != "valid" for challenge in challenges
        )
        return _GOES_ON if failed or all(map(is_proven, challenges)) else _WAITS

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
    """The flow of an object: those of one namespace, one issuer and one domain wait for each other."""
    # Not the public suffix list: to load it costs 4 MB, and here it is about politeness only.
    domain = tuple(name.lower().rsplit(".", 2)[-2:])
    return key.namespace, issuer.kind_or_default, issuer.name, domain
