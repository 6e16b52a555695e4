"""Rate limits: token buckets and sliding windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kit.rate_limit import Bucket, Rate, micros, moment_of

START = micros(datetime(2026, 1, 1, tzinfo=UTC))
S = 1_000_000
FIVE_A_MINUTE = Rate(5, timedelta(minutes=1))
FIVE_IN_A_MINUTE = Rate(5, timedelta(minutes=1), refills=False)


def test_a_moment_survives() -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
    assert moment_of(micros(moment)) == moment


def test_a_bucket_gives_what_it_holds_at_once_and_the_rest_one_by_one() -> None:
    bucket = Bucket()
    for _ in range(5):
        assert bucket.free_at(FIVE_A_MINUTE, START) == START
        bucket.spend(FIVE_A_MINUTE, START)
    assert bucket.used(FIVE_A_MINUTE, START) == 5
    assert bucket.free_at(FIVE_A_MINUTE, START) == START + 12 * S
    assert bucket.free_at(FIVE_A_MINUTE, START, ahead=3) == START + 48 * S
    assert bucket.is_idle(FIVE_A_MINUTE, START + 60 * S)


def test_a_window_gives_each_back_when_it_is_a_window_ago() -> None:
    bucket = Bucket()
    for i in range(5):
        bucket.spend(FIVE_IN_A_MINUTE, START + i * S)
    now = START + 10 * S
    assert bucket.free_at(FIVE_IN_A_MINUTE, now) == START + 60 * S
    assert bucket.free_at(FIVE_IN_A_MINUTE, now, ahead=2) == START + 62 * S
    assert bucket.free_at(FIVE_IN_A_MINUTE, now, ahead=5) == START + 120 * S
    assert bucket.used(FIVE_IN_A_MINUTE, START + 62 * S) == 2


@pytest.mark.parametrize("rate", [FIVE_A_MINUTE, FIVE_IN_A_MINUTE])
def test_what_is_promised_counts_and_can_be_let_go(rate: Rate) -> None:
    bucket = Bucket(held=5)
    assert bucket.free_at(rate, START) > START
    bucket.held -= 1
    assert bucket.free_at(rate, START) == START


@pytest.mark.parametrize("rate", [FIVE_A_MINUTE, FIVE_IN_A_MINUTE])
def test_a_closed_bucket_has_one_at_the_moment_that_was_named(rate: Rate) -> None:
    bucket = Bucket()
    bucket.close(rate, START + 100 * S, START)
    assert bucket.free_at(rate, START) == START + 100 * S
    assert bucket.free_at(rate, START, ahead=1) == START + 112 * S


def test_a_bucket_is_never_emptier_than_empty() -> None:
    bucket = Bucket()
    for _ in range(50):
        bucket.spend(FIVE_A_MINUTE, START)
    assert bucket.free_at(FIVE_A_MINUTE, START) == START + 12 * S


@given(
    gaps=st.lists(st.integers(0, 40 * S), min_size=1, max_size=60),
    count=st.integers(1, 7),
    refills=st.booleans(),
)
def test_whoever_obeys_never_has_more_than_the_rate(gaps: list[int], count: int, refills: bool) -> None:
    rate = Rate(count, timedelta(minutes=1), refills=refills)
    bucket, now = Bucket(), START
    spent: list[int] = []
    for gap in gaps:
        now = bucket.free_at(rate, now + gap)
        bucket.spend(rate, now)
        spent.append(now)
        bucket = Bucket.of_numbers(bucket.numbers())
    for i, first in enumerate(spent):
        for j in range(i, len(spent)):
            allowed = count + (spent[j] - first) * count // (60 * S) if refills else count
            if refills or spent[j] - first < 60 * S:
                assert j - i + 1 <= allowed


def test_numbers_that_are_none_of_a_bucket_are_refused() -> None:
    with pytest.raises(ValueError, match="not the numbers"):
        Bucket.of_numbers([1, 2])
