"""Fan-out of commits to watchers: each gets the events of its bucket and namespace, exactly once.

`publish` appends events to the window and notifies the watchers before it returns, so that watch events are
sent before the writer gets its response. Watchers beyond the number that a writer should wait for are
notified in the next turns of the loop. A watcher that joins meanwhile reads the events from the window, and
skips repetitions.

Notifying a watcher costs about as much for one event as for ten. So after many notifications the next is
delayed a little, in proportion, and writes in that time are delivered together: a lone write is delivered
immediately, and a thousand writes a second to a hundred watchers do not fill the processor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from certwright.kube.store.contract import Event, SlowWatcher
from certwright.kube.store.log import EventLog, size_of

MAX_RETAINED_BYTES = 64 << 20
"""Bytes of events, over all buckets, that slow watchers together keep in memory."""
BATCH_BYTES = 256 << 10
"""Bytes of events in one batch for a watcher that has fallen behind, which makes a buffer of them."""
_PAUSE_PER_WATCHER_S = 40e-6
"""Pause between deliveries, after one event: notifying a watcher over TLS takes some 15 µs."""
_LOADED_PAUSE_PER_WATCHER_S = 80e-6
"""The same after several events: at this rate of writes the processor has other work."""
_MOST_PAUSE_S = 50e-3
_COARSE_S = 1e-3
"""Resolution of a loop's timers."""
_AT_ONCE = 128
"""Watchers notified in one turn of the loop; it takes about 2 ms."""

_Topic = tuple[str, str | None]
"""A bucket and a namespace, None for all of them."""


class Fanout:
    """The watchers of one store.

    A watcher whose oldest pending event was published before the last `max_retained_bytes` of events is cut
    off (`SlowWatcher`); that is checked eight times in as many bytes. Watchers share events, so all slow
    watchers together keep little more than those last bytes in memory.
    """

    def __init__(self, log: EventLog, *, max_retained_bytes: int = MAX_RETAINED_BYTES) -> None:
        self.log = log
        self.max_retained_bytes = max_retained_bytes
        self.published_bytes = 0
        """Bytes of all events so far: the age of a pending event is the bytes published since."""
        self._next_check = 0
        self.delivered = log.revision  # every watcher has all events up to here
        self._queue: list[Event] = []
        self._due: deque[tuple[Subscription, list[Event]]] = deque()
        self._delivering = 0  # what `delivered` will be when no watcher is due any more
        self._next: asyncio.Handle | None = None  # the turn in which delivery continues
        self._watches: dict[_Topic, set[Subscription]] = {}
        self._closed = False
        self._not_before = 0.0

    @property
    def is_watched(self) -> bool:
        """Whether there is any watcher."""
        return bool(self._watches)

    def publish(self, events: list[Event]) -> None:
        """Publish the events of one commit, in order of revision. Must be called on the event loop."""
        self.log.append(events)
        self._queue += events
        self.published_bytes += sum(map(size_of, events))
        if self.published_bytes >= self._next_check:
            self._next_check = self.published_bytes + self.max_retained_bytes // 8
            for watch in self._all_watches():
                since = watch.waiting_since
                if since is not None and since < self.published_bytes - self.max_retained_bytes:
                    watch.cut_off()
        if self._next is None:
            self._deliver_in_time()

    def _all_watches(self) -> list[Subscription]:
        return [watch for watches in self._watches.values() for watch in watches]

    def advance(self, revision: int) -> None:
        """Record that nothing that concerns a watcher has happened up to `revision`."""
        self.log.advance(revision)
        if not self._queue and not self._due:
            self.delivered = self.log.revision

    def interrupt(self, revision: int) -> None:
        """Cut every watcher off, and continue from `revision`, because the events up to it are not all
        known."""
        self._finish_telling()
        for watch in self._all_watches():
            watch.cut_off()
        self.log.restart(revision)
        self.delivered = revision

    def subscribe(self, bucket: str, *, after: int, namespace: str | None = None) -> Subscription:
        """A watch of the events after `after`. Raises `Compacted`, `FutureRevision`."""
        past = self.log.since(bucket, after, namespace)
        watch = Subscription(self, (bucket, namespace), past)
        if self._closed:
            watch.end()
        else:
            self._watches.setdefault((bucket, namespace), set()).add(watch)
        return watch

    def forget(self, watch: Subscription) -> None:
        """Deliver nothing more to this watch; harmless when repeated."""
        if watches := self._watches.get(watch.topic):
            watches.discard(watch)
            if not watches:
                del self._watches[watch.topic]

    def close(self) -> None:
        """Deliver all pending events, and end the watches."""
        self._finish_telling()
        self._closed = True
        for watch in self._all_watches():
            watch.end()

    def _deliver_in_time(self) -> None:
        """Deliver the queue: now, unless many watchers received events a moment ago.

        A pause shorter than `_COARSE_S` is left out, because the next turn of a busy loop may come much
        later: the writer would be answered, and its client would act, before the watchers have the event.
        """
        loop = asyncio.get_running_loop()
        early = self._not_before - loop.time()
        if early > _COARSE_S:
            self._next = loop.call_later(early, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        """Start to deliver the queue."""
        self._next = None
        events, self._queue = self._queue, []
        for topic, group in self._by_topic(events).items():
            self._due += [(watch, group) for watch in self._watches[topic]]
        if self._due:
            per_watcher = _LOADED_PAUSE_PER_WATCHER_S if len(events) > 1 else _PAUSE_PER_WATCHER_S
            pause = min(len(self._due) * per_watcher, _MOST_PAUSE_S)
            self._not_before = asyncio.get_running_loop().time() + pause
        self._delivering = self.log.revision  # the queue has all events up to it
        self._deliver_some()

    def _deliver_some(self) -> None:
        """Notify some watchers, and the rest after the loop's other work."""
        self._next = None
        due = self._due
        for _ in range(min(len(due), _AT_ONCE)):
            watch, group = due.popleft()
            watch.offer(group)
        if due:
            self._next = asyncio.get_running_loop().call_soon(self._deliver_some)
            return
        self.delivered = self._delivering
        if self._queue:
            self._deliver_in_time()

    def _finish_telling(self) -> None:
        """Deliver everything immediately."""
        while self._next is not None:
            self._next.cancel()
            self._not_before = 0.0
            if self._due:
                self._deliver_some()
            else:
                self._deliver()

    def _by_topic(self, events: list[Event]) -> dict[_Topic, list[Event]]:
        groups: dict[_Topic, list[Event]] = {}
        for event in events:
            key = event.row.key
            for topic in ((key.bucket, None), (key.bucket, key.namespace)):
                if topic in self._watches:
                    groups.setdefault(topic, []).append(event)
        return groups


class Subscription:
    """One watcher's position in the event stream; a `contract.Watch`."""

    def __init__(self, fanout: Fanout, topic: _Topic, past: list[Event]) -> None:
        self.topic = topic
        self._fanout = fanout
        self._seen = fanout.log.revision  # up to here: in `past`, taken, or of other topics
        self._frozen: int | None = None  # the position, once it is final
        self._pending = past
        # The last revision of each pending group, and `published_bytes` when it came.
        self._groups: deque[tuple[int, int]] = deque()
        if past:
            self._groups.append((past[-1].revision, fanout.published_bytes))
        self._waiter: asyncio.Future[None] | None = None
        self._taker: Callable[[list[Event]], bool] | None = None
        self._slow = False
        self._ended = False

    @property
    def waiting_since(self) -> int | None:
        """`Fanout.published_bytes` when the oldest pending event came; None if none is pending."""
        return self._groups[0][1] if self._groups else None

    @property
    def position(self) -> int:
        """Everything up to this revision has been delivered or did not concern this watch."""
        if self._frozen is not None:
            return self._frozen
        if self._pending:
            return self._pending[0].revision - 1
        return max(self._seen, self._fanout.delivered)

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        """The batches."""
        while (batch := await self.next()) is not None:
            yield batch

    async def next(self, timeout_s: float | None = None) -> list[Event] | None:
        """The next batch: the pending events, up to `BATCH_BYTES`. For one caller at a time."""
        if not (self._pending or self._ended or self._slow):
            await self._wait(timeout_s)
        if self._pending:
            batch = self._next_batch()
            self._seen = max(self._seen, batch[-1].revision)
            return batch
        if self._ended:
            return None
        if self._slow:
            raise SlowWatcher("the watcher did not take its events in time")
        return []

    def _next_batch(self) -> list[Event]:
        size = 0
        for index, event in enumerate(self._pending, 1):
            size += size_of(event)
            if size >= BATCH_BYTES and index < len(self._pending):
                batch, self._pending = self._pending[:index], self._pending[index:]
                while self._groups[0][0] <= event.revision:
                    self._groups.popleft()
                return batch
        batch = self._pending
        self._drop_pending()
        return batch

    def deliver_to(self, taker: Callable[[list[Event]], bool]) -> None:
        """See `contract.Watch`: waking a task for each event costs more than delivering it."""
        self._taker = taker

    async def _wait(self, timeout_s: float | None) -> None:
        if self._waiter is not None:
            raise RuntimeError("a watch is for one caller at a time")
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def offer(self, events: list[Event]) -> None:
        """Queue events of one commit; called by the fan-out."""
        if self._frozen is not None:  # it was closed since this was due
            return
        if events[0].revision <= self._seen:
            events = [event for event in events if event.revision > self._seen]
        if self._is_taken(events):
            return
        if events:
            self._pending += events
            self._groups.append((events[-1].revision, self._fanout.published_bytes))
        if self._pending:
            self._wake()

    def _is_taken(self, events: list[Event]) -> bool:
        """Whether the taker took them. It is called only while `next` waits and nothing is pending."""
        if self._taker is None or self._waiter is None or self._waiter.done() or self._pending:
            return False
        try:
            taken = not events or self._taker(events)
        except Exception:  # it will fail again for the caller of `next`, which reports it
            return False
        if taken and events:
            self._seen = events[-1].revision
        return taken

    def _drop_pending(self) -> None:
        self._pending = []
        self._groups.clear()

    def cut_off(self) -> None:
        """Deliver nothing more, and raise `SlowWatcher`, because events would be missing."""
        self._frozen = self.position
        self._slow = True
        self._drop_pending()
        self._fanout.forget(self)
        self._wake()

    def end(self) -> None:
        """Accept no events after the pending ones; harmless when repeated."""
        self._ended = True
        self._fanout.forget(self)
        self._wake()

    def close(self) -> None:
        """Stop; harmless when repeated."""
        self._frozen = self.position
        self._ended = True
        self._drop_pending()
        self._fanout.forget(self)
        self._wake()
