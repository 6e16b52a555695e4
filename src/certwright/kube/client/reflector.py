"""Reflector: the list-and-watch loop of an informer, as a state machine without I/O.

`follow` is a generator. It yields the next step, and is sent the result; `kube/client/informer.py` performs
the steps, tests answer them from a script.

    yielded               sent back
    ListPage              RawPage, or the exception that was raised
    Load, Apply, Prune    None
    ComparePage           Compared, or the exception that was raised
    OpenWatch             None (a watch is a request made by its first read)
    ReadWatch             a list of RawEvent; None when the watch has ended; or the exception
    Pause                 None

Its rules, each against a known cause of stale caches:
- A watch starts at the revision of the list, and resumes from the last event *or bookmark*, not from the
  highest object that was seen.
- 410 (Expired), as a response or as an event in the middle: list again, and drop what the new list lacks.
- A watch that ends is normal: open it again. One that ended soon and brought nothing: after a pause, so that
  a server which closes every watch immediately does not get a thousand requests a second.
- A server that cannot be reached or fails (5xx, 429): pause, doubling up to 30 s, then resume; after the
  third failure in a row list again, because the cause may be a revision that a restored server has never had.
- A watch that misses events (a proxy that loses lines, a fault of the server) looks like any other. So when
  one has ended normally, but at most every five minutes, the cache is compared with the server, by name and
  resourceVersion; if something was missed: list again. Every watch is requested to end after some minutes, so
  that nothing stays wrong for longer than that.
- A list that is older than what was seen: the server's history has gone back; everything is stored as listed.

Source: Kubernetes API concepts, "Efficient detection of changes", "410 Gone responses", "Watch bookmarks".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import timedelta

import msgspec

from certwright.kube.api.errors import ApiError, Expired, TooManyRequests, Unreachable
from certwright.kube.client.cache import parse_revision
from certwright.kube.client.listing import PAGE, RawPage, next_limit
from certwright.kube.client.watch import BOOKMARK, RawEvent
from certwright.kube.util.durations import doubled

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)

# A watch that ended later was a good watch, even without events.
_SOON_S = 30.0

# Less than the duration of a watch, so that each watch of full duration is followed by a comparison.
_COMPARE_EVERY_S = 300.0

# Failures in a row of a watch after which the revision itself is suspected.
_SUSPICIOUS = 3


class ListPage(msgspec.Struct, frozen=True):
    """Request the first page, or the one of `continue_token`; `limit` 0 is all at once."""

    continue_token: str
    limit: int


class Load(msgspec.Struct, frozen=True):
    """Store these listed objects; with `rewound` even if they look older than the cached ones."""

    items: list[msgspec.Raw]
    rewound: bool


class Prune(msgspec.Struct, frozen=True):
    """The list is complete: drop unlisted objects, unless newer than `revision` (0: all of them)."""

    revision: int


class ComparePage(msgspec.Struct, frozen=True):
    """As `ListPage`, but of metadata only: compare it with the cache. Changes after `revision` do not count
    as missed yet."""

    continue_token: str
    limit: int
    revision: int


class Compared(msgspec.Struct, frozen=True):
    """How many objects of a page (with the last one, of all) differ from the cache; `resource_version` is
    that of the list."""

    missed: int
    continue_token: str
    resource_version: str


class OpenWatch(msgspec.Struct, frozen=True):
    """Close the current watch, and open one from `resource_version`."""

    resource_version: str


class ReadWatch(msgspec.Struct, frozen=True):
    """Read the next events of the watch."""


class Apply(msgspec.Struct, frozen=True):
    """Apply these changes, in this order."""

    events: list[RawEvent]


class Pause(msgspec.Struct, frozen=True):
    """Wait; `because` is the failure, None if there was none."""

    delay: timedelta
    because: Exception | None


Step = ListPage | Load | Prune | ComparePage | OpenWatch | ReadWatch | Apply | Pause
Answer = RawPage | Compared | list[RawEvent] | Exception | None


class _Reflector:
    """The state of the reflector between its steps."""

    def __init__(
        self, now: Callable[[], float], jitter: Callable[[], float], page: int, first: int, *, compares: bool
    ) -> None:
        self._now = now
        self._compares = compares
        self._compared_at = now()
        self._compared = 0
        self._jitter = jitter
        self._page = page
        self._first = min(first, page)
        self._expired = 0
        self.failures = 0
        self.revision = ""
        self.highest = 0

    def pause(self, because: Exception | None) -> Pause:
        """The pause after one more failure: at least as long as the server requests."""
        self.failures += 1
        delay = doubled(FIRST_PAUSE, self.failures, cap=LONGEST_PAUSE) * (0.5 + 0.5 * self._jitter())
        asked = because.retry_after_s if isinstance(because, ApiError) else 0
        return Pause(max(delay, timedelta(seconds=asked)), because)

    def seen(self, resource_version: str) -> None:
        """Record the current revision."""
        if resource_version:
            self.revision = resource_version
            self.highest = max(self.highest, parse_revision(resource_version))

    def fetch(self) -> Generator[Step, Answer, None]:
        """Fetch the whole list, page by page, until that has succeeded."""
        limit = self._first
        while (error := (yield from self._fetch_once(limit))) is not None:
            # A list in pages that takes longer than the server keeps the revision would never end.
            limit = 0 if isinstance(error, Expired) else self._first
            yield self.pause(error)

    def _fetch_once(self, limit: int) -> Generator[Step, Answer, Exception | None]:
        token = ""
        while True:
            page = yield ListPage(token, limit)
            if not isinstance(page, RawPage):
                assert isinstance(page, Exception)
                return page
            revision = parse_revision(page.resource_version)
            rewound = revision < self.highest
            yield Load(page.items, rewound)
            token, limit = page.continue_token, next_limit(limit, page.size, self._page)
            if not token:
                break
        yield Prune(0 if rewound else revision)
        self.highest = self._compared = revision
        self.seen(page.resource_version)
        self._compared_at = self._now()
        return None

    def missed(self) -> Generator[Step, Answer, bool]:
        """Whether the cache misses something, if a comparison is due; a failed comparison counts as no."""
        if self._now() - self._compared_at < _COMPARE_EVERY_S:
            return False
        if not self._compares:
            return True
        # A watch that was opened after the previous comparison had time to deliver all changes up to it.
        delivered = max(parse_revision(self.revision), self._compared)
        token, count = "", 0
        while True:
            page = yield ComparePage(token, self._page, delivered)
            if not isinstance(page, Compared):
                return False
            count += page.missed
            token = page.continue_token
            if not token:
                self._compared_at = self._now()
                self._compared = parse_revision(page.resource_version)
                return count > 0

    def watch(self) -> Generator[Step, Answer, Exception | None]:
        """Follow changes until the watch ends (None) or fails."""
        yield OpenWatch(self.revision)
        opened, nothing = self._now(), True
        while isinstance(events := (yield ReadWatch()), list):
            self.failures = self._expired = 0
            nothing = False
            yield from self._apply(events)
        assert not isinstance(events, RawPage | Compared)
        if events is None and nothing:
            if self._now() - opened < _SOON_S:
                yield self.pause(None)
            else:
                self.failures = 0
        return events

    def _apply(self, events: list[RawEvent]) -> Generator[Step, Answer, None]:
        changes = [event for event in events if event.type != BOOKMARK]
        if changes:
            yield Apply(changes)
        # Events come in the order of their revisions: the last one has the current revision. Only AFTER it
        # was applied, so that nothing is lost when the step fails.
        if events:
            self.seen(events[-1].who.resource_version)

    def expired_again(self) -> bool:
        """Count a 410; returns whether it is one of several in a row. The first 410 is normal after an
        outage, and shows that the server is back; a server that always returns 410 must not be flooded."""
        self.failures = self._expired
        self._expired += 1
        return self._expired > 1

    def must_list(self, error: Exception) -> bool:
        """Whether to list again after this failure of a watch."""
        if isinstance(error, Expired):
            return True
        passing = isinstance(error, Unreachable | TooManyRequests) or (
            isinstance(error, ApiError) and error.http_status >= 500
        )
        return not passing or (self.failures + 1 >= _SUSPICIOUS and not isinstance(error, Unreachable))


def follow(
    *,
    now: Callable[[], float],
    jitter: Callable[[], float],
    page: int = PAGE,
    first: int = PAGE,
    compares: bool = True,
) -> Generator[Step, Answer, None]:
    """The state machine; never returns.

    `now` is a monotonic clock in seconds; `jitter` returns numbers from 0 to 1 that spread the requests of
    informers; `page` is the maximum number of objects in a page, `first` that of the first page, while their
    size is unknown. Without `compares` it lists again instead of comparing, for informers that list only
    metadata anyway.
    """
    reflector = _Reflector(now, jitter, page, first, compares=compares)
    while True:
        yield from reflector.fetch()
        relists = False
        while not relists:
            error = yield from reflector.watch()
            if error is None:
                relists = yield from reflector.missed()
                continue
            relists = reflector.must_list(error)
            if not isinstance(error, Expired) or reflector.expired_again():
                yield reflector.pause(error)
