"""Which moments a cron expression names. (What is an expression: tests/resources/test_validation.py.)"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from certwright.kit.cron import check_cron, moments_after

BERLIN = ZoneInfo("Europe/Berlin")


def moments(text: str, begin: str, count: int, zone: str = "UTC") -> list[str]:
    """The next moments as text in UTC, without year and seconds."""
    start = datetime.fromisoformat(begin).replace(tzinfo=UTC)
    fire_times = islice(moments_after(text, start, ZoneInfo(zone)), count)
    return [f"{moment:%m-%d %H:%M}" for moment in fire_times]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 2 * * *", ["01-01 02:00", "01-02 02:00", "01-03 02:00"]),
        ("30 4 * * SAT,0", ["01-03 04:30", "01-04 04:30", "01-10 04:30"]),
        ("0 0 1 */6 ?", ["07-01 00:00", "01-01 00:00", "07-01 00:00"]),
        ("15/20 23 * * *", ["01-01 23:15", "01-01 23:35", "01-01 23:55"]),
        ("0 0 10 * MON", ["01-05 00:00", "01-10 00:00", "01-12 00:00"]),
        ("0 0 */15 * MON", ["01-05 00:00", "01-12 00:00", "01-16 00:00"]),
        ("0 0 10,* * MON", ["01-05 00:00", "01-12 00:00", "01-19 00:00"]),
        ("0 0 * * 1/3", ["01-05 00:00", "01-08 00:00", "01-12 00:00"]),
        ("0 0 * * */3", ["01-03 00:00", "01-04 00:00", "01-07 00:00"]),
        ("0 0 29 2 *", ["02-29 00:00", "02-29 00:00", "02-29 00:00"]),
    ],
)
def test_the_moments_of_an_expression(text: str, expected: list[str]) -> None:
    # 2026-01-01 is a Thursday.
    assert moments(text, "2026-01-01T00:00", 3) == expected


def test_a_moment_itself_is_not_after_itself() -> None:
    assert moments("0 2 * * *", "2026-01-01T02:00", 1) == ["01-02 02:00"]


def test_the_zone_counts_in_summer_and_winter() -> None:
    assert moments("0 2 * * *", "2026-01-10T00:00", 1, "Europe/Berlin") == ["01-10 01:00"]
    assert moments("0 2 * * *", "2026-07-10T00:00", 1, "Europe/Berlin") == ["07-11 00:00"]
    assert moments("0 2 * * *", "2026-01-10T00:00", 1, "America/New_York") == ["01-10 07:00"]


def test_an_hour_that_is_skipped_in_spring_is_not_lost() -> None:
    # Clocks go from 02:00 to 03:00 on 2026-03-29 (01:00 UTC).
    fire_times = moments("30 2 * * *", "2026-03-28T00:00", 3, "Europe/Berlin")
    assert fire_times == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_an_hour_that_comes_twice_in_autumn_counts_once() -> None:
    # Clocks go from 03:00 back to 02:00 on 2026-10-25 (01:00 UTC).
    fire_times = moments("30 2 * * *", "2026-10-24T00:00", 3, "Europe/Berlin")
    assert fire_times == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]
    assert moments("30 2 * * *", "2026-10-25T00:45", 1, "Europe/Berlin") == ["10-26 01:30"]
    assert moments("30 2 * * *", "2026-10-25T01:15", 1, "Europe/Berlin") == ["10-26 01:30"]


def test_every_hour_means_every_hour_that_passes() -> None:
    begin = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)
    fire_times = list(islice(moments_after("0 * * * *", begin, BERLIN), 5))
    assert [b - a for a, b in pairwise(fire_times)] == [timedelta(hours=1)] * 4


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_a_day_that_no_month_has_is_refused(text: str) -> None:
    assert check_cron(text) == "names a day that no month has"
    assert moments(text, "2026-01-01T00:00", 1) == []
