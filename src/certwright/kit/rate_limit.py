"""Rate limits: token buckets that refill, and sliding windows.

All moments are whole microseconds since 1970 (`micros`): their sums are exact, so that the same plan results
every time.

Source: the generic cell rate algorithm, ITU-T I.371 annex A: a bucket is one number, the moment at which it
is full again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
# In the year 9000: `moment_of` cannot represent much later moments.
_LAST = (datetime(9000, 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO


def micros(moment: datetime) -> int:
    """The moment in whole microseconds since 1970."""
    return (moment - _EPOCH) // _MICRO


def moment_of(at: int) -> datetime:
    """The inverse of `micros`."""
    return _EPOCH + timedelta(microseconds=at)


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` times within `window`.

    A bucket (`refills`) regains one token every `window / count`; a sliding window regains each one when it
    is `window` ago.
    """

    count: int
    window: timedelta
    refills: bool = field(default=True, kw_only=True)

    @property
    def every(self) -> int:
        """Microseconds per token, rounded up, so that no early request is admitted."""
        return -(-(self.window // _MICRO) // self.count)


@dataclass(slots=True)
class Bucket:
    """The tokens used. `full_at` is for rates that refill, `spent` (oldest first) for windows.

    `held` are reserved tokens, not used yet; none is free before `closed_until`.
    """

    full_at: int = 0
    held: int = 0
    closed_until: int = 0
    spent: list[int] = field(default_factory=list)

    def free_at(self, rate: Rate, now: int, ahead: int = 0) -> int:
        """The earliest moment from `now` on at which a use is allowed after `ahead` others."""
        before = self.held + ahead
        if rate.refills:
            free = max(now, max(self.full_at, now) + (before + 1 - rate.count) * rate.every)
        else:
            free = self._slid_at(rate, now, before)
        if self.closed_until > now:
            free = max(free, self.closed_until + ahead * rate.every)
        return free

    def _slid_at(self, rate: Rate, now: int, before: int) -> int:
        window = rate.window // _MICRO
        self._slide(now - window)
        # The index of the past one that must have left the window first.
        lacking = len(self.spent) + before + 1 - rate.count
        if lacking <= 0:
            return now
        rounds, rest = divmod(lacking - 1, rate.count)
        leaves = self.spent[rest] if rest < len(self.spent) else now
        return max(now, leaves + window * (rounds + 1))

    def _slide(self, until: int) -> None:
        gone = 0
        while gone < len(self.spent) and self.spent[gone] <= until:
            gone += 1
        del self.spent[:gone]

    def spend(self, rate: Rate, at: int) -> None:
        """Record a use at that moment, allowed or not."""
        if not rate.refills:
            self.spent.append(at)
            if len(self.spent) > 1 and at < self.spent[-2]:
                self.spent.sort()
            return
        # The level of a bucket is never below zero.
        most = at + rate.count * rate.every
        self.full_at = max(self.full_at, min(max(self.full_at, at) + rate.every, most))

    def close(self, rate: Rate, until: int, now: int) -> None:
        """Close the bucket until a moment known from elsewhere; one token is free then."""
        if until <= now:
            return
        self.closed_until = max(self.closed_until, until)
        if rate.refills:
            self.full_at = max(self.full_at, until + (rate.count - 1) * rate.every)

    def used(self, rate: Rate, now: int) -> int:
        """The number of used or reserved tokens; refilled ones do not count."""
        if rate.refills:
            lacks = max(0, self.full_at - now)
            return -(-lacks // rate.every) + self.held
        self._slide(now - rate.window // _MICRO)
        return len(self.spent) + self.held

    def is_idle(self, rate: Rate, now: int) -> bool:
        """Whether the bucket is as good as new."""
        return self.closed_until <= now and self.used(rate, now) == 0

    def numbers(self) -> list[int]:
        """The whole state as integers, which `of_numbers` reads."""
        return [self.full_at, self.held, self.closed_until, *self.spent]

    @classmethod
    def of_numbers(cls, numbers: Sequence[object]) -> Bucket:
        """Parse the result of `numbers`. Raises `ValueError` for anything else."""
        read = [number for number in numbers if isinstance(number, int) and 0 <= number <= _LAST]
        if len(read) < 3 or len(read) != len(numbers):
            raise ValueError("not the numbers of a bucket")
        return cls(read[0], read[1], read[2], sorted(read[3:]))
