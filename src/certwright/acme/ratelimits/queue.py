"""Queues of waiting orders, one per limit: first in, first out by age.

An order waits in the queue of the limit that delays it longest. It keeps its place in another queue where
it was due already, if the wait elsewhere is so short that no other order could have gone first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from certwright.acme.ratelimits.decisions import Asking, Key


@dataclass(slots=True)
class _Waiter:
    asking: Asking
    main: Key
    lines: set[Key] = field(default_factory=set)


class Lines:
    """The queues. `wake` is called with the uid of an order that should request admission again."""

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._waiters: dict[str, _Waiter] = {}
        self._lines: dict[Key, list[tuple[int, str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def __contains__(self, key: Key) -> bool:
        return key in self._lines

    def has(self, uid: str) -> bool:
        """Whether that order waits."""
        return uid in self._waiters

    def lengths(self) -> dict[str, int]:
        """The length of each queue."""
        return {str(key): len(line) for key, line in self._lines.items()}

    def length(self, key: Key) -> int:
        """The length of that queue."""
        return len(self._lines.get(key, ()))

    def ahead(self, key: Key, asking: Asking) -> int:
        """The number of orders before that order, or before its place if it is not queued."""
        line = self._lines.get(key)
        return bisect_left(line, asking.place) if line else 0

    def wait(self, asking: Asking, key: Key, keeps_place: Callable[[Key], bool], *, stands: bool) -> None:
        """Queue the order for `key`. `stands` False: the limit does not free capacity one by one."""
        waiter = self._waiters.get(asking.uid)
        if waiter is None:
            waiter = self._waiters[asking.uid] = _Waiter(asking, key)
        waiter.asking, waiter.main = asking, key
        for other in [line for line in waiter.lines if line != key and not keeps_place(line)]:
            self._leave_line(waiter, other)
        if stands and key not in waiter.lines:
            waiter.lines.add(key)
            insort(self._lines.setdefault(key, []), asking.place)

    def leave(self, uid: str) -> None:
        """Remove the order from all queues."""
        waiter = self._waiters.pop(uid, None)
        if waiter is not None:
            for key in list(waiter.lines):
                self._leave_line(waiter, key)

    def _leave_line(self, waiter: _Waiter, key: Key) -> None:
        line = self._lines[key]
        del line[bisect_left(line, waiter.asking.place)]
        waiter.lines.discard(key)
        if line:
            self.call(key)
        else:
            del self._lines[key]

    def call(self, key: Key) -> None:
        """Wake the next order in the queue: capacity may be free, or its turn may come earlier."""
        for _, uid in self._lines.get(key, ()):
            if self._waiters[uid].main == key:
                self._wake(uid)
                return
