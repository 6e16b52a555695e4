"""Keeps apart at Pebble what must not meet there.

Pebble 2.10 can come to a halt for good, as its goroutines show: who makes an order reads the store and wants
each authorization in it, who reads an authorization holds that and wants the store, and a third who waits to
write the store keeps the first two from it. With orders of a hundred names that was so in one of four runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from certwright.acme.protocol.messages import Action, Request, Response
from certwright.acme.protocol.transport import Transport


@dataclass(slots=True)
class Gate:
    """What is at Pebble: new orders, or anything else. Orders that wait go before all else that does."""

    inside: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    orders_waiting: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def enter(self, *, is_order: bool) -> None:
        """Return when the other kind is away."""
        async with self.changed:
            self.orders_waiting += is_order
            await self.changed.wait_for(lambda: self._is_free(is_order=is_order))
            self.orders_waiting -= is_order
            self.inside[is_order] += 1

    async def leave(self, *, is_order: bool) -> None:
        """One of that kind is away."""
        async with self.changed:
            self.inside[is_order] -= 1
            self.changed.notify_all()

    def _is_free(self, *, is_order: bool) -> bool:
        return not self.inside[not is_order] and (is_order or not self.orders_waiting)


@dataclass(slots=True)
class ApartTransport:
    """Sends new orders while nothing else is under way."""

    inner: Transport
    gate: Gate

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        is_order = request.action is Action.NEW_ORDER
        await self.gate.enter(is_order=is_order)
        try:
            return await self.inner.send(request)
        finally:
            await self.gate.leave(is_order=is_order)

    async def close(self) -> None:
        """See `Transport`."""
        await self.inner.close()
