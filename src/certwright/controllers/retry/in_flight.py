"""Attempts in flight at an issuer, and how many more may run concurrently. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_HOUR: Final = timedelta(hours=1)
# A success within this time shows that the issuer works; at most this many are counted.
_FRESH: Final = timedelta(minutes=10)
_MANY: Final = 5000


class InFlight(Generic[K]):
    """Attempts of the last hour; one that takes longer does not show whether the issuer works.

    `at_once` may run concurrently before the issuer has issued; two more for each certificate that it has
    issued in the last ten minutes.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._since: dict[K, datetime] = {}
        self._successes: deque[datetime] = deque(maxlen=_MANY)

    def has_succeeded(self, now: datetime) -> bool:
        """Whether the issuer has issued lately."""
        return bool(self._successes) and now - self._successes[-1] <= _FRESH

    def __len__(self) -> int:
        """How many attempts have not ended, however old."""
        return len(self._since)

    def __contains__(self, key: K) -> bool:
        """Whether an attempt has not ended, however old."""
        return key in self._since

    def is_fresh(self, key: K, now: datetime) -> bool:
        """Whether an attempt was made in the last hour and has not ended."""
        since = self._since.get(key)
        return since is not None and now - since < _HOUR

    def since(self, key: K) -> datetime | None:
        """When its attempt was made, if that has not ended."""
        return self._since.get(key)

    def add(self, key: K, now: datetime) -> None:
        """Record the start of an attempt. Times MUST come in order."""
        self._since.pop(key, None)
        self._since[key] = now

    def end(self, key: K) -> None:
        """Record the end of an attempt, whatever its result."""
        self._since.pop(key, None)

    def succeeded(self, now: datetime) -> None:
        """The issuer has issued."""
        self._successes.append(now)

    def doubt(self) -> None:
        """Forget earlier successes."""
        self._successes.clear()

    def room(self, failing: int, now: datetime) -> int:
        """How many more may start while `failing` certificates fail; at least one if none is in flight.
        Changes nothing."""
        # Both are in order of time, and `forget_old` keeps the old ones few.
        old = sum(1 for _ in takewhile(lambda since: now - since >= _HOUR, self._since.values()))
        stale = sum(1 for _ in takewhile(lambda at: now - at > _FRESH, self._successes))
        fresh = len(self._since) - old
        room = self._at_once + 2 * (len(self._successes) - stale) - fresh - failing
        return max(room, 0 if fresh else 1)

    def forget_old(self, now: datetime) -> None:
        """Forget attempts and successes that `room` does not count any more."""
        while self._since:
            key, since = next(iter(self._since.items()))
            if now - since < _HOUR:
                break
            del self._since[key]
        while self._successes and now - self._successes[0] > _FRESH:
            self._successes.popleft()
