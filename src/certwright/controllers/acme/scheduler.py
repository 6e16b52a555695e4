"""Challenge scheduler: limits how many are with the CA, and never admits two of one name and type together.

A challenge occupies a slot only while the CA validates it: one whose self-check has yet to pass occupies
none. Those that wait take turns by namespace, then by order, so that a large order delays no other one. A
namespace never occupies all slots, because a tenant's slow names must not keep others waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

import msgspec


class SlotRequest(msgspec.Struct, frozen=True):
    """A challenge that requests a slot. `subject` is what must not be validated twice at the same time."""

    key: Hashable
    namespace: str
    order: str
    subject: tuple[str, str]


class Slots:
    """`most` in all, `most_per_namespace` of one namespace (0: nine tenths of `most`).

    `granted` is called with the key of a challenge that gets a slot after it had to wait.
    """

    def __init__(
        self, most: int, granted: Callable[[Hashable], None], *, most_per_namespace: int = 0
    ) -> None:
        self._most = most
        self._most_per_namespace = most_per_namespace or max(1, most - most // 10)
        self._granted = granted
        self._holders: dict[Hashable, SlotRequest] = {}
        self._subjects: dict[tuple[str, str], Hashable] = {}
        self._per_namespace: dict[str, int] = {}
        self._requests: dict[Hashable, SlotRequest] = {}
        # namespace → order → those that wait; the next to be asked stands first in each.
        self._waiting: OrderedDict[str, OrderedDict[str, OrderedDict[Hashable, SlotRequest]]] = OrderedDict()

    def __len__(self) -> int:
        """How many slots are in use."""
        return len(self._holders)

    def acquire(self, request: SlotRequest) -> bool:
        """Whether it has a slot now. A challenge without one waits until `granted` is called, or gives up."""
        if request.key in self._holders:
            return True
        queue = self._waiting.setdefault(request.namespace, OrderedDict()).setdefault(
            request.order, OrderedDict()
        )
        queue.setdefault(request.key, request)
        self._requests[request.key] = request
        self._hand_out(reported=request.key)
        return request.key in self._holders

    def release(self, key: Hashable) -> None:
        """Release its slot, or its place in the queue. Idempotent."""
        holder = self._holders.pop(key, None)
        if holder is None:
            self._forget(key)
        else:
            self._subjects.pop(holder.subject, None)
            left = self._per_namespace[holder.namespace] - 1
            self._per_namespace[holder.namespace] = left
            if not left:
                del self._per_namespace[holder.namespace]
        self._hand_out(reported=None)

    def _hand_out(self, *, reported: Hashable) -> None:
        while len(self._holders) < self._most:
            request = self._next()
            if request is None:
                return
            self._holders[request.key] = request
            self._subjects[request.subject] = request.key
            self._per_namespace[request.namespace] = self._per_namespace.get(request.namespace, 0) + 1
            # The current caller gets it as the result.
            if request.key != reported:
                self._granted(request.key)

    def _next(self) -> SlotRequest | None:
        """The next that may, taken out of the queue; its order and its namespace go to the end of theirs."""
        for namespace, orders in self._waiting.items():
            if self._per_namespace.get(namespace, 0) >= self._most_per_namespace:
                continue
            for order, queue in orders.items():
                request = next(
                    (candidate for candidate in queue.values() if candidate.subject not in self._subjects),
                    None,
                )
                if request is None:
                    continue
                del queue[request.key], self._requests[request.key]
                orders.move_to_end(order)
                self._waiting.move_to_end(namespace)
                self._drop_empty(request)
                return request
        return None

    def _forget(self, key: Hashable) -> None:
        request = self._requests.pop(key, None)
        if request is None:
            return
        orders = self._waiting[request.namespace]
        del orders[request.order][key]
        self._drop_empty(request)

    def _drop_empty(self, request: SlotRequest) -> None:
        orders = self._waiting[request.namespace]
        if not orders[request.order]:
            del orders[request.order]
        if not orders:
            del self._waiting[request.namespace]
