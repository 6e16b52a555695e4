"""Shard membership: which keys belong to a replica, if several replicas share the work.

The objects of a Certificate belong to its shard: its requests, their Orders, their Challenges. So one replica
handles a whole issuance without waiting for another replica.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.shard_filter import Mine, owning_certificate
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS

Ours = Callable[[ObjectKey], bool | None]


class Shards(msgspec.Struct, frozen=True):
    """What belongs to the shards in `numbers`, out of `count`: a `Mine`."""

    numbers: frozenset[int]
    count: int

    def __call__(self, key: ObjectKey) -> bool:
        """Whether the object of that name belongs to one of the shards."""
        return shard_of(key, self.count) in self.numbers


def shard_of(key: ObjectKey, count: int) -> int:
    """The shard, from 0 to `count` - 1, of a Certificate or an issuer; the same in every process."""
    return zlib.crc32(f"{key.namespace}/{key.name}".encode()) % count


def ours(controller: str, mine: Mine, caches: Caches) -> Ours:
    """Which keys of that controller belong to the replica; None where that is not known yet, because the
    owner of the object has not been seen. `mine` decides about Certificates, issuers and objects without an
    owner."""

    def of_request(key: ObjectKey) -> bool:
        request = caches.requests.cache.get(key)
        name = owning_certificate(request) if request is not None else None
        return mine(key if name is None else ObjectKey(key.namespace, name))

    def of_order(key: ObjectKey) -> bool | None:
        order = caches.orders.cache.get(key)
        owner = controller_of(order.metadata) if order is not None else None
        if owner is None:
            return mine(key)
        if owner.kind == CERTIFICATE_SIGNING_REQUESTS.kind:
            return mine(ObjectKey("", owner.name))
        request = ObjectKey(key.namespace, owner.name)
        if request in caches.requests.cache:
            return of_request(request)
        return False if caches.is_others_request(request) else None

    def of_challenge(key: ObjectKey) -> bool | None:
        challenge = caches.challenges.cache.get(key)
        owner = controller_of(challenge.metadata) if challenge is not None else None
        if owner is None:
            return mine(key)
        order = ObjectKey(key.namespace, owner.name)
        return of_order(order) if order in caches.orders.cache else None

    of_kind: Mapping[str, Ours] = {
        "certificaterequests": of_request,
        "orders": of_order,
        "challenges": of_challenge,
    }
    return of_kind.get(controller, mine)


class Sharing(msgspec.Struct, frozen=True):
    """All shards (`everyone`, as `K/N`), and which Orders belong to each of this replica's `own`."""

    own: Mapping[str, Ours]
    everyone: tuple[str, ...]

    def share_of(self, order: ObjectKey) -> str | None:
        """The shard of this replica that the Order belongs to; None: the Order is another replica's."""
        return next((name for name, is_in in self.own.items() if is_in(order)), None)


def sharing_of(mine: Mine | None, caches: Caches) -> Sharing:
    """How the Orders are divided among the replicas."""
    if not isinstance(mine, Shards):
        return Sharing({"0/1": ours("orders", mine, caches) if mine else lambda _key: True}, ("0/1",))
    own = {
        f"{number}/{mine.count}": ours("orders", Shards(frozenset({number}), mine.count), caches)
        for number in sorted(mine.numbers)
    }
    return Sharing(own, tuple(f"{number}/{mine.count}" for number in range(mine.count)))
