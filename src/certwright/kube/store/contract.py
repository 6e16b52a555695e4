"""What a store promises, whoever keeps the bytes.

Words:
- A *key* is a bucket (one per resource), a namespace (may be empty) and a name.
- A *row* is what lies under a key: two byte strings, `meta` and `body`, which the store never reads, and
  the *revision* of its last change. Readers that only want metadata never touch the body.
- A *revision* is a positive integer; each write takes the next one, across all buckets, without gaps that a
  watcher could mistake for a missed event. Revisions only grow, also across restarts.
- *Committed* is what survives `kill -9` and loss of power (the in-memory store: what will be seen by all).

A store MUST acknowledge a write only after it is committed. It MUST decide conflicts over a key in the
order in which `put` and `delete` were called, MUST deliver events in order of revision, each exactly once,
and only those of committed writes. It SHOULD commit writes that are under way at the same time together.
Other processes may write to the same rows (`Shared`); then each sees what the others have committed.
All methods are called on one event loop; every coroutine here may be cancelled, and a cancelled write may or
may not have happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable


class Key(NamedTuple):
    """Where a row lies. Orders by bucket, then namespace, then name, as a list does."""

    bucket: str
    namespace: str
    name: str


class Row(NamedTuple):
    """What lies under a key, at one revision."""

    key: Key
    revision: int
    meta: bytes
    body: bytes


class Event(NamedTuple):
    """One committed change. `row` is the new content (for a deletion: the last one, at the deletion's
    revision); `previous` is what it replaced, None for a creation."""

    revision: int
    row: Row
    previous: Row | None
    deleted: bool = False


Encode = Callable[[int], tuple[bytes, bytes]]
"""Given the revision that the write has got, the `meta` and `body` to keep. Called at once, at most once,
by `put` and `delete`; when it raises, the write has not happened.

A store that learns the revision only when the write is committed gives a stand-in, and puts the revision in
the place of its decimal digits in `meta`. So an encoder writes the revision in decimal digits, in `meta`
only, and reads nothing from it; what it returned is not what was stored, the row that `put` returns is."""


Choice = Callable[[Row], bool]
"""Whether a row is wanted, by its key and its `meta`; its body may be missing."""


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a list. `revision` is the one that the whole list is of; `last` the last place that was
    looked at; `more` whether there is more to look at after it, wanted or not; `remaining` how many rows
    follow, where that was asked for and they are not too many to be counted; `damaged` the rows that were
    left out because they cannot be read."""

    rows: list[Row]
    revision: int
    more: bool = False
    remaining: int | None = None
    last: tuple[str, str] | None = None
    damaged: tuple[Key, ...] = ()

    def only(self, rows: list[Row], limit: int | None = None) -> Page:
        """This page with only these of its rows, so many at most: it ends where they do."""
        if limit is None or len(rows) < limit:
            return Page(rows, self.revision, self.more, None, self.last, self.damaged)
        last = rows[limit - 1].key[1:]
        more = self.more or last != self.last
        return Page(rows[:limit], self.revision, more, None, last, self.damaged)


class StoreError(Exception):
    """The base of what a store raises."""


class Exists(StoreError):
    """A row that must not exist does; `current` is it."""

    def __init__(self, current: Row) -> None:
        super().__init__(f"{current.key} exists at revision {current.revision}")
        self.current = current


class Missing(StoreError):
    """A row that must exist does not."""


class Changed(StoreError):
    """The row is at another revision than expected; `current` is it."""

    def __init__(self, current: Row) -> None:
        super().__init__(f"{current.key} is at revision {current.revision}")
        self.current = current


class Compacted(StoreError):
    """The revision asked for is older than what the store still knows; `oldest` is the first it can serve."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"the oldest revision kept is {oldest}")
        self.oldest = oldest


class FutureRevision(StoreError):
    """The revision asked for has not been written yet."""


class SlowWatcher(StoreError):
    """The watcher did not take its events in time and was cut off, so that it cannot fill the memory."""


class Unavailable(StoreError):
    """The write could not be made durable (disk full, I/O error, no connection). The text is one sentence
    for an operator. Reads may still work; later writes may succeed once the cause is gone."""


class Lost(Unavailable):
    """The store was deleted, emptied or replaced while it was open. Neither reads nor writes are served until
    a restart, which checks what is there."""


class TooLarge(StoreError):
    """The row is larger than the store takes. The text is one sentence that names the limit."""


class Damaged(StoreError):
    """What is on disk is not a store, or not a whole one. The text names the file and what to do."""


class DamagedRow(Damaged):
    """One row cannot be read, because its bytes were changed; all others can. The text names it and the way
    out."""

    def __init__(self, key: Key, problem: str) -> None:
        where = f"{key.namespace}/{key.name}" if key.namespace else key.name
        super().__init__(
            f"the stored row {where} of {key.bucket} cannot be read ({problem}): restore a backup, or delete"
            " this object by name as a member of system:masters"
        )
        self.key = key


class Watch(Protocol):
    """The events of one bucket after some revision.

    Iterate with `async for batch in watch` over lists of events (never empty); it ends with `SlowWatcher`
    raised when it was too slow, and stops when the store or the watch is closed.
    """

    @property
    def position(self) -> int:
        """Everything up to this revision has been handed out or did not concern this watch."""

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        """The batches."""

    async def next(self, timeout_s: float | None = None) -> list[Event] | None:
        """The next batch, `[]` when the time ran out first, None when the watch is closed."""

    def hand_to(self, taker: Callable[[list[Event]], bool]) -> None:
        """Give batches to `taker` at once, as they are told, while somebody waits in `next`. It says whether
        it has taken the batch; one that it has not is what `next` returns. What a lone write brings SHOULD be
        handed over before its `put` or `delete` returns."""

    def end(self) -> None:
        """Hand out what is waiting, and then stop; harmless when repeated."""

    def close(self) -> None:
        """Stop; harmless when repeated."""


class Damages(Protocol):
    """Rows that cannot be read, as far as they were met."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[DamagedRow]: ...

    def of(self, bucket: str, namespace: str | None) -> Sequence[DamagedRow]:
        """Those that a list of a bucket, or of one namespace of it, leaves out."""


class Store(Protocol):
    """See the module's text for what all of this promises."""

    @property
    def revision(self) -> int:
        """The last committed revision; 0 in a new store."""

    @property
    def trouble(self) -> str:
        """Why the last attempt to reach the disk or server below has failed; empty once one has succeeded."""

    async def up_to(self, revision: int) -> int:
        """`Store.revision`, once it has reached `revision`: that may have been committed through another
        process. At once, and less, where nobody has written it yet."""

    async def get(self, key: Key) -> Row | None:
        """The committed row. Raises `DamagedRow`."""

    async def latest(self, key: Key) -> Row | None:
        """The row as the next write will find it: committed, or written and still being committed.

        For read-modify-write only; showing it to a client would show what a crash may yet undo.
        """

    def at_hand(self, key: Key) -> Row | None:
        """The committed row, if the store has it in memory: None where there is none, and also where it would
        have to be read. It may be None at any time."""

    async def settled(self, key: Key) -> None:
        """Return when what `latest` shows of the row is committed, so that a refusal may rest on it: who is
        told of a conflict must not read the row of before. Raises `Unavailable` when it is not committed."""

    async def list(
        self,
        bucket: str,
        namespace: str | None = None,
        *,
        limit: int | None = None,
        after: tuple[str, str] | None = None,
        revision: int | None = None,
        meta_only: bool = False,
        max_bytes: int | None = None,
        keep: Choice | None = None,
        counted: bool = False,
    ) -> Page:
        """Committed rows of a bucket in order of (namespace, name), all of one revision.

        `namespace` None means all. `after` is the (namespace, name) where the page before has ended, and
        `revision` that page's: the list goes on as it was then, whatever was written since. With `meta_only`
        the rows' bodies are empty and are not read. A page ends early, with `more`, once its rows hold
        `max_bytes`; its last row may exceed them. With `keep` there are
        only rows that it accepts; of others the bodies need not be read. Such a page may end anywhere, even
        empty, and goes on after its `last`. `counted` (not together with `keep`) asks for `remaining`. Raises
        `Compacted` when `revision` is too old, and `FutureRevision`. Rows that cannot be read are left out,
        and named in `damaged`.
        """

    async def count(self, bucket: str, namespace: str | None = None) -> int:
        """How many rows there are."""

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        """Write a row and return it once it is committed.

        `expect` 0: it must not exist (`Exists`). A revision: it must be at that one (`Changed`, `Missing`).
        None: whatever is there is replaced. Raises `Unavailable` when it could not be committed, or when
        that could not be learned, and `TooLarge`.
        """

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        """Remove a row and return what watchers see of it last: `encode`'s bytes at the deletion's revision,
        or the row's own. Raises `Missing`, `Changed`, `Unavailable`."""

    async def discard(self, key: Key, encode: Encode) -> Row:
        """Remove a row that cannot be read, and return what watchers see of it last: `encode`'s bytes. Raises
        `Missing`, `Changed` where it can be read, `Unavailable`."""

    @property
    def damage(self) -> Damages:
        """The damaged rows that were met."""

    async def check(self) -> None:
        """Return if the store takes writes, as far as is known; a failure before is looked into. Raises
        `Unavailable`."""

    def watch(self, bucket: str, *, after: int, namespace: str | None = None) -> Watch:
        """Every event of the bucket with a revision over `after`. Raises `Compacted`, `FutureRevision`."""

    async def close(self) -> None:
        """Finish what is being committed, end all watches, let go of files."""


Follower = Callable[[list[Event]], None]
"""Is told of committed writes, on the loop."""


@runtime_checkable
class Shared(Protocol):
    """A store that other processes write to as well. What is kept in memory beside it is kept true by
    following it, not by noting one's own writes."""

    def follow(self, follower: Follower) -> None:
        """From now on hand every event of every bucket to `follower`, in order and exactly once: before the
        `put` or `delete` that caused it returns, and before watchers are told."""

    async def wait_lost(self) -> StoreError:
        """Return, with the reason, when events were lost for good: whoever follows must begin anew."""
