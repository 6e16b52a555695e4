"""Event log: the window of recent events in order of revision, bounded in bytes.

A watch from a past revision is replayed from here. A list of a past revision is the current rows with the
events since then undone. Recently written rows, which most reads want, need not be read from a file. Each
bucket has a separate oldest revision, so that a busy bucket does not make the watchers of a quiet one start
over before their events are really dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from certwright.kube.store.contract import Compacted, Event, FutureRevision, Key, Row

Place = tuple[str, str]
"""(namespace, name): a key within its bucket."""

MAX_BYTES = 8 << 20
MAX_HELD_BYTES = 64 << 20
"""Limit of the window in bytes while lists of an older revision are being continued."""

# Overhead of an event beside its bytes: three named tuples, their integers, two entries in a deque, one in a
# dict.
_OVERHEAD = 500


def size_of_row(row: Row) -> int:
    """The bytes of a row's metadata and body."""
    return len(row.meta) + len(row.body)


def size_of(event: Event) -> int:
    """Approximate memory of an event, in bytes."""
    row, previous = event.row, event.previous
    size = _OVERHEAD + len(row.meta) + len(row.body)
    return size if previous is None else size + len(previous.meta) + len(previous.body)


class EventLog:
    """Committed events; above `max_bytes` the oldest are dropped.

    `revision`: the store's revision at the start, before which nothing is known. A list that is continued at
    an older revision retains the events since then, up to `max_held_bytes`, so that a slow client can read it
    to its end: until `max_bytes` of events have been appended without a further page of the list.
    """

    def __init__(
        self,
        revision: int = 0,
        *,
        max_bytes: int = MAX_BYTES,
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self._revision = revision
        self._start = revision
        self._max_bytes = max_bytes
        self._max_held_bytes = max_held_bytes
        self._appended = 0  # bytes of all events so far
        self._continued: dict[int, int] = {}  # revisions of lists, and `_appended` at their last page
        self._bytes = 0
        self._all: deque[Event] = deque()
        self._buckets: dict[str, deque[Event]] = {}
        self._dropped: dict[str, int] = {}
        self._last: dict[Key, Event] = {}

    @property
    def revision(self) -> int:
        """The last revision appended."""
        return self._revision

    @property
    def size(self) -> int:
        """Approximate size of the window, in bytes."""
        return self._bytes

    def append(self, events: Sequence[Event]) -> None:
        """Add the events of one commit, in order of revision, all over `revision`."""
        for event in events:
            bucket = event.row.key.bucket
            added = size_of(event) - self._size_of_shared(self._last.get(event.row.key))
            self._all.append(event)
            self._last[event.row.key] = event
            self._buckets.setdefault(bucket, deque()).append(event)
            self._bytes += added
            self._appended += added
        if events:
            self._revision = events[-1].revision
        while self._bytes > self._max_held_bytes:
            self._drop_oldest()
        if self._bytes > self._max_bytes:
            before = self._appended - self._max_bytes
            self._continued = {revision: at for revision, at in self._continued.items() if at >= before}
            oldest = min(self._continued, default=math.inf)
            while self._bytes > self._max_bytes and self._all[0].revision <= oldest:
                self._drop_oldest()

    def advance(self, revision: int) -> None:
        """Record that up to `revision` no other events happened than those appended."""
        self._revision = max(self._revision, revision)

    def restart(self, revision: int) -> None:
        """Drop every event, and continue from `revision`, because the events up to it are not known."""
        self._all.clear()
        self._buckets.clear()
        self._dropped.clear()
        self._last.clear()
        self._continued.clear()
        self._bytes = 0
        self._start = self._revision = revision

    def _drop_oldest(self) -> None:
        event = self._all.popleft()
        bucket = event.row.key.bucket
        self._buckets[bucket].popleft()
        self._dropped[bucket] = event.revision
        self._bytes -= size_of(event)
        if self._last[event.row.key] is event:
            del self._last[event.row.key]
        else:
            self._bytes += self._size_of_shared(event)

    @staticmethod
    def _size_of_shared(event: Event | None) -> int:
        """The bytes of the event's row that the key's next event has as its previous row, and that are
        counted once."""
        return 0 if event is None or event.deleted else size_of_row(event.row)

    def last(self, key: Key) -> Event | None:
        """The last event of a key, None if it has not changed within the window."""
        return self._last.get(key)

    def row(self, key: Key) -> Row | None:
        """The row after the last event of a key; None if it was deleted, or no event is known."""
        event = self._last.get(key)
        return None if event is None or event.deleted else event.row

    def oldest(self, bucket: str) -> int:
        """The first revision since which the window has every event of the bucket."""
        return self._dropped.get(bucket, self._start)

    def since(self, bucket: str, revision: int, namespace: str | None = None) -> list[Event]:
        """The bucket's events after `revision`, the oldest first. Raises `Compacted`, `FutureRevision`."""
        events = [
            event
            for event in self._newest_first(bucket, revision)
            if namespace is None or event.row.key.namespace == namespace
        ]
        events.reverse()
        return events

    def undo(self, bucket: str, revision: int) -> dict[Place, Row | None]:
        """The row at `revision` of each key of the bucket that has changed since; None: it did not exist.

        Raises `Compacted`, `FutureRevision`.
        """
        events = self._newest_first(bucket, revision)
        self._continued[revision] = self._appended
        # Newest first, so that the oldest event of a key, which has the state at `revision`, wins.
        return {event.row.key[1:]: event.previous for event in events}

    def _newest_first(self, bucket: str, revision: int) -> list[Event]:
        if revision > self._revision:
            raise FutureRevision(f"revision {revision} is not written yet; the last is {self._revision}")
        if revision < (oldest := self.oldest(bucket)):
            raise Compacted(oldest)
        events = []
        for event in reversed(self._buckets.get(bucket, ())):
            if event.revision <= revision:
                break
            events.append(event)
        return events
