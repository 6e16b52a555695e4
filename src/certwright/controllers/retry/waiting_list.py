"""Wait queue of the certificates that wait for an issuer, in the order in which they may try it. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

# A certificate that does not exist yet is as urgent as one that expires tomorrow.
_WITHOUT_END: Final = timedelta(days=1)


class Place(NamedTuple):
    """A sort key: certificates that have not failed yet first, then by expiry, then by arrival."""

    has_failed: bool
    not_after: datetime
    number: int


@dataclass(slots=True)
class _Waiter:
    place: Place
    check_at: datetime


class WaitingList(Generic[K]):
    """Each certificate waits at most once. `check_at` is when it tries again without being notified."""

    def __init__(self) -> None:
        self._line: list[tuple[Place, K]] = []
        self._waiters: dict[K, _Waiter] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def __iter__(self) -> Iterator[tuple[Place, K]]:
        """In order."""
        return iter(self._line)

    def __contains__(self, key: K) -> bool:
        """Whether it waits."""
        return key in self._waiters

    def place_of(self, key: K, not_after: datetime | None, now: datetime, *, has_failed: bool) -> Place:
        """Its position, or the one it would have if it arrived now."""
        waiter = self._waiters.get(key)
        if waiter is not None:
            return waiter.place
        return Place(has_failed, not_after or now + _WITHOUT_END, self._arrivals)

    def position(self, key: K, not_after: datetime | None, now: datetime, *, has_failed: bool) -> int:
        """How many are before it, or would be if it arrived now."""
        return bisect_left(self._line, (self.place_of(key, not_after, now, has_failed=has_failed),))

    def add(self, key: K, not_after: datetime | None, now: datetime, *, has_failed: bool) -> None:
        """Insert it, unless it waits already."""
        if key not in self._waiters:
            place = self.place_of(key, not_after, now, has_failed=has_failed)
            self._arrivals += 1
            self._waiters[key] = _Waiter(place, now)
            insort(self._line, (place, key))

    def check_at(self, key: K) -> datetime | None:
        """When it tries again; None if it does not wait."""
        waiter = self._waiters.get(key)
        return waiter.check_at if waiter is not None else None

    def set_check(self, key: K, at: datetime) -> None:
        """Set when it tries again. It MUST wait."""
        self._waiters[key].check_at = at

    def remove(self, key: K) -> None:
        """It waits no longer. Idempotent."""
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            del self._line[bisect_left(self._line, (waiter.place,))]

    def clear(self) -> list[tuple[Place, K]]:
        """Remove and return all, in order."""
        line, self._line = self._line, []
        self._waiters.clear()
        return line

    def first_end_after(self, now: datetime) -> datetime | None:
        """The earliest expiry among the waiting certificates."""
        ends = []
        for has_failed in (False, True):
            index = bisect_left(self._line, (Place(has_failed, now, self._arrivals),))
            if index < len(self._line):
                ends.append(self._line[index][0].not_after)
        return min((end for end in ends if end > now), default=None)
