"""Ages in table cells."""

from __future__ import annotations

import pytest

from certwright.kube.apiserver.representations.tables import age, human_duration

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 1, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 59 * MINUTE, "3h59m"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 5 * HOUR, "2d5h"),
        (7 * DAY + 23 * HOUR, "7d23h"),
        (8 * DAY + 5 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (7 * YEAR + 364 * DAY, "7y364d"),
        (8 * YEAR + DAY, "8y"),
        (20 * YEAR, "20y"),
    ],
)
def test_a_duration_reads_as_kubectl_prints_it(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("1970-01-01T00:00:00Z", "5m"),
        ("1970-01-01T01:00:00+01:00", "5m"),
        ("1970-01-01T00:04:59.000000Z", "1s"),
        (None, "<unknown>"),
        ("", "<unknown>"),
        ("soon", "<invalid>"),
        ("1970-01-01T00:00:00", "<invalid>"),
    ],
)
def test_an_age_is_counted_from_a_timestamp(stamp: str | None, text: str) -> None:
    assert age(stamp, 300.0) == text
