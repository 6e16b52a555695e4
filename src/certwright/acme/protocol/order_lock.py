"""Mutual exclusion of new-order requests and authorization reads at one server.

Pebble (2.10 and before) deadlocks if an authorization is read while an order is created: the create holds
the store and waits for each authorization in it, the read holds an authorization and waits for the store,
and a waiting writer of the store blocks both. 200 concurrent certificates caused this in one run of four.
The lock suits any server: the server first learns of all orders.
"""

from __future__ import annotations

import asyncio
from collections import deque

from certwright.acme.protocol.messages import Action

_OTHER = {Action.NEW_ORDER: Action.AUTHORIZATION, Action.AUTHORIZATION: Action.NEW_ORDER}
# The maximum wait, because a slow server can answer other requests in the same time.
_AT_MOST_S = 1.0


class Turns:
    """A lock that two kinds of requests take in turns: a request waits while the other kind is active, or
    waits before it.

    No request waits for longer than `at_most_s` seconds.
    """

    def __init__(self, *, at_most_s: float = _AT_MOST_S) -> None:
        self._at_most_s = at_most_s
        self._inside = dict.fromkeys(_OTHER, 0)
        self._waiting: dict[Action, deque[asyncio.Future[None]]] = {kind: deque() for kind in _OTHER}

    async def enter(self, kind: Action) -> None:
        """Return when a request of that kind may be sent; the caller MUST `leave` afterwards. Other kinds
        never wait."""
        other = _OTHER.get(kind)
        if other is None:
            return
        if not self._inside[other] and not self._waiting[other]:
            self._inside[kind] += 1
            return
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        self._waiting[kind].append(place)
        overdue = loop.call_later(self._at_most_s, self._admit, kind, place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._waiting[kind]:
                self._waiting[kind].remove(place)
            else:
                self.leave(kind)
            raise
        finally:
            overdue.cancel()

    def leave(self, kind: Action) -> None:
        """Release the lock after the request, whether it succeeded or failed."""
        if kind not in _OTHER:
            return
        self._inside[kind] -= 1
        if self._inside[kind]:
            return
        next_kind = _OTHER[kind] if self._waiting[_OTHER[kind]] else kind
        for place in list(self._waiting[next_kind]):
            self._admit(next_kind, place)

    def _admit(self, kind: Action, place: asyncio.Future[None]) -> None:
        if place not in self._waiting[kind]:
            return
        # A task that is being cancelled still takes its turn, and leaves when the cancellation arrives.
        self._waiting[kind].remove(place)
        self._inside[kind] += 1
        if not place.done():
            place.set_result(None)
