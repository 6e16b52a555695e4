"""Fair queueing: a capacity that flows (users, namespaces, orders) share by turns.

`FairQueue` is the queue itself, without threads, tasks or time; `FairSemaphore` is the same for tasks of an
event loop that wait for their turn.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_KEYS: Final = object()
"""The part of a flow in which its keys wait, so that a flow may have both keys and parts."""
_NO_FLOW: Final = object()

# A flow: its parts by name, the next one first; under `_KEYS` the waiting keys.
_Flow = OrderedDict[Any, Any]


class _Entry:
    """A key's place: its path through the flows, and whether it runs."""

    __slots__ = ("cost", "is_running", "path", "priority")

    def __init__(self, path: tuple[Hashable, ...], priority: float, cost: float) -> None:
        self.path = path
        self.priority = priority
        self.cost = cost
        self.is_running = False


class FairQueue(Generic[K]):
    """A queue of keys that run up to a capacity, in which flows take turns.

    Keys of the lowest `priority` start first. Among keys of one priority flows take turns, so that a flow
    with few keys does not wait behind all keys of a busy flow. A flow may have parts, e.g. a namespace and an
    order: then namespaces take turns, and within a namespace its orders. Keys of one flow start in the order
    of their arrival.

    At most `capacity` keys run at the same time, and at most `per_flow` of a flow (its first part). A key
    with a `cost` counts as so many keys; afterwards its flow misses as many turns. A key that costs more than
    the capacity runs alone. The key whose turn it is waits until its whole cost is free, because overtaking
    keys would starve it.

    The queue starts nothing itself: the caller starts what `pop` returns, calls `done` at its end, and `pop`
    again. Both limits may change at any time. Not safe in several threads.
    """

    def __init__(self, capacity: float = math.inf, *, per_flow: float = math.inf) -> None:
        self.capacity = capacity
        self.per_flow = per_flow
        self.running: float = 0
        """The cost of the running keys."""
        self._entries: dict[K, _Entry] = {}
        self._flows: dict[float, _Flow] = {}  # by priority
        self._waiting_of: Counter[Hashable] = Counter()
        self._running_of: dict[Hashable, float] = {}
        self._missed_turns: dict[Hashable, float] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """The number of waiting keys."""
        return self._waiting

    def __contains__(self, key: K) -> bool:
        """Whether the key waits or runs."""
        return key in self._entries

    def is_running(self, key: K) -> bool:
        """Whether the key has been started and is not done."""
        entry = self._entries.get(key)
        return entry is not None and entry.is_running

    def waiting_of(self, flow: Hashable) -> int:
        """The number of waiting keys of the flow (its first part)."""
        return self._waiting_of[flow]

    def add(self, key: K, *flow: Hashable, priority: float = 0, cost: float = 1) -> None:
        """Let the key wait. Does nothing if it runs, or waits with the same or a lower priority."""
        entry = self._entries.get(key)
        if entry is not None:
            if entry.is_running or entry.priority <= priority:
                return
            self.done(key)
        entry = self._entries[key] = _Entry((*flow, _KEYS), priority, cost)
        node = self._flows.get(priority)
        if node is None:
            node = self._flows[priority] = OrderedDict()
        for part in entry.path:
            child = node.get(part)
            if child is None:
                child = node[part] = OrderedDict()
            node = child
        node[key] = entry
        self._waiting += 1
        self._waiting_of[entry.path[0]] += 1

    def start(self, key: K, *flow: Hashable, cost: float = 1) -> bool:
        """Start a new key immediately if no key waits and there is room; otherwise it must `add`."""
        first = flow[0] if flow else _KEYS
        if self._waiting or not self._has_room(cost) or not self._flow_has_room(first, cost):
            return False
        entry = self._entries[key] = _Entry((*flow, _KEYS), 0, cost)
        self._start(entry)
        return True

    def pop(self) -> K | None:
        """Start the key whose turn it is; None if none waits or may start now."""
        if not self._waiting or (self.running and self.running >= self.capacity):
            return None
        for priority in sorted(self._flows) if len(self._flows) > 1 else tuple(self._flows):
            root = self._flows[priority]
            while (first := self._next_flow(root)) is not _NO_FLOW:
                missed = self._missed_turns.get(first, 0)
                if missed > 0:
                    self._missed_turns[first] = missed - 1
                    root.move_to_end(first)
                    continue
                key: K
                key, entry = _head(root[first], first)
                if not self._has_room(entry.cost):
                    return None
                self._remove(key, entry, turn_taken=True)
                if entry.cost > 1:
                    self._missed_turns[first] = entry.cost - 1
                self._start(entry)
                return key
        return None

    def done(self, key: K) -> None:
        """The key has ended, or waits no longer. Idempotent."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        if not entry.is_running:
            self._remove(key, entry, turn_taken=False)
            return
        first = entry.path[0]
        self.running -= entry.cost
        left = self._running_of[first] - entry.cost
        if left > 0:
            self._running_of[first] = left
        else:
            del self._running_of[first]

    def _next_flow(self, root: _Flow) -> Hashable:
        """The first flow below its limit; `_NO_FLOW` without one."""
        first: Hashable
        for first, node in root.items():
            if first not in self._running_of or self._flow_has_room(first, _head(node, first)[1].cost):
                return first
        return _NO_FLOW

    def _has_room(self, cost: float) -> bool:
        return not self.running or self.running + cost <= self.capacity

    def _flow_has_room(self, first: Hashable, cost: float) -> bool:
        running = self._running_of.get(first)
        return running is None or running + cost <= self.per_flow

    def _start(self, entry: _Entry) -> None:
        entry.is_running = True
        first = entry.path[0]
        self.running += entry.cost
        self._running_of[first] = self._running_of.get(first, 0) + entry.cost

    def _remove(self, key: K, entry: _Entry, *, turn_taken: bool) -> None:
        """Remove a waiting key, and emptied parts of its flow; after a turn, all parts of the flow go to the
        end of their queues."""
        node = self._flows[entry.priority]
        nodes = [node]
        for part in entry.path:
            node = node[part]
            nodes.append(node)
        del node[key]
        for parent, part in zip(reversed(nodes[:-1]), reversed(entry.path), strict=True):
            if not parent[part]:
                del parent[part]
            elif turn_taken:
                parent.move_to_end(part)
        if not nodes[0]:
            del self._flows[entry.priority]
        first = entry.path[0]
        self._waiting -= 1
        self._waiting_of[first] -= 1
        if not self._waiting_of[first]:
            del self._waiting_of[first]
        if not self._waiting:
            # No other flow waited for the turns.
            self._missed_turns.clear()


def _head(node: _Flow, part: Hashable) -> tuple[Any, _Entry]:
    """The next key of a flow that is reached by that part."""
    while part is not _KEYS:
        part = next(iter(node))
        node = node[part]
    key = next(iter(node))
    return key, node[key]


class FairSemaphore:
    """A semaphore for tasks of one event loop, whose waiters take turns as in a `FairQueue`."""

    def __init__(self, capacity: float, *, per_flow: float = math.inf) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(capacity, per_flow=per_flow)

    @asynccontextmanager
    async def slot(self, *flow: Hashable, priority: float = 0) -> AsyncIterator[None]:
        """Wait for a turn, and keep it during the block."""
        turn = await self._acquire(*flow, priority=priority)
        try:
            yield
        finally:
            self._release(turn)

    async def loop_turn(self, *flow: Hashable) -> None:
        """Wait for a turn, and keep it for the current turn of the event loop only.

        For CPU-bound tasks of some milliseconds: without turns sixty of them run in the same turn of the
        loop, and every other task waits for all sixty.
        """
        turn = await self._acquire(*flow)
        asyncio.get_running_loop().call_soon(self._release, turn)

    async def _acquire(self, *flow: Hashable, priority: float = 0) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._queue.start(turn, *flow):
            return turn
        self._queue.add(turn, *flow, priority=priority)
        self._wake_next()
        try:
            await turn
        except asyncio.CancelledError:
            self._release(turn)  # its place, or the turn that it got meanwhile
            raise
        return turn

    def _release(self, turn: asyncio.Future[None]) -> None:
        self._queue.done(turn)
        self._wake_next()

    def _wake_next(self) -> None:
        while (turn := self._queue.pop()) is not None:
            if turn.done():  # its task was cancelled, and releases it when it runs
                continue
            turn.set_result(None)
