"""Moving a moment into a maintenance window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kit.cron import moments_after
from certwright.pki.renewal import Slot, Window, slot

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
END = datetime(2026, 4, 1, tzinfo=UTC)

NIGHTLY = Window("0 2 * * *", 4 * HOUR)
SATURDAYS = Window("0 2 * * 6", 4 * HOUR)


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
