"""List, watch, list again: how a local copy follows the server, as a machine without I/O.

`follow` is a generator. It yields what is to be done next, and is sent the result; `kube/client/informer.py`
performs the steps, tests answer them from a script.

    yielded               sent back
    ListPage              RawPage, or the exception that was raised
    Load, Apply, Prune    None
    ComparePage           Compared, or the exception that was raised
    OpenWatch             None (a watch is a request made by its first read)
    ReadWatch             a list of RawEvent; None when the watch has ended; or the exception
    Pause                 None

Its rules, each the answer to a way in which copies went stale elsewhere:
- A watch starts at the revision of the list, and goes on from the last event *or bookmark*, not from the
  highest object that was seen.
- 410 (Expired), as an answer or as an event in the middle: list again, and drop what the new list lacks.
- A watch that ends is normal: open it again. One that ended soon and brought nothing: after a pause, so that
  a server which closes every watch at once is not asked a thousand times a second.
- A server that cannot be reached or fails (5xx, 429): pause, doubling up to 30 s, then go on where it was;
  after the third failure in a row list again, since a revision that a restored server has never had may be
  the reason.
- A watch that brings less than has happened (a proxy that loses lines, a fault of the server) looks like any
  other. So when one has ended in good order, but at most every five minutes, what is held is compared with
  what is there, by name and resourceVersion; where something was missed: list again. Every watch is asked to
  end after some minutes, so that nothing stays wrong for longer than that.
- A list that is older than what was seen: the server's history has gone back; everything is taken as listed.

Source: Kubernetes API concepts, "Efficient detection of changes", "410 Gone responses", "Watch bookmarks".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from certwright.kube.api.errors import ApiError, Expired, TooManyRequests, Unreachable
from certwright.kube.client.cache import parse_revision
from certwright.kube.client.listing import PAGE, RawPage
from certwright.kube.client.watch import BOOKMARK, RawEvent
from certwright.kube.util.backoff import doubled

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)

# A watch that ended later than this was a good one, even if it had nothing to tell.
_SOON_S = 30.0

# Less than a watch is asked to last: each that does so is followed by a comparison.
_COMPARE_EVERY_S = 300.0

# So large an answer to a list shall be: it and its objects are held at the same time.
_PAGE_BYTES = 2_000_000

# Failures in a row of a watch after which the revision itself is suspected.
_SUSPICIOUS = 3


@dataclass(frozen=True, slots=True)
class ListPage:
    """Ask for the first page, or the one that `continue_token` stands for; `limit` 0 is all at once."""

    continue_token: str
    limit: int


@dataclass(frozen=True, slots=True)
class Load:
    """Take in these listed objects; with `rewound` even if they look older than what is held."""

    items: list[msgspec.Raw]
    rewound: bool


@dataclass(frozen=True, slots=True)
class Prune:
    """The list is complete: drop what was not in it, unless newer than `revision` (0: whatever it is)."""

    revision: int


@dataclass(frozen=True, slots=True)
class ComparePage:
    """As `ListPage`, but of metadata only: compare it with what is held. What has changed after `revision`
    is not missed yet."""

    continue_token: str
    limit: int
    revision: int


@dataclass(frozen=True, slots=True)
class Compared:
    """How many objects of a page (with the last one, of all) are not held as they are; `resource_version` is
    that of the list."""

    missed: int
    continue_token: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Leave the watch there was, and open one from `resource_version`."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class ReadWatch:
    """Read the next events of the watch."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Take in these changes, in this order."""

    events: list[RawEvent]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait; `because` is what failed, None where nothing did."""

    delay: timedelta
    because: Exception | None


Step = ListPage | Load | Prune | ComparePage | OpenWatch | ReadWatch | Apply | Pause
Answer = RawPage | Compared | list[RawEvent] | Exception | None


class _Reflector:
    """What the machine remembers between its steps."""

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
        """How long to wait after one more failure: at least as long as the server asks for."""
        self.failures += 1
        delay = doubled(FIRST_PAUSE, self.failures, cap=LONGEST_PAUSE) * (0.5 + 0.5 * self._jitter())
        asked = because.retry_after_s if isinstance(because, ApiError) else 0
        return Pause(max(delay, timedelta(seconds=asked)), because)

    def seen(self, resource_version: str) -> None:
        """Remember how far we are."""
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
            token, limit = page.continue_token, self._next_limit(limit, page.size)
            if not token:
                break
        yield Prune(0 if rewound else revision)
        self.highest = self._compared = revision
        self.seen(page.resource_version)
        self._compared_at = self._now()
        return None

    def _next_limit(self, limit: int, size: int) -> int:
        """How many objects to ask for after as many as `limit` were so large."""
        return limit and max(min(limit * _PAGE_BYTES // (size or 1), self._page), 1)

    def missed(self) -> Generator[Step, Answer, bool]:
        """Whether something was missed, where it is time to look; a comparison that fails says nothing."""
        if self._now() - self._compared_at < _COMPARE_EVERY_S:
            return False
        if not self._compares:
            return True
        # A watch that has begun after the comparison before this one had time to tell of all till then.
        told = max(parse_revision(self.revision), self._compared)
        token, count = "", 0
        while True:
            page = yield ComparePage(token, self._page, told)
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
        # Events come in the order of their revisions: the last one says how far we are. Only AFTER it was
        # applied, so that nothing is lost when the step fails.
        if events:
            self.seen(events[-1].who.resource_version)

    def expired_again(self) -> bool:
        """Count a 410; whether it is one of several in a row. The first is everyday business after an outage,
        and shows that the server is back; one that says it every time must not be hammered."""
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
    """The machine; never returns.

    `now` is a monotonic clock in seconds; `jitter` gives numbers from 0 to 1 that make copies ask at
    different times; `page` is how many objects are listed at once at most, `first` how many before it is
    known how large they are. Without `compares` it lists again instead of comparing: where metadata is all
    that is listed anyhow.
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
