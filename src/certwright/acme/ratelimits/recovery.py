"""Ledger recovery after a restart: the saved state, plus what the orders show that happened since.

The saved state may be seconds old. This loses no counted order: an order that the CA has created has left
its trace in the API (its URL, its certificate), with a revision later than the saved one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from certwright.acme.ratelimits.decisions import Asking
from certwright.acme.ratelimits.ledger import HELD_FOR, Flight, Ledger
from certwright.kit.rate_limit import micros

ISSUED: Final = "issued"
FAILED: Final = "failed"


class Seen(msgspec.Struct, frozen=True):
    """An order as it is in the API. `is_newer`: it changed after the state was saved. `end` is empty while
    it is open. `placed_by` and `ended_by` are upper bounds of those moments: the later, the safer."""

    asking: Asking
    is_newer: bool
    is_placed: bool
    end: str
    placed_by: datetime
    ended_by: datetime


def catch_up(ledger: Ledger, orders: Iterable[Seen], now: datetime) -> None:
    """Count in a restored ledger the outcome of these orders since it was saved."""
    open_ones: list[Asking] = []
    for one in sorted(orders, key=lambda seen: (seen.placed_by, seen.ended_by)):
        uid = one.asking.uid
        if uid not in ledger.flights:
            if not one.is_placed and not one.end:
                open_ones.append(one.asking)
            if not one.is_placed or not one.is_newer:
                continue
            _reserve(ledger, one, now)
        if one.is_placed:
            ledger.placed(uid, one.placed_by)
        if one.end == ISSUED:
            ledger.issued(uid, one.ended_by)
        elif one.end:
            ledger.failed(uid, one.ended_by)
    for asking in sorted(open_ones, key=lambda asking: asking.place):
        ledger.expect(asking, now)


def _reserve(ledger: Ledger, one: Seen, now: datetime) -> None:
    """Reserve for an order that another program placed, or whose reservation was not saved."""
    asked, silent = ledger.keys_of(one.asking)
    if not asked and not silent:
        return
    at = micros(one.placed_by)
    flight = Flight(at, asked, silent, has_lapsed=micros(now) - at > HELD_FOR)
    for key in asked:
        ledger.bucket(key).held += not flight.has_lapsed
    ledger.flights[one.asking.uid] = flight
    ledger.is_changed = True
