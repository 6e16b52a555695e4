"""Feed of all changes below the prefix, through one watch, resumed after an interruption.

The events of a transaction come together and in order of revision, so each group is one committed write.
etcd's progress notifications do not advance the feed: members before 3.4.25 and 3.5.8 can send a notification
before its events (etcd issue 15220). If others write to the same etcd, a revision that a caller waits for may
have no event below our prefix; then the store writes a key, a *tick*, whose event covers the revision.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any

from certwright.kube.store.contract import (
    Compacted,
    Damaged,
    DamagedRow,
    Event,
    Follower,
    Key,
    Row,
    StoreError,
    Unavailable,
)
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import (
    EVENT_DELETE,
    MOST_OPERATIONS,
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    WatchCreateRequest,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.row_format import follow_format
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.fanout import Fanout

_log = logging.getLogger(__name__)

_STUCK_AFTER_S = 3.0
_REST_S = 20e-3
"""Pause between batches while nobody waits for events: fifteen together cost half as much as one by one."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_MOST_ROWS = MOST_OPERATIONS // 2
"""Rows of one transaction: two reads each."""


class Feed:
    """Publishes committed writes to `fanout`, from its log's revision on, and to followers first."""

    def __init__(self, client: EtcdClient, layout: Layout, fanout: Fanout) -> None:
        self._client = client
        self._layout = layout
        self._fanout = fanout
        self._followers: list[Follower] = []
        self._sought: dict[bytes, int] = {}
        self._unreadable = set[Key]()  # rows that were left out because they cannot be read
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._requested = asyncio.Event()
        self._stream: asyncio.Task[None] | None = None
        self._ticking: asyncio.Task[Any] | None = None
        self._runs = asyncio.create_task(self._run(), name="etcd feed")
        self.lost: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        client.on_lost = self._lose

    @property
    def revision(self) -> int:
        """Everything up to here has been published."""
        return self._fanout.log.revision

    def follow(self, follower: Follower) -> None:
        """Pass it every event from now on."""
        self._followers.append(follower)

    @contextmanager
    def seeking(self, writer: bytes) -> Iterator[None]:
        """Record the revision at which the write of that name is seen."""
        self._sought[writer] = 0
        try:
            yield
        finally:
            del self._sought[writer]

    async def find(self, writer: bytes, revision: int) -> int:
        """The revision of a write that is sought, 0 if it was not among those up to `revision`."""
        await self.reach(revision)
        return self._sought[writer]

    # --- waiting ------------------------------------------------------------------------------------------

    async def reach(self, revision: int) -> None:
        """Return when everything up to `revision`, which etcd has, is published. Raises `Unavailable`."""
        if revision <= self.revision:
            return
        loop = asyncio.get_running_loop()
        reached = loop.create_future()
        self.hurry()
        heapq.heappush(self._waiting, (revision, next(self._count), reached))
        access = self._client.access
        timer = loop.call_later(access.tick_after_s, self._nudge, reached, loop.time() + access.patience_s)
        try:
            await reached
        finally:
            timer.cancel()

    def hurry(self) -> None:
        """End the rest between batches: somebody waits for events."""
        self._requested.set()

    def _nudge(self, reached: asyncio.Future[None], give_up: float, *, stuck: bool = False) -> None:
        """Do something about a revision that is not reached in time."""
        if reached.done():
            return
        loop, access = asyncio.get_running_loop(), self._client.access
        if loop.time() > give_up:
            reached.set_exception(Unavailable(f"etcd at {access} does not report what was written"))
            return
        loop.call_later(_STUCK_AFTER_S, partial(self._nudge, reached, give_up, stuck=True))
        if stuck and self._stream is not None:
            _log.warning("the watch of etcd is silent and is restarted")
            self._stream.cancel()
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        try:
            await self._client.call(TXN, TxnRequest(success=[put_op(self._layout.tick, b"")]))
        except StoreError as error:
            _log.warning("%s", error)

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.revision:
            _, _, reached = heapq.heappop(self._waiting)
            if not reached.done():
                reached.set_result(None)

    # --- the stream ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            before = self.revision
            self._stream = asyncio.create_task(self._follow_stream())
            try:
                await asyncio.wait({self._stream})
            except asyncio.CancelledError:
                self._stream.cancel()
                raise
            if not self._stream.cancelled() and (error := self._stream.exception()) is not None:
                self._report(error)
            pause = _FIRST_PAUSE_S if self.revision > before else min(2 * pause, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    def _lose(self, error: StoreError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    def _report(self, error: BaseException) -> None:
        if isinstance(error, Damaged):
            self._lose(error)
        elif not isinstance(error, StoreError):
            _log.error("the watch of etcd failed", exc_info=error)
        else:
            _log.warning("%s", error)

    async def _follow_stream(self) -> None:
        span = self._layout.root
        create = WatchCreateRequest(
            key=span.begin,
            range_end=span.end,
            start_revision=self.revision + 1,
            fragment=True,
        )
        parts: list[Any] = []
        async with aclosing(self._client.watch(create)) as batches:
            async for answers in batches:
                for answer in answers:
                    if answer.canceled:
                        await self._canceled(answer)
                        return
                    parts += answer.events
                if parts and not answers[-1].fragment:
                    unknown = self._find_unknown(parts)
                    past = await read_before(self._client, self._layout, unknown) if unknown else {}
                    self._take(parts, past)
                    parts = []
                if not (self._waiting or self._fanout.is_watched):
                    await self._rest()

    async def _rest(self) -> None:
        """Let events gather until somebody asks for one, for `_REST_S` at most."""
        self._requested.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REST_S):
                await self._requested.wait()

    async def _canceled(self, answer: Any) -> None:
        if not answer.compact_revision:
            raise Unavailable(f"etcd at {self._client.access} ended the watch ({answer.cancel_reason})")
        # The events since the last one received are lost. Watchers start over, and so must followers.
        now = await self._client.call(RANGE, RangeRequest(key=self._layout.format))
        self._fanout.interrupt(now.header.revision)
        self._unreadable.clear()
        self._wake()
        self._lose(
            Unavailable(
                f"etcd at {self._client.access} was compacted up to revision {answer.compact_revision}"
                " while it could not be reached, so changes were missed"
            )
        )

    def _find_unknown(self, parts: Iterable[Any]) -> dict[Key, int]:
        """The keys whose previous row is not in memory, and the revision of the first event of each."""
        unknown, seen, layout = dict[Key, int](), set[bytes](), self._layout
        for part in parts:
            kv = part.kv
            if not kv.key.startswith(layout.meta) or kv.mod_revision <= self.revision or kv.key in seen:
                continue
            seen.add(kv.key)
            if part.type == EVENT_DELETE or kv.version > 1:
                key = layout.key_of(kv.key)
                if key not in self._unreadable and self._fanout.log.row(key) is None:
                    unknown[key] = kv.mod_revision
        return unknown

    def _take(self, parts: Iterable[Any], past: Mapping[Key, Row | None]) -> None:
        """Publish the writes that these events are. `past`: see `read_before`."""
        self._unreadable.update(key for key, row in past.items() if row is None)
        events, latest = list[Event](), dict[Key, Event]()
        revision, complete = 0, True
        for revision, group in itertools.groupby(parts, attrgetter("kv.mod_revision")):
            if revision <= self.revision:
                continue
            event, known = self._read(revision, list(group), latest, past)
            complete = complete and known
            if event is not None:
                events.append(event)
                latest[event.row.key] = event
        if events:
            for follower in self._followers:
                follower(events)
            self._fanout.publish(events)
            self._layout.damage.forget(events)
        self._fanout.advance(revision)
        if not complete:
            self._fanout.interrupt(self.revision)
        self._wake()

    def _read(
        self,
        revision: int,
        group: list[Any],
        before: Mapping[Key, Event],
        past: Mapping[Key, Row | None],
    ) -> tuple[Event | None, bool]:
        """The write in a group of etcd's events, None without a row; and whether its previous row is known.
        `before`: the last unpublished event of each key."""
        layout = self._layout
        meta = body = last = None
        for part in group:
            key = part.kv.key
            if key.startswith(layout.meta):
                meta = part
            elif key.startswith(layout.body):
                body = part
            elif key == layout.last:
                last = part
            elif key == layout.ring:
                self._turn(part)
            elif key == layout.format and (loss := follow_format(layout, group, part)):
                self._client.lose(loss)
                raise self._client.lost or Unavailable("")
        if meta is None:
            return None, True
        key = layout.key_of(meta.kv.key)
        # Watchers never received a row that cannot be read, or not in its last state.
        known = key not in self._unreadable
        self._unreadable.discard(key)
        is_new = meta.type != EVENT_DELETE and meta.kv.version == 1
        previous = self._previous(key, before, past) if known and not is_new else None
        complete = previous is not None or is_new or not known
        if meta.type == EVENT_DELETE:
            return self._deletion(meta, last, previous), complete
        try:
            writer, row = layout.written(meta.kv, b"" if body is None else body.kv.value)
        except DamagedRow as error:
            layout.damage.note(error)
            self._unreadable.add(key)
            return None, True
        self._note(writer, revision)
        return Event(revision, row, previous), complete

    def _previous(self, key: Key, before: Mapping[Key, Event], past: Mapping[Key, Row | None]) -> Row | None:
        """The row of a key before this event; None if a compaction dropped it before it could be read."""
        last = before.get(key) or self._fanout.log.last(key)
        return past.get(key) if last is None or last.deleted else last.row

    def _turn(self, ring: Any) -> None:
        """A server, perhaps this one, has changed the data keys."""
        seal = self._layout.seal
        if seal is None:
            raise Damaged("another server encrypts the rows: start this one with the same key file")
        before = seal.warning
        if ring.type == EVENT_DELETE:
            seal.clear()
        elif ring.kv.mod_revision > seal.version:
            seal.adopt(ring.kv.value, version=ring.kv.mod_revision)
        if seal.warning and seal.warning != before:
            _log.warning("%s", seal.warning)

    def _deletion(self, meta: Any, last: Any, previous: Row | None) -> Event | None:
        revision = meta.kv.mod_revision
        if last is None:
            row = previous and previous._replace(revision=revision)
        else:
            words = self._layout.read_last(last.kv, meta.kv.key)
            self._note(words.writer, revision)
            row = words.row(revision, previous.body if previous is not None else b"")
        return None if row is None else Event(revision, row, previous, deleted=True)

    def _note(self, writer: bytes, revision: int) -> None:
        if writer in self._sought:
            self._sought[writer] = revision

    async def close(self) -> None:
        """Stop following."""
        tasks = [task for task in (self._runs, self._stream, self._ticking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_before(
    client: EtcdClient, layout: Layout, revisions: Mapping[Key, int]
) -> dict[Key, Row | None]:
    """The rows that keys had just before a revision each. None: it cannot be read. A row that was compacted
    is left out. Raises `Unavailable`.

    etcd's watch can send them with the events (`prev_kv`), and looks them up for each of its watches: for
    three servers that is more processor time of etcd than the write itself takes. Nearly always the row is in
    memory.
    """
    rows, pairs = dict[Key, Row | None](), list(revisions.items())
    for begin in range(0, len(pairs), _MOST_ROWS):
        some = pairs[begin : begin + _MOST_ROWS]
        reads = [read_op(part, revision=revision - 1) for key, revision in some for part in layout.keys(key)]
        try:
            responses = (await client.call(TXN, TxnRequest(success=reads))).responses
        except Compacted:
            continue
        for at, (key, _) in enumerate(some):
            metas, bodies = (response.response_range.kvs for response in responses[2 * at : 2 * at + 2])
            if metas:
                try:
                    rows[key] = layout.row(metas[0], bodies[0].value if bodies else b"")
                except DamagedRow:
                    rows[key] = None
    return rows
