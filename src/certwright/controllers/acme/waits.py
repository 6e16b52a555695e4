"""Waits of Orders and Challenges: the reason, the end, and when a changed reason is worth another write.

The time in a reason is for people; the program never parses it. A reason is copied from the Challenge to the
Order, its request and its Certificate, so each change is up to four writes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec


class Wait(msgspec.Struct, frozen=True):
    """Why an object must wait. `until` None: until something changes. `why` is a sentence, which `names_time`
    itself or gets the time added. A wait that `is_brief` is not written. One that `is_final` never ends: the
    issuer is no ACME issuer. `is_limit`: the CA's limits set `until`. `is_failure`: a request to the CA has
    just failed."""

    why: str
    until: datetime | None = None
    names_time: bool = False
    is_brief: bool = False
    is_final: bool = False
    is_limit: bool = False
    is_failure: bool = False


class Pause(msgspec.Struct, frozen=True):
    """The CA MUST NOT be asked before `until`, whatever else happens. If the time `is_ours` (the CA named
    none), a certificate that is needed immediately ends the pause. `since`: when it began; None: before this
    process, or the CA works and its recovery would change nothing."""

    until: datetime
    since: datetime | None
    is_ours: bool


BRIEF: Final = timedelta(seconds=3)
"""A wait that ends sooner is over before its time is read."""
RECURRING: Final = timedelta(seconds=15)
"""The same for a wait that is one of many, because each time would be another write."""
LONGEST_INTERVAL: Final = timedelta(minutes=5)
"""Between two attempts at one challenge."""
# An announced time may be off by so much before it is written again.
_SLACK: Final = timedelta(seconds=2)
_SHARE: Final = 0.1
_ALMOST_A_SECOND: Final = timedelta(microseconds=999_999)
_STEPS: Final = (timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=5), timedelta(hours=1))


class Announced(msgspec.Struct, frozen=True):
    """Split a reason into its text and the time of the next step; None: it names no time."""

    why: str
    at: datetime | None = None

    @classmethod
    def of(cls, why: str, at: datetime | None, now: datetime, *, brief: timedelta = BRIEF) -> Announced:
        """Without the time where that is less than `brief` away."""
        return cls(why, at if at is not None and at - now >= brief else None)

    def is_news(self, before: Announced | None, now: datetime) -> bool:
        """Whether it differs from `before` by more than the slack."""
        if before is None or before.why != self.why or (before.at is None) != (self.at is None):
            return True
        if self.at is None or before.at is None:
            return False
        return abs(self.at - before.at) > max(_SLACK, (self.at - now) * _SHARE)

    @property
    def text(self) -> str:
        """Append the time of the next step to the reason."""
        if self.at is None:
            return self.why
        # Never earlier than the step itself.
        moment = (self.at + _ALMOST_A_SECOND).astimezone(UTC)
        return f"{self.why}; next step at {moment:%Y-%m-%dT%H:%M:%SZ}"


def within(period: timedelta) -> str:
    """A bound for something that is repeated: its text changes rarely while the period grows."""
    bound = next((step for step in _STEPS if period <= step), period)
    seconds = round(bound.total_seconds())
    amount, unit = (seconds // 60, "minute") if seconds % 60 == 0 else (seconds, "second")
    return f"within {amount} {unit}{'' if amount == 1 else 's'}"


def growing(since: timedelta, *, at_least: timedelta, at_most: timedelta) -> timedelta:
    """The delay before the next poll, a fifth of the time `since` the first: a day takes some forty polls,
    each with its announced time."""
    return max(min(since / 5, at_most), at_least)


def announced_retry(now: datetime, why: str, until: datetime) -> Announced:
    """Announce the next attempt, or the interval of attempts when the waits no longer grow."""
    if until - now >= LONGEST_INTERVAL:
        return Announced(f"{why}; tried again {within(LONGEST_INTERVAL)}")
    return Announced.of(why, until, now)
