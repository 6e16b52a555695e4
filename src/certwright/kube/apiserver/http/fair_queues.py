"""Fair queueing: seats for requests, and a queue per flow, so that no flow waits for all of another one.

A request takes one or more seats while it is being answered. Flows (users) with queued requests take turns by
the cost of their requests: start-time fair queueing. Plain numbers and no clock: the caller passes the time.

One event loop answers all requests, and many of them in one turn; a thousand of those never run
concurrently, so a limit on concurrent requests would limit nothing. So each turn of the loop also gets a
bounded number of seats: other work on the loop waits for one turn at most.

Source: Kubernetes documentation, "API Priority and Fairness"; P. Goyal et al., "Start-time Fair Queueing".
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable

import msgspec

QUEUE_FULL = "queue-full"
TIME_OUT = "time-out"
CONCURRENCY = "concurrency-limit"
_FLOWS_KEPT = 1000

Settle = Callable[[bool], None]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a level: `seats` in all, `per_flow` and `per_turn`; queued requests: `waiting` of one
    flow, `waiting_in_all`."""

    seats: float
    per_flow: float = math.inf
    per_turn: float = math.inf
    waiting: float = 0
    waiting_in_all: float = math.inf


class Refused(Exception):
    """The queue is full. The text is the reason, as a label of metrics."""


class Flow:
    """The requests of one user."""

    __slots__ = ("in_use", "is_ready", "next_tag", "waiting")

    def __init__(self) -> None:
        self.in_use = 0
        self.waiting: deque[Waiter] = deque()
        self.is_ready = False  # whether it is in the dispatch order: its first request may be dispatched
        self.next_tag = 0


class Waiter:
    """A request queued since a moment (in seconds). `settle` is called once, with whether it has got its
    seats: False on timeout."""

    __slots__ = ("flow", "granted", "seats", "settle", "since")

    def __init__(self, flow: Flow, seats: int, since: float, settle: Settle) -> None:
        self.flow = flow
        self.seats = seats
        self.since = since
        self.settle = settle
        self.granted = False


class FairQueues:
    """The seats of one priority level. `request_turn` is called when `new_turn` must be called at the end of
    the loop's turn."""

    def __init__(self, bounds: Bounds, request_turn: Callable[[], None]) -> None:
        self.bounds = bounds
        self._request_turn = request_turn
        # A call at each turn would cost more than all else; only the turns that matter are asked for.
        self._turn_threshold = max(1, bounds.per_turn / 4)
        self.in_use = 0
        self.executing = 0
        self.dispatched = 0
        self.rejected: dict[str, int] = {}
        self.waiting = 0
        self._this_turn = 0
        self._virtual = 0
        self._flows: dict[Hashable, Flow] = {}
        # Flows ready for dispatch, by virtual start time; then by arrival.
        self._line: list[tuple[int, int, Flow]] = []
        self._arrivals = 0

    def take(self, key: Hashable, seats: int) -> Flow | None:
        """Seats for a request of the flow `key` if it need not wait; the caller gives them back."""
        flow = self._flows.get(key)
        if flow is None:
            flow = self._new_flow(key)
        if self._line or flow.waiting or not self._flow_has_room(flow, seats) or not self._has_room(seats):
            return None
        self._start(flow, seats)
        return flow

    def wait(self, key: Hashable, seats: int, now: float, settle: Settle) -> Waiter:
        """Queue a request that could not be seated. Raises `Refused`."""
        flow = self._flows.get(key) or self._new_flow(key)
        bounds = self.bounds
        if len(flow.waiting) >= bounds.waiting or self.waiting >= bounds.waiting_in_all:
            reason = QUEUE_FULL if bounds.waiting else CONCURRENCY
            self._count_rejected(reason)
            raise Refused(reason)
        waiter = Waiter(flow, seats, now, settle)
        flow.waiting.append(waiter)
        self.waiting += 1
        self._line_up(flow)
        self._dispatch()
        return waiter

    def give_back(self, flow: Flow, seats: int) -> None:
        """Release the seats of an answered request."""
        self.in_use -= seats
        self.executing -= 1
        flow.in_use -= seats
        if self.waiting:
            self._line_up(flow)
            self._dispatch()

    def new_turn(self) -> None:
        """Start a new turn of the loop."""
        self._this_turn = 0
        self._dispatch()

    def leave(self, waiter: Waiter) -> None:
        """Cancel a request; harmless when it has neither seats nor a place in a queue."""
        if waiter.granted:
            self.give_back(waiter.flow, waiter.seats)
        elif waiter in waiter.flow.waiting:
            waiter.flow.waiting.remove(waiter)
            self.waiting -= 1
            self._line_up(waiter.flow)
            self._dispatch()

    def send_away(self, before: float) -> None:
        """Time out the requests queued since `before` or longer."""
        waiters: list[Waiter] = []
        for flow in self._flows.values():
            while flow.waiting and flow.waiting[0].since <= before:
                waiters.append(flow.waiting.popleft())
                self.waiting -= 1
                self._count_rejected(TIME_OUT)
            self._line_up(flow)
        for waiter in waiters:
            waiter.settle(False)
        self._dispatch()

    def _count_rejected(self, reason: str) -> None:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def _new_flow(self, key: Hashable) -> Flow:
        if len(self._flows) >= _FLOWS_KEPT:
            self._flows = {key: flow for key, flow in self._flows.items() if flow.in_use or flow.waiting}
        flow = self._flows[key] = Flow()
        return flow

    def _flow_has_room(self, flow: Flow, seats: int) -> bool:
        # A request for more seats than there are gets all of them.
        return not flow.in_use or flow.in_use + seats <= self.bounds.per_flow

    def _has_room(self, seats: int) -> bool:
        bounds = self.bounds
        fits = not self.in_use or self.in_use + seats <= bounds.seats
        return fits and self._this_turn < bounds.per_turn

    def _start(self, flow: Flow, seats: int) -> None:
        self.in_use += seats
        self.executing += 1
        self.dispatched += 1
        flow.in_use += seats
        before = self._this_turn
        self._this_turn = before + seats
        if before < self._turn_threshold <= self._this_turn:
            self._request_turn()

    def _line_up(self, flow: Flow) -> None:
        """Put a flow into the dispatch order if it has queued requests and is below its limit."""
        if flow.is_ready or not flow.waiting or not self._flow_has_room(flow, flow.waiting[0].seats):
            return
        flow.is_ready = True
        flow.next_tag = max(flow.next_tag, self._virtual)
        self._arrivals += 1
        heapq.heappush(self._line, (flow.next_tag, self._arrivals, flow))

    def _dispatch(self) -> None:
        """Dispatch queued requests while seats are free."""
        while self._line:
            tag, _, flow = self._line[0]
            fits = bool(flow.waiting) and self._flow_has_room(flow, flow.waiting[0].seats)
            # The first in line waits for all the seats it needs, because requests that overtake starve it.
            if fits and not self._has_room(flow.waiting[0].seats):
                return
            heapq.heappop(self._line)
            flow.is_ready = False
            if fits:
                self._dispatch_next(flow, tag)
                self._line_up(flow)

    def _dispatch_next(self, flow: Flow, tag: int) -> None:
        waiter = flow.waiting.popleft()
        self.waiting -= 1
        self._virtual = tag
        flow.next_tag = tag + waiter.seats
        self._start(flow, waiter.seats)
        waiter.granted = True
        waiter.settle(True)
