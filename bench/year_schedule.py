"""Renewals of a fleet in a year: when each certificate is due, by the functions that the controllers use, and
in which shard.

While their issuer works, no certificate depends on another, so each is followed through the year by itself.
What failing issuers change needs the events of all in their order: `fleet_simulation.py`.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from certwright.controllers.cache.shard_members import shard_of
from certwright.kube.api.meta import ObjectKey
from certwright.pki import renewal

START = datetime(2026, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_HOUR_MINUTES, _DAY_MINUTES = 60, 1_440


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """So many certificates of one lifetime, renewed for `days` by `shards` replicas.

    `issued_within` before the year all were issued; None: evenly over the time between two renewals.
    """

    certificates: int
    lives: timedelta
    days: int
    shards: int
    issued_within: timedelta | None

    @property
    def cycle(self) -> Cycle:
        """The time between two renewals."""
        return Cycle.of(self.lives)

    def first_issued_s(self, number: int) -> int:
        """When certificate `number` was issued that is valid at the start of the year; seconds since
        `START`."""
        within = self.cycle.planned if self.issued_within is None else self.issued_within // _SECOND
        return -int(within * (number + 0.5) / self.certificates)


class Cycle(NamedTuple):
    """Seconds from an issuance to the next renewal: `planned`, and up to `spread` more. They depend on the
    lifetime alone, because issuers and renewal times are exact to the second."""

    planned: int
    spread: int

    @classmethod
    def of(cls, lives: timedelta) -> Cycle:
        """The cycle of certificates of that lifetime, as the controllers plan it."""
        moment, end = renewal.renewal_time(START, START + lives), START + lives
        return cls((moment - START) // _SECOND, renewal.spread(START, moment, end) // _SECOND)


def renewals_of(uid: str, issued_s: int, cycle: Cycle, until_s: int) -> Iterator[int]:
    """When a certificate first issued at `issued_s` is renewed, up to `until_s`: seconds since `START`. Each
    is issued as soon as it is due."""
    for revision in itertools.count(1):
        # As `renewal.put_off` does, without the arithmetic of dates, which takes 4 µs of 6.
        issued_s += cycle.planned + int(cycle.spread * renewal.share(f"{uid}/{revision}"))
        if issued_s >= until_s:
            return
        yield issued_s


@dataclass(frozen=True, slots=True)
class Schedule:
    """Renewals by shard and minute of the year."""

    population: Population
    shards: list[array[int]]

    @property
    def minutes(self) -> array[int]:
        """Renewals of all shards, by minute."""
        return array("L", map(sum, zip(*self.shards, strict=True)))

    @property
    def total(self) -> int:
        """Renewals of the year."""
        return sum(map(sum, self.shards))


def schedule(population: Population) -> Schedule:
    """Follow every certificate through the year."""
    minutes = population.days * _DAY_MINUTES
    shards = [array("L", bytes(8 * minutes)) for _ in range(population.shards)]
    cycle, until_s = population.cycle, minutes * 60
    for number in range(population.certificates):
        counts = shards[shard_of(ObjectKey(f"team-{number % 100}", f"web-{number}"), population.shards)]
        for moment_s in renewals_of(f"{number:08x}", population.first_issued_s(number), cycle, until_s):
            # Due before the year: renewed as it begins.
            counts[max(moment_s // 60, 0)] += 1
    return Schedule(population, shards)


def busiest(minutes: Sequence[int], length: int) -> int:
    """The most in any `length` minutes in a row."""
    current = most = sum(minutes[:length])
    for out, into in zip(minutes, minutes[length:], strict=False):
        current += into - out
        most = max(most, current)
    return most


def longest_wait(minutes: Sequence[int], rate: float) -> timedelta:
    """How late the latest renewal is, where `rate` certificates a second can be issued."""
    backlog = most = 0.0
    for due in minutes:
        backlog = max(backlog + due - rate * 60, 0.0)
        most = max(most, backlog)
    return timedelta(seconds=round(most / rate))


def days_of(minutes: Sequence[int]) -> list[int]:
    """Renewals by day."""
    return [sum(minutes[at : at + _DAY_MINUTES]) for at in range(0, len(minutes), _DAY_MINUTES)]


def hours_at_ends(planned: Schedule) -> tuple[int, int]:
    """The busiest hour while each certificate is renewed for the first time in the year, and for the last
    time."""
    minutes, cycle = planned.minutes, sum(planned.population.cycle) // 60 + _DAY_MINUTES
    return busiest(minutes[:cycle], _HOUR_MINUTES), busiest(minutes[-cycle:], _HOUR_MINUTES)
