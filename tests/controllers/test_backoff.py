"""The moment of the next attempt, as a function of how it stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from certwright.controllers.backoff import (
    LONGEST_OBEYED,
    MOST_FAILURES,
    BackoffLimits,
    FailedIssuance,
    correction_of,
    counted,
    failed_issuance,
    next_attempt,
)
from certwright.kube.api.meta import Condition, ObjectMeta
from certwright.resources.causes import Cause, Why
from certwright.resources.certificate import Certificate, CertificateStatus
from controllers.scene import make_certificate
from support.world import START

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
LIMITS = BackoffLimits()
FIRST = FailedIssuance(failures=1, last_failure=START)


def wait(failure: FailedIssuance, limits: BackoffLimits = LIMITS) -> timedelta:
    return next_attempt(failure, limits) - failure.last_failure


@pytest.mark.parametrize(
    ("failures", "hours"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 32), (10**9, 32)]
)
def test_the_wait_doubles_from_an_hour_to_32_hours(failures: int, hours: int) -> None:
    assert wait(replace(FIRST, failures=failures)) == hours * HOUR


def test_a_minimum_of_zero_switches_the_waiting_off() -> None:
    off = BackoffLimits(minimum=timedelta(0))
    for cause in Cause:
        assert wait(replace(FIRST, failures=9, cause=cause), off) == timedelta(0)


standings = st.builds(
    FailedIssuance,
    failures=st.integers(1, 1000),
    last_failure=st.just(START),
    cause=st.sampled_from(Cause),
    not_before=st.none() | st.timedeltas(-HOUR, timedelta(days=4000)).map(lambda d: START + d),
    not_after=st.none() | st.timedeltas(-HOUR, timedelta(days=400)).map(lambda d: START + d),
    issuer_minimum=st.none() | st.timedeltas(MINUTE, timedelta(days=7)),
    issuer_changed=st.booleans(),
)


@given(standings)
def test_only_the_end_of_the_certificate_makes_it_earlier_than_the_design(failure: FailedIssuance) -> None:
    designed = min(HOUR * 2 ** min(failure.failures - 1, 10), 32 * HOUR)
    assert wait(replace(failure, not_after=None)) >= designed
    left = (failure.not_after or START) - START
    shortest = max(left / 4, failure.issuer_minimum or 5 * MINUTE)
    assert wait(failure) >= min(designed, shortest if left > timedelta(0) else HOUR - left)


@given(standings)
def test_nobody_waits_longer_than_the_longest_wait_or_a_week_for_the_issuer(failure: FailedIssuance) -> None:
    longest = max(32 * HOUR, failure.issuer_minimum or HOUR)
    if failure.not_before is not None:
        longest = max(longest, LONGEST_OBEYED)
    assert wait(failure) <= longest


@given(
    life=st.timedeltas(20 * MINUTE, timedelta(days=400)),
    failures=st.integers(1, 100),
    cause=st.sampled_from(Cause),
)
def test_three_more_attempts_fit_in_before_the_end(life: timedelta, failures: int, cause: Cause) -> None:
    not_after, moment = START + life, START
    for more in range(3):
        failure = FailedIssuance(
            failures=failures + more, last_failure=moment, cause=cause, not_after=not_after
        )
        moment = next_attempt(failure, LIMITS)
    assert moment <= not_after


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (timedelta(days=30), 32 * HOUR),
        (timedelta(days=2), 12 * HOUR),
        (20 * MINUTE, 5 * MINUTE),
        (timedelta(seconds=1), 5 * MINUTE),
    ],
)
def test_while_the_certificate_lives_the_wait_is_a_quarter_of_that_at_most(
    left: timedelta, expected: timedelta
) -> None:
    assert wait(replace(FIRST, failures=6, not_after=START + left)) == expected


@pytest.mark.parametrize(
    ("life", "since_end", "expected"),
    [
        (timedelta(days=90), timedelta(0), HOUR),
        (timedelta(days=90), 3 * HOUR, 4 * HOUR),
        (timedelta(days=90), timedelta(days=9), 32 * HOUR),
        (timedelta(days=1), timedelta(0), HOUR),
        (timedelta(days=1), timedelta(days=9), 3 * HOUR),
        (20 * MINUTE, timedelta(days=9), 5 * MINUTE),
    ],
    ids=[
        "an hour after the end of a long life",
        "as long again as the certificate is expired",
        "32 hours at most",
        "an hour after the end of a day",
        "an eighth of a life of a day",
        "5 minutes at least",
    ],
)
def test_after_the_end_the_table_begins_again(
    life: timedelta, since_end: timedelta, expected: timedelta
) -> None:
    assert wait(replace(FIRST, failures=40, not_after=START - since_end, lifetime=life)) == expected


def test_an_expired_certificate_of_a_day_is_renewed_within_hours_of_the_repair() -> None:
    """Renewed from the 16th hour on, in vain: the waits of the run-up do not count after the end."""
    end, attempts = START + 24 * HOUR, [START + 16 * HOUR]
    while attempts[-1] < START + 120 * HOUR:
        failed = FailedIssuance(
            failures=len(attempts), last_failure=attempts[-1], not_after=end, lifetime=24 * HOUR
        )
        attempts.append(next_attempt(failed, LIMITS))
    for hour in range(24, 120):
        repaired = START + hour * HOUR
        assert min(moment for moment in attempts if moment >= repaired) - repaired <= 3 * HOUR
    assert len(attempts) <= 50


def test_an_issuer_sets_the_shortest_wait() -> None:
    ending = replace(FIRST, not_after=START + 20 * MINUTE)
    assert wait(replace(ending, issuer_minimum=MINUTE)) == 5 * MINUTE
    assert wait(replace(ending, issuer_minimum=30 * MINUTE)) == 30 * MINUTE
    assert wait(replace(FIRST, issuer_minimum=3 * HOUR)) == 3 * HOUR


def test_a_request_that_cannot_succeed_waits_for_a_change_and_32_hours_at_most() -> None:
    hopeless = replace(FIRST, cause=Cause.INVALID_REQUEST)
    assert wait(hopeless) == 32 * HOUR
    # Its issuer may see it otherwise now; the time of the design is the earliest all the same.
    assert wait(replace(hopeless, failures=3, issuer_changed=True)) == 4 * HOUR


def test_the_issuers_own_time_is_obeyed_for_a_week() -> None:
    limited = replace(FIRST, cause=Cause.RATE_LIMITED, not_before=START + 5 * HOUR)
    assert wait(limited) == 5 * HOUR
    # Earlier than the design is not for the issuer to say.
    assert wait(replace(limited, failures=4)) == 8 * HOUR
    assert wait(replace(limited, not_before=datetime(9999, 1, 1, tzinfo=UTC))) == LONGEST_OBEYED
    # And an end that comes sooner does not help: it would be refused.
    assert wait(replace(limited, not_after=START + HOUR)) == 5 * HOUR


def certificate(failures: int | None, last: datetime | None, message: str = "") -> Certificate:
    made = make_certificate("web", "ca")
    condition = Condition(type="Issuing", status="False", reason="RateLimited", message=message)
    status = CertificateStatus(
        conditions=(condition,), failed_issuance_attempts=failures, last_failure_time=last
    )
    return Certificate(metadata=ObjectMeta(name="web"), spec=made.spec, status=status)


def test_the_standing_follows_from_the_certificate_and_the_request_and_no_text_is_read() -> None:
    text = "no; not before 2026-01-01T07:00:00Z. Next attempt at 2026-01-01T07:00:00Z; wait"
    failure = failed_issuance(certificate(2, START, text), Why(Cause.RATE_LIMITED, "", START + HOUR))
    assert failure == FailedIssuance(
        failures=2, last_failure=START, cause=Cause.RATE_LIMITED, not_before=START + HOUR
    )
    assert failed_issuance(certificate(2, None), Why()) is None
    without_counter = failed_issuance(certificate(None, START), Why())
    assert without_counter is not None
    assert wait(without_counter) == HOUR


@pytest.mark.parametrize(
    ("failures", "last", "becomes"),
    [
        (-3, START, (None, START)),
        (-(2**40), None, (None, None)),
        (2**31 - 1, START, (6, START)),
        (2**62, START, (6, START)),
        (2, START + timedelta(days=2), (2, START)),
        (2, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), (2, START)),
        (2, datetime(1, 1, 1, tzinfo=UTC), (2, START)),
        (-1, datetime(1970, 1, 1, tzinfo=UTC), (None, START)),
    ],
)
def test_what_makes_no_sense_is_put_right(
    failures: int | None, last: datetime | None, becomes: tuple[int | None, datetime | None]
) -> None:
    repaired = correction_of(certificate(failures, last), START, LIMITS)
    assert repaired is not None
    assert (repaired.failures, repaired.last_failure) == becomes
    assert repaired.sentence.endswith("which is impossible; the status was corrected")
    again = certificate(repaired.failures, repaired.last_failure)
    assert correction_of(again, START, LIMITS) is None


@pytest.mark.parametrize("failures", [None, 0, 1, 7, MOST_FAILURES])
@pytest.mark.parametrize("last", [None, START - timedelta(days=900), START, START + 4 * MINUTE])
def test_what_can_be_is_left_alone(failures: int | None, last: datetime | None) -> None:
    assert correction_of(certificate(failures, last), START, LIMITS) is None


@pytest.mark.parametrize(("before", "after"), [(None, 1), (0, 1), (-9, 1), (3, 4), (2**62, MOST_FAILURES)])
def test_a_further_failure_is_counted(before: int | None, after: int) -> None:
    assert counted(certificate(before, START)) == after
