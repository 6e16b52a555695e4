"""The backoff after a failed issuance: a pure function from the state in the objects to the next attempt.

The exponential backoff (cert-manager design 20220118) is the minimum. The issuer's Retry-After and the open
circuit breaker of its issuer lengthen the wait. Two rules may shorten it: at least three attempts are made
before the current certificate ends; after its end the table begins again, and no wait is longer than an
eighth of the certificate's life.

docs/backoff.md explains the backoff for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from certwright.kube.util.durations import doubled, parse_duration
from certwright.resources import names
from certwright.resources.causes import Cause, Why
from certwright.resources.certificate import Certificate

SHORTEST_BEFORE_THE_END = timedelta(minutes=5)
"""Never less than this between two attempts because a certificate ends soon, unless its issuer says so."""
LONGEST_OBEYED = timedelta(days=7)
"""An issuer that wants to be left alone for longer is asked again after this time. The longest window of
Let's Encrypt's rate limits is a week."""

SPREAD = 0.03
"""By which part of their waits Certificates that failed in the same second are spread; never earlier."""

MOST_FAILURES = 1_000_000
"""Nothing fails so often: one attempt every five minutes for nine years."""

# Before this, no program wrote such a time. After the clock of another host, a time may lie in the future.
_EARLIEST = datetime(2017, 1, 1, tzinfo=UTC)
_SKEW = timedelta(minutes=5)

# A quarter of the remaining life: one attempt after a quarter, the next after 7/16, the third after 37/64.
_PARTS = 4
# Between two attempts after the end.
_PARTS_OF_LIFE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffLimits:
    """How long to wait after a failure: `minimum`, doubled with each further one, at most `maximum`.

    A `minimum` of 0 switches the waiting off.
    """

    minimum: timedelta = timedelta(hours=1)
    maximum: timedelta = timedelta(hours=32)

    def __post_init__(self) -> None:
        """Raises `ValueError` with a sentence for invalid bounds."""
        if self.minimum < timedelta(0) or self.maximum < timedelta(0):
            raise ValueError("the backoff after a failed issuance must not be negative")
        if self.maximum < self.minimum:
            raise ValueError(
                f"the maximum backoff after a failed issuance ({self.maximum}) must not be below the minimum "
                f"({self.minimum})"
            )


class FailedIssuance(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `next_attempt` about a failed Certificate.

    `failures`: in a row. `not_before`: the issuer's Retry-After. `not_after` and `lifetime`: of the current
    certificate. `issuer_minimum`: from the issuer's annotation. `issuer_changed`: the issuer has changed
    since it called the request invalid.
    """

    failures: int
    last_failure: datetime
    cause: Cause = Cause.UNKNOWN
    not_before: datetime | None = None
    not_after: datetime | None = None
    lifetime: timedelta | None = None
    issuer_minimum: timedelta | None = None
    issuer_changed: bool = False


def next_attempt(failure: FailedIssuance, limits: BackoffLimits) -> datetime:
    """The earliest time of the next automatic attempt.

    Always the same for the same failure, so that a restart neither lengthens nor shortens a wait.
    """
    failed_at, not_after = failure.last_failure, failure.not_after
    issuer_minimum = failure.issuer_minimum
    shortest = SHORTEST_BEFORE_THE_END if issuer_minimum is None else issuer_minimum
    wait = doubled(limits.minimum, failure.failures, cap=limits.maximum)
    if failure.cause is Cause.INVALID_REQUEST and wait and not failure.issuer_changed:
        wait = limits.maximum
    if not_after is not None and failed_at < not_after:
        wait = min(wait, max((not_after - failed_at) / _PARTS, shortest))
    elif not_after is not None:
        # The table begins again at the end of the certificate, because the attempts just before the end were
        # more than the table has; and a certificate that lived for a day is not left expired for a day.
        wait = min(wait, limits.minimum + (failed_at - not_after))
        if failure.lifetime is not None:
            wait = min(wait, max(failure.lifetime / _PARTS_OF_LIFE, shortest))
    if issuer_minimum is not None:
        wait = max(wait, issuer_minimum)
    moment = _after(failed_at, wait)
    if failure.not_before is None:
        return moment
    return max(moment, min(failure.not_before, _after(failed_at, LONGEST_OBEYED)))


def _after(moment: datetime, wait: timedelta) -> datetime:
    try:
        return moment + wait
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def minimum_in(annotations: Mapping[str, str]) -> timedelta | None:
    """The minimum wait in an issuer's annotations; None without one. Raises `ValueError` with a sentence for
    an invalid value."""
    text = annotations.get(names.MINIMUM_BACKOFF)
    if text is None:
        return None
    wrong = f'the annotation {names.MINIMUM_BACKOFF} is "{text}", which is ignored'
    try:
        minimum = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from error
    if not timedelta(seconds=1) <= minimum <= LONGEST_OBEYED:
        raise ValueError(f"{wrong}: write a duration from 1s to 168h")
    return minimum


def failed_issuance(
    certificate: Certificate,
    why: Why,
    *,
    issuer_minimum: timedelta | None = None,
    issuer_changed: bool = False,
) -> FailedIssuance | None:
    """The failed issuance in the Certificate's status; `why`: the cause of its request's failure. None
    without a failure."""
    status = certificate.status
    if status.last_failure_time is None:
        return None
    return FailedIssuance(
        failures=status.failed_issuance_attempts or 1,
        last_failure=status.last_failure_time,
        cause=why.cause,
        not_before=why.not_before,
        not_after=status.not_after,
        lifetime=status.not_after - status.not_before if status.not_after and status.not_before else None,
        issuer_minimum=issuer_minimum,
        issuer_changed=issuer_changed,
    )


def counted(certificate: Certificate) -> int:
    """The number of failed attempts in a row, including the present one."""
    return min(max(certificate.status.failed_issuance_attempts or 0, 0) + 1, MOST_FAILURES)


def is_possible(last_failure: datetime, now: datetime) -> bool:
    """Whether the time may be that of a failed attempt."""
    return _EARLIEST <= last_failure <= now + _SKEW


class Correction(NamedTuple):
    """The correction of an impossible status: the new values, and a sentence about the old."""

    failures: int | None
    last_failure: datetime | None
    sentence: str


def correction_of(certificate: Certificate, now: datetime, limits: BackoffLimits) -> Correction | None:
    """The correction of an impossible counter or time in the status; None if both are possible.

    The wait starts again: such a status must neither stop an object for ever nor let all objects attempt at
    once.
    """
    status = certificate.status
    failures, last = status.failed_issuance_attempts, status.last_failure_time
    wrong = []
    if failures is not None and not 0 <= failures <= MOST_FAILURES:
        wrong.append(f"status.failedIssuanceAttempts was {failures}")
        longest = 1  # After so many failures the wait is the longest.
        while longest < 64 and doubled(limits.minimum, longest, cap=limits.maximum) < limits.maximum:
            longest += 1
        failures = None if failures < 0 else longest
    # To a clock that is behind for a while, each time lies in the future. Overwritten, all Certificates would
    # be due together when the clock is right again: such a time stays, and delays by at most that much.
    if last is not None and not is_possible(last, now) and not now < last <= now + limits.maximum:
        wrong.append(f"status.lastFailureTime was {last.isoformat()}")
        last = now.replace(microsecond=0)
    if not wrong:
        return None
    return Correction(failures, last, f"{' and '.join(wrong)}, which is impossible; the status was corrected")
