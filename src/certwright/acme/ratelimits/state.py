"""Ledger snapshots: serialize, restore, and catch up after a restart.

Reservations (`flights`) name their buckets by index in `keys`, because a key is the longest part. The saved
state may be seconds old, which loses no counted order: an order that the CA has created has left its trace in
the API (its URL, its certificate), with a revision later than the saved one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from certwright.acme.ratelimits.ledger import RESERVED_MICROS, Flight, Key, Ledger, NewOrder
from certwright.kit.rate_limit import Bucket, Rate, micros

_LONGEST_PACE_S: Final = 7 * 86_400
ISSUED: Final = "issued"
FAILED: Final = "failed"


class FlightState(msgspec.Struct, array_like=True):
    """One reservation. `held` None: saved by a version that did not save the reserving buckets."""

    at: int
    is_placed: bool
    has_lapsed: bool = False
    held: list[int] | None = None
    silent: list[int] = []


class LedgerState(msgspec.Struct):
    """A ledger without its queues, as JSON. `waiting` is for people and for estimates: the number of orders
    that wait for each key, in this and all other processes."""

    buckets: dict[str, list[object]] = {}
    paces: dict[str, int] = {}
    keys: list[str] = []
    flights: dict[str, FlightState] = {}
    waiting: dict[str, int] = {}


def state(ledger: Ledger, now: datetime) -> LedgerState:
    """The snapshot from which a restart, or another process, continues; `restore` reads it."""
    ledger.sweep(micros(now))
    positions: dict[Key, int] = {}

    def position(key: Key) -> int:
        return positions.setdefault(key, len(positions))

    flights = {
        uid: FlightState(
            flight.at,
            flight.is_placed,
            flight.has_lapsed,
            [position(key) for key in flight.held],
            [position(key) for key in flight.silent],
        )
        for uid, flight in ledger.flights.items()
    }
    return LedgerState(
        buckets={str(key): list[object](bucket.numbers()) for key, bucket in ledger.buckets.items()},
        paces={str(key): rate.window // timedelta(seconds=1) for key, rate in ledger.paces.items()},
        keys=[str(key) for key in positions],
        flights=flights,
        waiting=ledger.waiting.lengths(),
    )


def restore(ledger: Ledger, saved: LedgerState, now: datetime) -> set[Key]:
    """Replace the ledger's content, except its queues, by the snapshot; returns the keys that differ.

    Unreadable entries are dropped. A reservation whose flight is missing counts as used.
    """
    before = {key: bucket.numbers() for key, bucket in ledger.buckets.items()}
    ledger.paces = {
        Key.read(name): Rate(1, timedelta(seconds=min(max(1, seconds), _LONGEST_PACE_S)))
        for name, seconds in saved.paces.items()
    }
    ledger.buckets, reserved = _buckets(saved)
    ledger.flights = _flights(saved)
    for flight in ledger.flights.values():
        was_reserved = not flight.has_lapsed
        flight.has_lapsed = flight.has_lapsed or micros(now) - flight.at > RESERVED_MICROS
        for key in flight.held:
            reserved[key] = reserved.get(key, 0) - was_reserved
            ledger.bucket(key).held += not flight.has_lapsed
    for key, many in reserved.items():
        rate = ledger.rate(key)
        for _ in range(min(many, rate.count) if rate is not None else 0):
            assert rate is not None
            ledger.bucket(key).spend(rate, micros(now))
    after = {key: bucket.numbers() for key, bucket in ledger.buckets.items()}
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _buckets(saved: LedgerState) -> tuple[dict[Key, Bucket], dict[Key, int]]:
    """The buckets without reservations, and how many reservations each had."""
    buckets: dict[Key, Bucket] = {}
    reserved: dict[Key, int] = {}
    for name, numbers in saved.buckets.items():
        try:
            bucket = Bucket.of_numbers(numbers)
        except ValueError:
            continue
        key = Key.read(name)
        reserved[key], bucket.held = bucket.held, 0
        buckets[key] = bucket
    return buckets, reserved


def _flights(saved: LedgerState) -> dict[str, Flight]:
    keys = [Key.read(name) for name in saved.keys]
    return {
        uid: Flight(
            flight.at,
            [keys[at] for at in flight.held if 0 <= at < len(keys)],
            tuple(keys[at] for at in flight.silent if 0 <= at < len(keys)),
            flight.is_placed,
            flight.has_lapsed,
        )
        for uid, flight in saved.flights.items()
        if flight.held is not None
    }


class Seen(msgspec.Struct, frozen=True):
    """An order in the API. `is_newer`: it changed after the state was saved. `end`: empty while open.
    `placed_by` and `ended_by`: upper bounds of those moments; the later, the safer."""

    new_order: NewOrder
    is_newer: bool
    is_placed: bool
    end: str
    placed_by: datetime
    ended_by: datetime


def catch_up(ledger: Ledger, orders: Iterable[Seen], now: datetime) -> None:
    """Count in a restored ledger the outcome of these orders since it was saved."""
    open_ones: list[NewOrder] = []
    for order in sorted(orders, key=lambda seen: (seen.placed_by, seen.ended_by)):
        uid = order.new_order.uid
        if uid not in ledger.flights:
            if not order.is_placed and not order.end:
                open_ones.append(order.new_order)
            if not order.is_placed or not order.is_newer:
                continue
            _reserve(ledger, order, now)
        if order.is_placed:
            ledger.placed(uid, order.placed_by)
        if order.end == ISSUED:
            ledger.issued(uid, order.ended_by)
        elif order.end:
            ledger.failed(uid, order.ended_by)
    for new_order in sorted(open_ones, key=lambda new_order: new_order.place):
        ledger.expect(new_order, now)


def _reserve(ledger: Ledger, order: Seen, now: datetime) -> None:
    """Reserve for an order that another program placed, or whose reservation was not saved."""
    asked, silent = ledger.keys_of(order.new_order)
    if not asked and not silent:
        return
    at = micros(order.placed_by)
    flight = Flight(at, asked, silent, has_lapsed=micros(now) - at > RESERVED_MICROS)
    for key in asked:
        ledger.bucket(key).held += not flight.has_lapsed
    ledger.flights[order.new_order.uid] = flight
    ledger.is_changed = True
