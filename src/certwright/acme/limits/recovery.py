"""A ledger after a restart: what was saved, and what is to be seen of the orders since.

What was saved may be seconds old. No order that was counted is lost by that: one that the CA has made has
left its trace in the API (its URL, its certificate), with a revision that is later than the saved one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from certwright.acme.limits.asking import Asking, Key
from certwright.acme.limits.ledger import HELD_FOR, Flight, Ledger
from certwright.kit.buckets import Bucket, Rate, micros

ISSUED: Final = "issued"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class Seen:
    """An order as it stands in the API. `revision` is that of its last change; `end` is empty while it is
    open. `placed_by` and `ended_by` are moments by which that had happened: the later, the safer."""

    asking: Asking
    revision: int
    is_placed: bool
    end: str
    placed_by: datetime
    ended_by: datetime


def recover(
    ledger: Ledger, saved: Mapping[str, Any], revision: int, orders: Iterable[Seen], now: datetime
) -> None:
    """Bring a new ledger to where the one before was; `saved` is what `ledger.state` gave at `revision`."""
    held = _restore(ledger, saved)
    flights = saved.get("flights", {})
    open_ones: list[Asking] = []
    for one in sorted(orders, key=lambda seen: (seen.placed_by, seen.ended_by)):
        known = flights.get(one.asking.uid)
        if known is not None:
            _resume(ledger, one.asking, int(known[0]), held, is_placed=bool(known[1]), now=now)
        elif one.is_placed and one.revision > revision:
            _resume(ledger, one.asking, micros(one.placed_by), {}, is_placed=False, now=now)
        elif not one.is_placed and not one.end:
            open_ones.append(one.asking)
            continue
        _continue(ledger, one)
    _count_rest(ledger, held, now)
    for asking in sorted(open_ones, key=lambda asking: asking.place):
        ledger.expect(asking, now)
    ledger.is_changed = bool(saved or ledger.buckets or ledger.flights)


def _restore(ledger: Ledger, saved: Mapping[str, Any]) -> dict[Key, int]:
    """Take back buckets and paces; returns what each bucket held."""
    for name, seconds in saved.get("paces", {}).items():
        ledger.paces[Key.read(name)] = Rate(1, timedelta(seconds=max(1, int(seconds))))
    held: dict[Key, int] = {}
    for name, numbers in saved.get("buckets", {}).items():
        try:
            bucket = Bucket.of_numbers(numbers)
        except (ValueError, TypeError):
            continue
        key = Key.read(name)
        held[key], bucket.held = bucket.held, 0
        ledger.buckets[key] = bucket
    return held


def _resume(
    ledger: Ledger, asking: Asking, at: int, held: dict[Key, int], *, is_placed: bool, now: datetime
) -> None:
    asked, silent = ledger.keys_of(asking)
    has_lapsed = micros(now) - at > HELD_FOR
    holds = [key for key in asked if not (is_placed and ledger.counts_at_order(key))]
    for key in holds:
        if not has_lapsed:
            ledger.bucket(key).held += 1
        if held.get(key, 0) > 0:
            held[key] -= 1
    ledger.flights[asking.uid] = Flight(asking, at, holds, silent, is_placed, has_lapsed)


def _continue(ledger: Ledger, one: Seen) -> None:
    uid = one.asking.uid
    if one.is_placed:
        ledger.placed(uid, one.placed_by)
    if one.end == ISSUED:
        ledger.issued(uid, one.ended_by)
    elif one.end:
        ledger.failed(uid, one.ended_by)


def _count_rest(ledger: Ledger, held: Mapping[Key, int], now: datetime) -> None:
    """What was held by orders that are gone: they may have been issued before they went, so it counts."""
    for key, many in held.items():
        rate = ledger.rate(key)
        for _ in range(many if rate is not None else 0):
            assert rate is not None
            ledger.bucket(key).spend(rate, micros(now))
