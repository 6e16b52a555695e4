"""Unsuccessful attempts at an issuer, and the time of the next one. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

PERIOD = timedelta(hours=1)


class Tries(Generic[K]):
    """At most `limit` (1 or more) in any hour. `K` names the object that tries. Times MUST come in order."""

    def __init__(self, limit: int) -> None:
        self._attempts: deque[tuple[datetime, K | None]] = deque(maxlen=limit)
        self.last: datetime | None = None
        """When the last one was."""

    def add(self, key: K | None, at: datetime) -> None:
        """Record an attempt; None: its certificate is not known."""
        self._attempts.append((at, key))
        self.last = at

    def remove(self, key: K) -> None:
        """Remove the last attempt of `key`: it succeeded, or did not reach the issuer."""
        for index in range(len(self._attempts) - 1, -1, -1):
            if self._attempts[index][1] == key:
                del self._attempts[index]
                return

    def keep(self, count: int) -> None:
        """Forget the oldest ones of more than `count`."""
        while len(self._attempts) > count:
            self._attempts.popleft()

    @property
    def times(self) -> tuple[datetime, ...]:
        """The times of the attempts, the oldest first."""
        return tuple(at for at, _ in self._attempts)

    def clear(self) -> None:
        """The issuer has issued."""
        self._attempts.clear()

    def free_at(self, now: datetime) -> datetime:
        """The earliest time of the next attempt."""
        is_full = len(self._attempts) == self._attempts.maxlen
        return max(now, self._attempts[0][0] + PERIOD) if is_full else now
