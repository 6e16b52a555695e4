"""Keeps new orders and readings of authorizations apart, as requests to one server.

Pebble (2.10 and before) stands still for good where an authorization is read while an order is being made:
who makes one reads the store and then wants each authorization in it, who reads an authorization holds that
and wants the store, and a third who waits to write the store keeps the two from it. With 200 certificates
at once that was so in one run of four. Any server may be asked like this: first told of all that it has to
do.
"""

from __future__ import annotations

import asyncio
from collections import deque

from certwright.acme.protocol.messages import Action

_OTHER = {Action.NEW_ORDER: Action.AUTHORIZATION, Action.AUTHORIZATION: Action.NEW_ORDER}
# A server that takes longer is not to be waited for by what it could answer meanwhile.
_AT_MOST_S = 1.0


class Turns:
    """The two kinds take turns: who comes while the other is inside, or waits, waits for its turn.

    Nobody waits for longer than `at_most_s` seconds.
    """

    def __init__(self, *, at_most_s: float = _AT_MOST_S) -> None:
        self._at_most_s = at_most_s
        self._inside = dict.fromkeys(_OTHER, 0)
        self._waiting: dict[Action, deque[asyncio.Future[None]]] = {kind: deque() for kind in _OTHER}

    async def enter(self, kind: Action) -> None:
        """Return when a request of that kind may be sent; whoever sends it MUST `leave`. Other kinds wait for
        nobody."""
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
        """The request is over, well or badly."""
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
        # One whose task is being cancelled takes its place all the same, and leaves it when it hears of that.
        self._waiting[kind].remove(place)
        self._inside[kind] += 1
        if not place.done():
            place.set_result(None)
