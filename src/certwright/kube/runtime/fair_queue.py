"""Turns among flows: one that wants little does not stand behind all of one that wants much.

Start-time fair queueing with equal weights: the n-th thing of a flow has its turn n rounds after the flow
began to want something, so that each flow that waits goes once in a round.

Source: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996).
"""

from __future__ import annotations

from collections.abc import Hashable

_MANY = 1000


class Turns:
    """Hands out turns; the lowest goes first."""

    def __init__(self) -> None:
        self._round = 0
        self._last: dict[Hashable, int] = {}

    def next(self, flow: Hashable) -> int:
        """The turn of one more thing of that flow."""
        if len(self._last) > _MANY:
            self._last = {one: turn for one, turn in self._last.items() if turn > self._round}
        turn = self._last[flow] = max(self._round, self._last.get(flow, 0)) + 1
        return turn

    def taken(self, turn: int) -> None:
        """Something with that turn has gone."""
        self._round = max(self._round, turn - 1)
