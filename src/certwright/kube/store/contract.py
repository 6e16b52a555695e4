"""The store contract: what every backend guarantees.

Terms:
- A *key* is a bucket (one per resource), a namespace (may be empty) and a name.
- A *row* is the value of a key: two byte strings, `meta` and `body`, which the store never parses, and the
  *revision* of its last change. Readers that only want metadata never touch the body.
- A *revision* is a positive integer; each write takes the next one, across all buckets, without gaps that a
  watcher could mistake for a missed event. Revisions only grow, also across restarts.
- *Committed* is what survives `kill -9` and loss of power (the in-memory store: what will be seen by all).

A store MUST acknowledge a write only after it is committed. It MUST decide conflicts over a key in the order
in which `put` and `delete` were called, MUST deliver events in order of revision, each exactly once, and only
those of committed writes. It SHOULD commit concurrent writes together (group commit). Other processes may
write to the same rows (`Shared`); then each sees what the others have committed. All methods are called on
one event loop; every coroutine here may be cancelled, and a cancelled write may or may not have happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypedDict, Unpack, runtime_checkable


class Key(NamedTuple):
    """The key of a row. Orders by bucket, then namespace, then name, as a list does."""

    bucket: str
    namespace: str
    name: str


class Row(NamedTuple):
    """The value of a key, at one revision."""

    key: Key
    revision: int
    meta: bytes
    body: bytes


class Event(NamedTuple):
    """One committed change. `row`: the new content (for a deletion: the last content, at the deletion's
    revision); `previous`: the row before, None for a creation."""

    revision: int
    row: Row
    previous: Row | None
    deleted: bool = False


Encode = Callable[[int], tuple[bytes, bytes]]
"""Encoder: returns the `meta` and `body` to store, given the revision of the write. `put` and `delete` call
it synchronously, at most once; when it raises, the write has not happened.

A store that learns the revision only at the commit passes a placeholder, and replaces its decimal digits in
`meta` by the revision. So an encoder writes the revision in decimal digits, in `meta` only, and reads nothing
from it. What it returned is not what was stored; the row that `put` returns is.
"""


Choice = Callable[[Row], bool]
"""Predicate on a row's key and `meta`; its body may be missing."""


class ListOptions(TypedDict, total=False):
    """The options of `Store.list`."""

    limit: int | None
    after: tuple[str, str] | None
    revision: int | None
    meta_only: bool
    max_bytes: int | None
    keep: Choice | None
    counted: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list. `revision` is the revision of the whole list; `last` the last place that was read;
    `more` whether more rows follow it, wanted or not; `remaining` how many rows follow, where that was
    requested and they are not too many to be counted; `damaged` the rows that were left out because they
    cannot be read."""

    rows: list[Row]
    revision: int
    more: bool = False
    remaining: int | None = None
    last: tuple[str, str] | None = None
    damaged: tuple[Key, ...] = ()

    def only(self, rows: list[Row], limit: int | None = None) -> Page:
        """This page with only these of its rows, at most `limit`: it ends where they do."""
        if limit is None or len(rows) < limit:
            return Page(rows, self.revision, self.more, None, self.last, self.damaged)
        last = rows[limit - 1].key[1:]
        more = self.more or last != self.last
        return Page(rows[:limit], self.revision, more, None, last, self.damaged)


class StoreError(Exception):
    """Base class of store errors."""


class Exists(StoreError):
    """A row that must not exist does; `current` is that row."""

    def __init__(self, current: Row) -> None:
        super().__init__(f"{current.key} exists at revision {current.revision}")
        self.current = current


class Missing(StoreError):
    """A row that must exist does not."""


class Changed(StoreError):
    """The row is at another revision than expected; `current` is that row."""

    def __init__(self, current: Row) -> None:
        super().__init__(f"{current.key} is at revision {current.revision}")
        self.current = current


class Compacted(StoreError):
    """The requested revision is older than the store's history; `oldest` is the first it can serve."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"the oldest revision kept is {oldest}")
        self.oldest = oldest


class FutureRevision(StoreError):
    """The requested revision has not been written yet."""


class SlowWatcher(StoreError):
    """The watcher did not take its events in time and was cut off, so that it cannot fill the memory."""


class Unavailable(StoreError):
    """The write could not be made durable (disk full, I/O error, no connection). The text is one sentence
    for an operator. Reads may still work; later writes may succeed once the cause is gone."""


class Full(Unavailable):
    """The store has reached its size limit. Reads work; so may what makes room."""


class Lost(Unavailable):
    """The store was deleted, emptied or replaced while it was open. Neither reads nor writes are served until
    a restart, which checks the store again."""


class TooLarge(StoreError):
    """The row exceeds the store's size limit. The text is one sentence that names the limit."""


class Damaged(StoreError):
    """The data on disk is not a store, or an incomplete one. The text names the file and the remedy."""


class DamagedRow(Damaged):
    """One row cannot be read, because its bytes were changed; all others can. The text names the row and the
    remedy."""

    def __init__(self, key: Key, problem: str) -> None:
        where = f"{key.namespace}/{key.name}" if key.namespace else key.name
        super().__init__(
            f"the stored row {where} of {key.bucket} cannot be read ({problem}): restore a backup, or delete"
            " this object by name as a member of system:masters"
        )
        self.key = key


class Watch(Protocol):
    """The events of one bucket after some revision.

    Iterate with `async for batch in watch` over lists of events (never empty). It raises `SlowWatcher` when
    the watcher was too slow, and stops when the store or the watch is closed.
    """

    @property
    def position(self) -> int:
        """Everything up to this revision has been delivered or did not concern this watch."""

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        """The batches."""

    async def next(self, timeout_s: float | None = None) -> list[Event] | None:
        """The next batch, `[]` on timeout, None when the watch is closed."""

    def deliver_to(self, taker: Callable[[list[Event]], bool]) -> None:
        """Pass batches to `taker` immediately when they are published, while a caller waits in `next`.
        `taker` returns whether it took the batch; `next` returns a batch that it did not take. The event of a
        lone write SHOULD be passed on before its `put` or `delete` returns."""

    def end(self) -> None:
        """Deliver the pending events, and then stop; harmless when repeated."""

    def close(self) -> None:
        """Stop; harmless when repeated."""


class Damages(Protocol):
    """The damaged rows that were met so far."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[DamagedRow]: ...

    def of(self, bucket: str, namespace: str | None) -> Sequence[DamagedRow]:
        """The damaged rows that a list of a bucket, or of one namespace of it, leaves out."""


class Store(Protocol):
    """A store; the module's docstring states its guarantees."""

    @property
    def revision(self) -> int:
        """The last committed revision; 0 in a new store."""

    @property
    def trouble(self) -> str:
        """Why the last attempt to reach the disk or the server failed; empty once one has succeeded."""

    async def up_to(self, revision: int) -> int:
        """`Store.revision`, once it has reached `revision`, which another process may have committed. Returns
        immediately, with a lower revision, if that revision does not exist yet."""

    async def get(self, key: Key) -> Row | None:
        """The committed row. Raises `DamagedRow`."""

    async def latest(self, key: Key) -> Row | None:
        """The row as the next write will find it: committed, or written and still being committed.

        For read-modify-write only; a client that saw it could see a write that a crash undoes.
        """

    def recent(self, key: Key) -> Row | None:
        """A committed row from memory, for a write on the condition of its revision. None: `latest` is as
        fast, no row is known, or a write of it is under way here. Another process may have written it since:
        a caller MUST NOT refuse or skip a write because of it, but read `latest` first."""

    async def settled(self, key: Key) -> None:
        """Return when the row that `latest` returns is committed, so that a refusal may rest on it: a client
        that gets a conflict must not read the earlier row afterwards. Raises `Unavailable` if the row is not
        committed."""

    async def list(self, bucket: str, namespace: str | None = None, **options: Unpack[ListOptions]) -> Page:
        """Committed rows of a bucket in order of (namespace, name), all of one revision.

        `namespace` None means all. `after` is the (namespace, name) where the previous page ended, and
        `revision` that page's: the list continues as of that revision, without later writes. With `meta_only`
        the rows' bodies are empty and are not read. A page ends early, with `more`, once its rows reach
        `max_bytes`; its last row may exceed them. With `keep` the page has only accepted rows; the bodies of
        others need not be read. Such a page may end anywhere, even empty, and continues after its `last`.
        `counted` (not together with `keep`) requests `remaining`. Raises `Compacted` if `revision` is too
        old, and `FutureRevision`. Unreadable rows are left out, and named in `damaged`.
        """

    async def count(self, bucket: str, namespace: str | None = None) -> int:
        """The number of rows."""

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        """Write a row and return it once it is committed.

        `expect` 0: the row must not exist (`Exists`). A revision: the row must be at that revision
        (`Changed`, `Missing`). None: any existing row is replaced. Raises `Unavailable` if it could not be
        committed, or if the outcome is unknown, and `TooLarge`.
        """

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        """Remove a row and return its last state for watchers: `encode`'s bytes at the deletion's revision,
        or the row's own. Raises `Missing`, `Changed`, `Unavailable`."""

    async def discard(self, key: Key, encode: Encode) -> Row:
        """Remove a row that cannot be read, and return its last state for watchers: `encode`'s bytes. Raises
        `Missing`, `Changed` where it can be read, `Unavailable`."""

    @property
    def damage(self) -> Damages:
        """The damaged rows that were met."""

    async def check(self) -> None:
        """Return if the store takes writes, as far as is known; after a failure the store is probed. Raises
        `Unavailable`."""

    def watch(self, bucket: str, *, after: int, namespace: str | None = None) -> Watch:
        """Every event of the bucket with a revision over `after`. Raises `Compacted`, `FutureRevision`."""

    async def close(self) -> None:
        """Finish the commit under way, end all watches, close files."""


class Usage(NamedTuple):
    """The size of a store's database, the part of it that is in use, and the size at which writes are
    refused, all in bytes. `warning`: one sentence for an operator; empty while there is room."""

    size: int
    in_use: int
    quota: int
    warning: str


@runtime_checkable
class Limited(Protocol):
    """A store whose database has a limited size."""

    @property
    def usage(self) -> Usage | None:
        """The last measurement; None before the first."""


Follower = Callable[[list[Event]], None]
"""Callback for committed writes, on the loop."""


@runtime_checkable
class Shared(Protocol):
    """A store that other processes write to as well. In-memory state beside it is kept up to date by
    following the store, not by noting one's own writes."""

    def follow(self, follower: Follower) -> None:
        """From now on pass every event of every bucket to `follower`, in order and exactly once: before the
        `put` or `delete` that caused it returns, and before watchers are notified."""

    async def wait_lost(self) -> StoreError:
        """Return, with the reason, when events were lost for good: followers must start over."""


def check_put(current: Row | None, expect: int | None) -> None:
    """Raise `Exists`, `Missing` or `Changed` as `Store.put` must."""
    if expect is None:
        return
    if current is None:
        if expect != 0:
            raise Missing(f"the key does not exist; revision {expect} was expected")
    elif expect == 0:
        raise Exists(current)
    elif current.revision != expect:
        raise Changed(current)


def check_delete(current: Row | None, expect: int | None) -> Row:
    """The row that `Store.delete` may remove. Raises `Missing` or `Changed` as it must."""
    if current is None:
        raise Missing("the key does not exist")
    if expect is not None and current.revision != expect:
        raise Changed(current)
    return current


def tombstone(current: Row, revision: int, encode: Encode | None) -> Row:
    """The last state, for watchers, of a row that is deleted at `revision`."""
    if encode is None:
        return current._replace(revision=revision)
    return Row(current.key, revision, *encode(revision))
