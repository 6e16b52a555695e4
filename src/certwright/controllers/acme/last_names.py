"""Which proven Challenges enqueue their Order: of a hundred names, the last."""

from __future__ import annotations

from collections.abc import Callable

from certwright.controllers.cache.caches import Caches
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.resources.acme import Challenge, Order

IsProven = Callable[[Challenge], bool]
"""Whether the CA has called the challenge valid, though its status may not say so yet."""


def with_the_last(
    caches: Caches, is_proven: IsProven, enqueue_order: Callable[[Challenge], None]
) -> Callable[[Challenge], None]:
    """As `enqueue_order`, but not while other names keep the Order waiting, because it would read through all
    of them at each. An Order that shows a reason is enqueued for each."""

    def enqueue(challenge: Challenge) -> None:
        owner = controller_of(challenge.metadata)
        key = ObjectKey(challenge.metadata.namespace, owner.name) if owner is not None else None
        order = caches.orders.cache.get(key) if key is not None else None
        if order is None or order.status.reason or not has_open_names(order):
            enqueue_order(challenge)

    def has_open_names(order: Order) -> bool:
        # The youngest are mostly the last to be proven.
        return any(map(is_open, reversed(caches.challenges_of(order.metadata))))

    def is_open(challenge: Challenge) -> bool:
        """Whether the challenge will enqueue its Order some time: it has not ended, and is not being
        deleted."""
        is_over = challenge.status.is_final or challenge.metadata.deletion_timestamp is not None
        return not is_over and not is_proven(challenge)

    return enqueue
