"""A year of many certificates: what `bench/year.py` does with a million, with a few, and its schedule beside
the one of the real controllers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from bench import year, year_costs
from bench.fleet_simulation import OURS, Fleet
from bench.year_schedule import (
    START,
    Cycle,
    Population,
    busiest,
    days_of,
    hours_at_ends,
    longest_wait,
    renewals_of,
    schedule,
)

from certwright.resources.table import CERTIFICATES
from controllers.scene import Scene, make_certificate

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def population(lives: timedelta, within: timedelta | None, *, days: int = 365) -> Population:
    return Population(certificates=1_000, lives=lives, days=days, shards=4, issued_within=within)


@pytest.mark.parametrize("days", [6, 90])
async def test_the_schedule_is_that_of_the_controllers(scene: Scene, days: int) -> None:
    names = [f"web-{number}" for number in range(4)]
    for name in names:
        made = make_certificate(name, "ca", duration=f"{days * 24}h", renew_before=None)
        await scene.world.create(CERTIFICATES, made)
    await scene.world.settle()
    certificates = [await scene.world.certificate(name) for name in names]
    cycle = Cycle.of(days * DAY)
    expected = {}
    for certificate in certificates:
        issued = certificate.status.not_before
        assert issued is not None
        issued_s = (issued - START) // timedelta(seconds=1)
        moments = renewals_of(certificate.metadata.uid, issued_s, cycle, 4 * days * 86_400)
        expected[certificate.metadata.name] = [next(moments) for _ in range(3)]
    for turn in range(3):
        for name in names:
            planned = (await scene.world.certificate(name)).status.renewal_time
            assert planned == START + timedelta(seconds=expected[name][turn])
        await scene.world.advance_to(
            START + timedelta(seconds=max(offsets[turn] for offsets in expected.values()))
        )


def test_what_was_issued_evenly_is_renewed_evenly_on_all_shards() -> None:
    planned = schedule(population(90 * DAY, None))
    minutes = planned.minutes
    assert sum(minutes) == planned.total == pytest.approx(1_000 * 365 / 60, rel=0.03)
    assert max(days_of(minutes)) < 2 * planned.total / 365
    assert all(sum(shard) == pytest.approx(planned.total / 4, rel=0.15) for shard in planned.shards)


def test_ninety_days_are_spread_by_the_first_renewal() -> None:
    first, last = hours_at_ends(schedule(population(90 * DAY, HOUR)))
    assert first < 150
    assert last < 100


def test_six_days_spread_in_the_course_of_the_year() -> None:
    first, last = hours_at_ends(schedule(population(6 * DAY, HOUR)))
    assert last < first / 2


def test_the_busiest_hour_and_the_longest_wait_are_those_of_the_queue() -> None:
    minutes = [0, 10, 120, 0, 0, 30]
    assert busiest(minutes, 1) == 120
    assert busiest(minutes, 2) == 130
    # One a second: 60 of the 120 wait for the next minute.
    assert longest_wait(minutes, 1.0) == timedelta(seconds=60)
    assert longest_wait(minutes, 2.0) == timedelta(0)


@pytest.mark.parametrize("life", [6 * DAY, 90 * DAY])
def test_a_ca_that_is_out_for_a_day_gets_few_attempts_and_no_certificate_expires(life: timedelta) -> None:
    outcome = Fleet(year.outage_of(life, 1_000), OURS).run()
    assert outcome.expired == 0
    assert 0 < outcome.peak_while_out <= 12
    assert sum(outcome.per_hour[0][48:60]) > 0


async def test_a_renewal_is_eight_writes_and_three_events() -> None:
    rows = await year_costs.writes_of_renewals(4)
    assert [row[1:] for row in rows] == [["10.00", "7.00", "3.00"], *[["11.00", "8.00", "3.00"]] * 3]
