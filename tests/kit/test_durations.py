from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.util.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2160h", timedelta(days=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("0", timedelta(0)),
        ("-5m", timedelta(minutes=-5)),
        ("+90s", timedelta(seconds=90)),
        (".5s", timedelta(milliseconds=500)),
        ("300ms", timedelta(milliseconds=300)),
        ("2µs", timedelta(microseconds=2)),
        ("1500ns", timedelta(microseconds=1)),
    ],
)
def test_go_durations_are_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "h", "1", "1d", "1h 30m", "P90D", "1h-5m", "٣h", "--1h", "99999999h", "1h" * 200]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(days=90), "2160h0m0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(0), "0s"),
        (timedelta(milliseconds=20), "20ms"),
        (timedelta(microseconds=7), "7µs"),
        (timedelta(hours=-1), "-1h0m0s"),
    ],
)
def test_durations_are_written_as_go_writes_them(value: timedelta, text: str) -> None:
    assert format_duration(value) == text


@given(st.timedeltas(min_value=timedelta(days=-90_000), max_value=timedelta(days=90_000)))
def test_what_is_written_is_read_back(value: timedelta) -> None:
    assert parse_duration(format_duration(value)) == value
