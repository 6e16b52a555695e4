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
from certwright.acme.ratelimits.ledger import RESERVED_MICROS, Flight, Ledger
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
    for order in sorted(orders, key=lambda seen: (seen.placed_by, seen.ended_by)):
        uid = order.asking.uid
        if uid not in ledger.flights:
            if not order.is_placed and not order.end:
                open_ones.append(order.asking)
            if not order.is_placed or not order.is_newer:
                continue
            _reserve(ledger, order, now)
        if order.is_placed:
            ledger.placed(uid, order.placed_by)
        if order.end == ISSUED:
            ledger.issued(uid, order.ended_by)
        elif order.end:
            ledger.failed(uid, order.ended_by)
    for asking in sorted(open_ones, key=lambda asking: asking.place):
        ledger.expect(asking, now)


def _reserve(ledger: Ledger, order: Seen, now: datetime) -> None:
    """Reserve for an order that another program placed, or whose reservation was not saved."""
    asked, silent = ledger.keys_of(order.asking)
    if not asked and not silent:
        return
    at = micros(order.placed_by)
    flight = Flight(at, asked, silent, has_lapsed=micros(now) - at > RESERVED_MICROS)
    for key in asked:
        ledger.bucket(key).held += not flight.has_lapsed
    ledger.flights[order.asking.uid] = flight
    ledger.is_changed = True
