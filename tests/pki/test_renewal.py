"""When a certificate is renewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kit.cron import moments_after
from certwright.pki.renewal import (
    LONGEST_REQUESTED_SPREAD,
    Slot,
    Window,
    put_off,
    renewal_time,
    share,
    slot,
    spread,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
HOUR = timedelta(hours=1)
LIFETIMES = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_500))
DAY = timedelta(days=1)
END = datetime(2026, 4, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NIGHTLY = Window("0 2 * * *", 4 * HOUR)
SATURDAYS = Window("0 2 * * 6", 4 * HOUR)


@pytest.mark.parametrize(
    ("lifetime_h", "before_h", "percentage", "expected_h"),
    [
        pytest.param(90, None, None, 60, id="a third of the life before the end"),
        pytest.param(90, 10, None, 80, id="renewBefore before the end"),
        pytest.param(90, None, 10, 81, id="a percentage of the life before the end"),
        pytest.param(90, 90, None, 60, id="renewBefore as long as the life does not count"),
        pytest.param(90, 200, None, 60, id="renewBefore longer than the life does not count"),
        pytest.param(90, 0, None, 60, id="no time at all does not count"),
        pytest.param(90, None, 0, 60, id="0 % does not count"),
        pytest.param(90, None, 100, 60, id="100 % does not count"),
        pytest.param(90, None, -5, 60, id="a negative percentage does not count"),
    ],
)
def test_the_time_of_renewal(
    lifetime_h: int, before_h: int | None, percentage: int | None, expected_h: int
) -> None:
    before = None if before_h is None else before_h * HOUR
    moment = renewal_time(BEGIN, BEGIN + lifetime_h * HOUR, before, percentage)
    assert moment == BEGIN + expected_h * HOUR


def test_it_has_whole_seconds() -> None:
    assert renewal_time(BEGIN, BEGIN + timedelta(seconds=10)) == BEGIN + timedelta(seconds=6)


def test_a_certificate_that_lives_for_9999_years_has_one() -> None:
    assert (
        renewal_time(datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)).year
        > 7000
    )


@given(
    LIFETIMES,
    st.none() | st.timedeltas(),
    st.none() | st.integers(),
)
def test_it_lies_within_the_life_of_the_certificate(
    lifetime: timedelta, before: timedelta | None, percentage: int | None
) -> None:
    end = BEGIN + lifetime
    moment = renewal_time(BEGIN, end, before, percentage)
    assert BEGIN <= moment <= end
    if lifetime >= timedelta(seconds=3):
        assert moment < end


@given(LIFETIMES, st.integers(min_value=1, max_value=98))
def test_a_higher_percentage_renews_no_later(lifetime: timedelta, percentage: int) -> None:
    end = BEGIN + lifetime
    assert renewal_time(BEGIN, end, None, percentage + 1) <= renewal_time(BEGIN, end, None, percentage)


def test_a_certificate_whose_dates_are_swapped_is_due_at_its_end() -> None:
    assert renewal_time(BEGIN + HOUR, BEGIN) == BEGIN


@pytest.mark.parametrize(
    ("passed", "left", "expected"),
    [
        pytest.param(60 * DAY, 30 * DAY, 14.4 * HOUR, id="90 days: 14 h 24 min"),
        pytest.param(600 * DAY, 300 * DAY, DAY, id="years: a day"),
        pytest.param(4 * DAY, 2 * DAY, 0.96 * HOUR, id="6 days: an hour"),
        pytest.param(40 * HOUR / 60, 20 * HOUR / 60, timedelta(seconds=24), id="an hour: seconds"),
        pytest.param(90 * DAY, 50 * timedelta(seconds=30), timedelta(seconds=30), id="little is left"),
        pytest.param(timedelta(seconds=60), 30 * DAY, timedelta(seconds=6), id="little has passed"),
        pytest.param(timedelta(seconds=9), 30 * DAY, timedelta(0), id="just born"),
        pytest.param(90 * DAY, timedelta(seconds=49), timedelta(0), id="near its end"),
        pytest.param(90 * DAY, -DAY, timedelta(0), id="after its end"),
    ],
)
def test_how_far_renewals_are_spread(passed: timedelta, left: timedelta, expected: timedelta) -> None:
    moment = BEGIN + passed
    assert spread(BEGIN, moment, moment + left) == expected
    assert spread(BEGIN, moment, moment + left, LONGEST_REQUESTED_SPREAD) == min(expected, HOUR)


@given(LIFETIMES, st.none() | st.timedeltas(), st.text())
def test_a_spread_renewal_is_never_late(lifetime: timedelta, before: timedelta | None, seed: str) -> None:
    end = BEGIN + lifetime
    moment = renewal_time(BEGIN, end, before)
    put = put_off(moment, spread(BEGIN, moment, end), seed)
    assert moment <= put <= end
    assert (end - put) >= (end - moment) * 0.98
    assert put.microsecond == moment.microsecond


def test_seeds_are_spread_evenly_and_for_ever_the_same() -> None:
    shares = sorted(share(f"{number}/1") for number in range(1000))
    assert all(abs(actual - number / 1000) < 0.05 for number, actual in enumerate(shares))
    # Written down, since another function would move every renewal.
    moment = put_off(BEGIN, HOUR, "0ea80ad8-5243-4b07-a97f-6821ca000000/1")
    assert moment == BEGIN + timedelta(minutes=23, seconds=44)


def at(text: str) -> datetime:
    """A moment of 2026 in UTC: `03-29 01:30`."""
    return datetime.strptime(f"2026-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("windows", "moment", "expected"),
    [
        pytest.param([NIGHTLY], "02-01 03:00", Slot(at("02-01 03:00"), 3 * HOUR), id="open: stay"),
        pytest.param([NIGHTLY], "02-01 02:00", Slot(at("02-01 02:00"), 4 * HOUR), id="just opened: stay"),
        pytest.param([NIGHTLY], "02-01 05:59", Slot(at("02-01 05:59"), MINUTE), id="still open: stay"),
        pytest.param(
            [NIGHTLY], "02-01 06:00", Slot(at("02-02 02:00"), 4 * HOUR), id="just closed: next night"
        ),
        pytest.param([NIGHTLY], "02-01 12:00", Slot(at("02-02 02:00"), 4 * HOUR), id="closed: next night"),
        pytest.param([SATURDAYS], "02-01 12:00", Slot(at("02-07 02:00"), 4 * HOUR), id="next week"),
        pytest.param(
            [SATURDAYS, NIGHTLY], "02-01 12:00", Slot(at("02-02 02:00"), 4 * HOUR), id="the first of two"
        ),
        pytest.param(
            [Window("0 2 * * *", HOUR), NIGHTLY],
            "02-01 12:00",
            Slot(at("02-02 02:00"), 4 * HOUR),
            id="of two at once the longer",
        ),
        pytest.param(
            [Window("0 * * * *", 90 * MINUTE)],
            "02-01 12:10",
            Slot(at("02-01 12:10"), 80 * MINUTE),
            id="overlapping openings: the last one counts",
        ),
        pytest.param(
            [Window("* * * * *", timedelta(days=30))],
            "02-01 12:00",
            None,
            id="more openings than can be counted: open, with room",
        ),
    ],
)
def test_a_moment_in_a_window(windows: list[Window], moment: str, expected: Slot | None) -> None:
    start = slot(tuple(windows), at(moment), END)
    if expected is None:
        assert start is not None
        assert start.moment == at(moment)
        assert start.room > timedelta(0)
    else:
        assert start == expected


def test_none_opens_before_the_end() -> None:
    assert slot((SATURDAYS,), at("02-01 12:00"), at("02-07 02:00")) is None
    assert slot((SATURDAYS,), at("02-01 12:00"), at("02-07 02:01")) is not None
    assert slot((Window("0 0 1 1 *", HOUR),), at("02-01 12:00"), END) is None


def test_a_window_across_the_change_to_summer_time() -> None:
    # In Berlin the clocks go from 02:00 to 03:00 on 2026-03-29 (01:00 UTC).
    window = Window("30 2 * * *", HOUR, "Europe/Berlin")
    assert slot((window,), at("03-29 00:30"), END) == Slot(at("03-29 01:00"), HOUR)
    assert slot((window,), at("03-29 01:59"), END) == Slot(at("03-29 01:59"), MINUTE)
    assert slot((window,), at("03-29 02:00"), END) == Slot(at("03-30 00:30"), HOUR)


def test_a_window_across_the_change_to_winter_time() -> None:
    # The clocks go from 03:00 back to 02:00 on 2026-10-25 (01:00 UTC): the first 02:30 counts.
    window = Window("30 2 * * *", HOUR, "Europe/Berlin")
    late = datetime(2027, 1, 1, tzinfo=UTC)
    assert slot((window,), at("10-25 00:00"), late) == Slot(at("10-25 00:30"), HOUR)
    assert slot((window,), at("10-25 01:29"), late) == Slot(at("10-25 01:29"), MINUTE)
    assert slot((window,), at("10-25 01:30"), late) == Slot(at("10-26 01:30"), HOUR)


def test_a_zone_that_does_not_exist_is_an_error_with_a_sentence() -> None:
    with pytest.raises(ValueError, match='there is no time zone "Mars/Olympus"'):
        slot((Window("0 2 * * *", HOUR, "Mars/Olympus"),), BEGIN, END)


@given(
    cron=st.sampled_from(["0 2 * * *", "*/20 1-3 * * *", "30 2 * * 0", "0 * * * *", "59 23 28-31 * *"]),
    length=st.integers(min_value=1, max_value=300),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    minutes=st.integers(min_value=0, max_value=365 * 24 * 60),
)
def test_the_answer_is_that_of_counting_all_openings(cron: str, length: int, zone: str, minutes: int) -> None:
    window, moment = Window(cron, length * MINUTE, zone), BEGIN + minutes * MINUTE
    begin = moment - timedelta(days=2)
    openings = moments_after(cron, begin, ZoneInfo(zone))
    past = list(takewhile(lambda opening: opening <= moment, openings))
    start = slot((window,), moment, moment + timedelta(days=40))
    if past and past[-1] + window.length > moment:
        assert start == Slot(moment, past[-1] + window.length - moment)
    else:
        assert start is not None
        assert start.moment > moment
        assert start.room == window.length
