"""Fair queueing among flows: a flow with few items does not wait behind all items of a busy one.

Start-time fair queueing with equal weights: the n-th item of a flow has its turn n rounds after the flow
became active, so that each waiting flow is served once per round.

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996).
"""

from __future__ import annotations

from collections.abc import Hashable

_MANY = 1000


class Turns:
    """Assigns turns; the lowest is served first."""

    def __init__(self) -> None:
        self._round = 0
        self._last: dict[Hashable, int] = {}

    def next(self, flow: Hashable) -> int:
        """The turn of the next item of that flow."""
        if len(self._last) > _MANY:
            self._last = {other: turn for other, turn in self._last.items() if turn > self._round}
        turn = self._last[flow] = max(self._round, self._last.get(flow, 0)) + 1
        return turn

    def taken(self, turn: int) -> None:
        """Record that the item with that turn was served."""
        self._round = max(self._round, turn - 1)
