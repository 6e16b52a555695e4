"""Times and counts in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from certwright.cli import format

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (3599, "59m"),
        (3 * 3600 + 60, "3h1m"),
        (26 * 3600, "26h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 7200, "3d2h"),
        (100 * 86400, "100d"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (20 * 365 * 86400, "20y"),
    ],
)
def test_ages_read_as_kubectls(seconds: int, text: str) -> None:
    assert format.age(NOW - timedelta(seconds=seconds), NOW) == text


def test_an_unknown_age_is_said_to_be_unknown() -> None:
    assert format.age(None, NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (timedelta(0), "now"),
        (timedelta(seconds=1), "in 1 second"),
        (timedelta(minutes=90), "in 90 minutes"),
        (timedelta(hours=1), "in 1 hour"),
        (timedelta(days=-2), "2 days ago"),
        (timedelta(days=59, hours=23), "in 60 days"),
        (timedelta(days=3650), "in 10 years"),
        (timedelta(days=400), "in 400 days"),
    ],
)
def test_distances_in_time_are_told_in_one_unit(delta: timedelta, text: str) -> None:
    assert format.from_now(NOW + delta, NOW) == text


def test_times_of_the_api_are_read_and_others_are_not() -> None:
    assert format.parse_time("2026-01-01T00:00:00Z") == NOW
    assert format.parse_time("yesterday") is None
    assert format.parse_time(None) is None


def test_lists_read_as_sentences() -> None:
    assert format.listed([]) == ""
    assert format.listed(["a"]) == "a"
    assert format.listed(["a", "b", "c"], last="or") == "a, b or c"
