"""A year of 1,000,000 certificates, on paper: writes, peaks, what outages and restarts do, memory of a shard.

    make bench ARGS=year                                       all parts: ten minutes on a quiet machine
    make bench ARGS="year --only schedule --lifetimes 6d"      one part

When a certificate is due, how outages delay it, which shard it belongs to and what a renewal writes come
from the code of the controllers; the clock is simulated. Memory is that of real processes over real stores
of fewer certificates. docs/million.md has the results.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from bench import year_costs
from bench.fleet_scenario import Kind, Outage, Scenario, span
from bench.fleet_simulation import OURS, Fleet, Outcome
from bench.rig import table
from bench.year_schedule import (
    Population,
    Schedule,
    busiest,
    days_of,
    hours_at_ends,
    longest_wait,
    schedule,
)

PARTS = ("writes", "schedule", "outage", "memory")
_HOUR, _DAY = 60, 1_440
_TOGETHER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says. `rate`: certificates that can be issued in a second."""

    certificates: int
    lifetimes: Sequence[str]
    days: int
    shards: int
    rate: float
    sizes: Sequence[int]


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(prog="year", description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--certificates", type=int, default=1_000_000)
    parser.add_argument("--lifetimes", nargs="+", default=("90d", "6d"))
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument(
        "--rate", type=float, default=40.0, help="certificates that can be issued in a second"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=(10_000, 25_000, 50_000))
    given = vars(parser.parse_args(arguments))
    parts, options = given.pop("only"), Options(**given)
    if "writes" in parts:
        table(year_costs.WRITE_HEADINGS, asyncio.run(year_costs.writes_of_renewals()))
    if "schedule" in parts:
        print_schedules(options)
    if "outage" in parts:
        print_outages(options)
    if "memory" in parts:
        table(year_costs.MEMORY_HEADINGS, year_costs.memory_of_shards(options.sizes, options.shards))


def print_schedules(options: Options) -> None:
    """Renewals of the year while the issuers work, from an even and from the most uneven beginning."""
    rows = []
    for life in options.lifetimes:
        for within in (None, _TOGETHER):
            planned = schedule(
                Population(
                    certificates=options.certificates,
                    lives=span(life),
                    days=options.days,
                    shards=options.shards,
                    issued_within=within,
                )
            )
            rows.append(
                [life, "evenly" if within is None else "in one hour", *schedule_cells(planned, options.rate)]
            )
    print()
    table(
        [
            "lifetime",
            "issued",
            "renewals a day: mean",
            "busiest",
            "busiest hour: first cycle",
            "last cycle",
            "busiest minute, per second",
            "one shard's busiest hour",
            f"latest at {options.rate:.0f}/s",
            "due in 5 minutes",
        ],
        rows,
    )


def schedule_cells(planned: Schedule, rate: float) -> list[str]:
    """For the table."""
    minutes = planned.minutes
    hours = hours_at_ends(planned)
    return [
        f"{planned.total / planned.population.days:,.0f}",
        f"{max(days_of(minutes)):,}",
        *(f"{hour:,}" for hour in hours),
        f"{max(minutes) / 60:.1f}",
        f"{max(busiest(shard, _HOUR) for shard in planned.shards):,}",
        str(longest_wait(minutes, rate)),
        f"{busiest(minutes, 5):,}",
    ]


def outage_of(life: timedelta, certificates: int) -> Scenario:
    """One CA, which does not respond for a day. The renewals that follow are seen twice: as it responds
    again, and one cycle later."""
    cycle = life * 2 / 3
    days = cycle / timedelta(days=1)
    return Scenario(
        certificates=certificates,
        issuers=1,
        lasts=f"{round(days) + 4}d",
        kinds=[Kind(share=1.0, lives=f"{life // timedelta(hours=1)}h")],
        outages=[Outage(issuer=0, at="1d", lasts="1d")],
        restarts_every="30h",
    )


def print_outages(options: Options) -> None:
    """A CA that does not respond for a day; the controllers are restarted in that time."""
    rows = []
    for life in options.lifetimes:
        outcome = Fleet(outage_of(span(life), options.certificates), OURS).run()
        rows.append([life, *outage_cells(outcome)])
    print()
    table(
        [
            "lifetime, one CA out for a day",
            "attempts in an hour, at most: while out",
            "after it",
            "one cycle later",
            "first certificate after",
            "expired",
        ],
        rows,
    )


def outage_cells(outcome: Outcome) -> list[str]:
    """For the table: attempts by hour, around the end of the outage after two days."""
    hours = outcome.per_hour[0]
    return [
        f"{outcome.peak_while_out:,}",
        f"{max(hours[48:60]):,}",
        f"{max(hours[60:]):,}",
        f"{outcome.slowest_return.total_seconds():.0f} s",
        f"{outcome.expired:,}",
    ]


if __name__ == "__main__":
    main()
