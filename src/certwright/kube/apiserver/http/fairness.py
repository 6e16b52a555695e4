"""Priority and fairness between users: whether a request is answered now, queued, or rejected with 429.

A request takes one or more seats while it is being answered. Each class of verbs (mutating, get, list, watch)
has seats, of which a flow gets a quarter at most. Beyond them requests wait in a queue per flow, and beyond
that the answer is 429 with `Retry-After`. A flow is a user, or all ServiceAccounts of a namespace, because a
tenant may create any number of them. `system:masters` have reserved seats, and are never rejected. The
controllers in this process, health and metrics do not wait at all.

One event loop answers all requests, and many in one turn; a thousand short requests never run concurrently,
so a limit on concurrent requests would limit nothing. So each turn of the loop also gets a bounded number of
seats: other work on the loop waits for one turn at most.

The seats of a list grow with the number of objects of its resource, and are kept until the list has been
sent. A watch keeps its seat until it is open.

Source: Kubernetes documentation, "API Priority and Fairness"; kube-apiserver's flags; apiserver
`pkg/util/flowcontrol/request` (work estimates).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Hashable, Mapping

import msgspec

from certwright.kube.api.errors import Details, TooManyRequests
from certwright.kube.apiserver.base.users import ANONYMOUS, MASTERS, flow_of, is_privileged
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.model.routes import RequestLine, Route
from certwright.kube.store.contract import Row, Store
from certwright.kube.util.fair_queue import FairQueue
from certwright.kube.util.http_messages import Caller, ClosingStream, Identity, Response

LONGEST_WAIT_S = 15.0
"""Longest time in a queue before a request is rejected: a quarter of a request's time, as in Kubernetes."""
QUEUE_LENGTH = 100
"""Queue length: requests of one user for one class of verbs."""
_ALL_QUEUES = 1000
_PER_FLOW = 4  # a flow gets one seat of that many
_RETRY_AFTER_S = 1
_CHECK_INTERVAL_S = 1.0
_PER_TURN = 32
_OBJECTS_PER_SEAT = 100
_MOST_SEATS = 10
_FREE = ("healthz", "livez", "readyz", "metrics")
_CLASSES = {"get": "get", "list": "list", "watch": "watch"}
_MUTATING = "mutating"
_OF_MANY = frozenset({"list", "deletecollection"})
_SELECTORS = frozenset({"labelSelector", "fieldSelector"})


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """kube-apiserver's flags of these names. `priority_and_fairness` False: there are no queues and no users,
    only limits, and zero means unlimited."""

    max_requests: int = 400
    max_mutating_requests: int = 200
    priority_and_fairness: bool = True


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a level: `seats` in all, `per_flow` and `per_turn`; queued requests: `waiting` of one
    flow, `waiting_in_all`."""

    seats: float
    per_flow: float = math.inf
    per_turn: float = math.inf
    waiting: float = 0
    waiting_in_all: float = math.inf


class PriorityLevel:
    """A priority level: the seats of a class of verbs, and the requests that wait for them."""

    def __init__(self, name: str, bounds: Bounds, *, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self.name = name
        self.bounds = bounds
        self.longest_wait_s = longest_wait_s
        self.executing = 0
        self.dispatched = 0
        self.rejected = Counter[str]()
        self._queue: FairQueue[Seats] = FairQueue(bounds.seats, per_flow=bounds.per_flow)
        # In the order of arrival: since when they wait, and whether they have got their seats (False:
        # timeout).
        self._waiting: dict[Seats, tuple[float, asyncio.Future[bool]]] = {}
        self._this_turn = 0
        # A call at each turn would cost more than all else; only the turns that matter are counted.
        self._turn_threshold = max(1, bounds.per_turn / 4)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def in_use(self) -> float:
        """The seats that are taken."""
        return self._queue.running

    @property
    def waiting(self) -> int:
        """The number of queued requests."""
        return len(self._waiting)

    def take(self, flow: Hashable, count: int) -> Seats | None:
        """Seats for a request that need not wait; None: it must `wait`."""
        seats = Seats(self, count)
        if self._this_turn >= self.bounds.per_turn or not self._queue.start(seats, flow, cost=count):
            return None
        self._count_started(count)
        return seats

    async def wait(self, flow: Hashable, count: int) -> Seats:
        """Seats once the request is dispatched. Raises `TooManyRequests`."""
        seats, bounds = Seats(self, count), self.bounds
        if self._queue.waiting_of(flow) >= bounds.waiting or self.waiting >= bounds.waiting_in_all:
            raise self._reject("queue-full" if bounds.waiting else "concurrency-limit")
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[bool] = loop.create_future()
        self._waiting[seats] = loop.time(), settled
        self._queue.add(seats, flow, cost=count)
        self._dispatch()
        if self._timer is None and math.isfinite(self.longest_wait_s):
            self._timer = loop.call_later(_CHECK_INTERVAL_S, self._time_out, loop)
        try:
            has_seats = await settled
        except asyncio.CancelledError:
            self.leave(seats)  # its place in the queue, or the seats that it has got meanwhile
            raise
        if not has_seats:
            raise self._reject("time-out")
        return seats

    def leave(self, seats: Seats) -> None:
        """Release the seats of a request, or remove it from the queue; idempotent."""
        if self._queue.is_running(seats):
            self.executing -= 1
        self._queue.done(seats)
        if self._waiting:
            self._waiting.pop(seats, None)
            self._dispatch()

    def _reject(self, reason: str) -> TooManyRequests:
        self.rejected[reason] += 1
        return too_many()

    def _count_started(self, seats: int) -> None:
        self.executing += 1
        self.dispatched += 1
        before, self._this_turn = self._this_turn, self._this_turn + seats
        if before < self._turn_threshold <= self._this_turn:
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._this_turn = 0
        self._dispatch()

    def _dispatch(self) -> None:
        """Dispatch queued requests while seats are free."""
        while self._waiting and self._this_turn < self.bounds.per_turn:
            seats = self._queue.pop()
            if seats is None:
                return
            self._count_started(seats.count)
            _, settled = self._waiting.pop(seats)
            if not settled.done():
                settled.set_result(True)

    def _time_out(self, loop: asyncio.AbstractEventLoop) -> None:
        """Time out the requests that have waited too long, and check again later."""
        self._timer = None
        before = loop.time() - self.longest_wait_s
        for seats, (since, settled) in list(self._waiting.items()):
            if since > before:
                break
            self.leave(seats)
            if not settled.done():
                settled.set_result(False)
        if self._waiting:
            self._timer = loop.call_later(_CHECK_INTERVAL_S, self._time_out, loop)


class Seats:
    """The seats of a request while it is being answered."""

    __slots__ = ("count", "level")

    def __init__(self, level: PriorityLevel, count: int) -> None:
        self.level = level
        self.count = count

    def leave(self) -> None:
        """Give the seats back; idempotent."""
        self.level.leave(self)

    def leave_with(self, response: Response, *, watch: bool) -> None:
        """Return the seats: of a streamed list after its last chunk, of every other answer now."""
        if response.stream is None or watch:
            self.leave()
        else:
            response.stream = ClosingStream(response.stream, self.leave)


def too_many() -> TooManyRequests:
    """The 429 of a rejected request."""
    return TooManyRequests(
        "Too many requests, please try again later.", details=Details(retry_after_seconds=_RETRY_AFTER_S)
    )


def identify(caller: Caller, user: Identity, line: RequestLine) -> None:
    """Record the flow of the connection's authenticated user. Raises `ApiError`: too many connections.

    Health checks and metrics remain available on an unidentified connection.
    """
    if user.name == ANONYMOUS.name:
        return
    privileged = is_privileged(user)
    if privileged or not _is_free(line.verb, line.path):
        caller.identify(flow_of(user), is_privileged=privileged)


def _is_free(verb: str, path: str) -> bool:
    return not verb and path.lstrip("/").partition("/")[0] in _FREE


class Fairness:
    """The priority levels of a server."""

    def __init__(self, store: Store, registry: Registry, options: InFlight) -> None:
        self.sizes = Sizes(store)
        self._registry = registry
        self._masters: PriorityLevel | None = None
        self._levels: dict[str, PriorityLevel] = {}
        self.use(options)

    def use(self, options: InFlight) -> None:
        """Count requests anew against these limits; those in progress keep their former seats."""
        self._masters = None
        if not options.priority_and_fairness:
            # As kube-apiserver without it: two limits, and watches are not counted.
            mutating = PriorityLevel(_MUTATING, Bounds(seats=options.max_mutating_requests or math.inf))
            reading = PriorityLevel("readOnly", Bounds(seats=options.max_requests or math.inf))
            self._levels = {_MUTATING: mutating, "get": reading, "list": reading}
            return
        # Of the non-mutating seats, half are for gets, a quarter each for lists and for opening watches.
        reads = options.max_requests
        shares = {
            _MUTATING: options.max_mutating_requests,
            "get": reads / 2,
            "list": reads / 4,
            "watch": reads / 4,
        }
        self._levels = {}
        for name, share in shares.items():
            seats = max(1, int(share))
            bounds = Bounds(
                seats=seats,
                per_flow=max(1, seats // _PER_FLOW),
                per_turn=_PER_TURN,
                waiting=QUEUE_LENGTH,
                waiting_in_all=_ALL_QUEUES,
            )
            self._levels[name] = PriorityLevel(name, bounds)
        total = sum(level.bounds.seats for level in self._levels.values())
        bounds = Bounds(seats=total, per_flow=total / 2, per_turn=_PER_TURN, waiting=math.inf)
        self._masters = PriorityLevel(MASTERS, bounds, longest_wait_s=math.inf)

    @property
    def levels(self) -> list[PriorityLevel]:
        """All levels, each once."""
        levels = list(dict.fromkeys(self._levels.values()))
        return levels if self._masters is None else [*levels, self._masters]

    async def seat(
        self, user: Identity, verb: str, path: str, route: Route | None, query: Mapping[str, str]
    ) -> Seats | None:
        """Seats for a request, immediately or once it is dispatched; None: it needs none.

        Raises `TooManyRequests`, and `store.contract.StoreError` while it estimates the length of a list.
        """
        if _is_free(verb, path):
            return None
        of_verb = self._levels.get(_CLASSES.get(verb, _MUTATING) if verb else "get")
        level = self._masters if MASTERS in user.groups else of_verb
        if level is None:
            return None
        count = await self._cost(route, query) if verb in _OF_MANY and route is not None else 1
        flow = (user.name, verb) if level is self._masters else flow_of(user)
        return level.take(flow, count) or await level.wait(flow, count)

    async def _cost(self, route: Route, query: Mapping[str, str]) -> int:
        """The seats of a list, or of a deletecollection."""
        definition = self._registry.find(route.group, route.version, route.plural)
        if definition is None or query.get("fieldSelector", "").startswith("metadata.name="):
            return 1
        count = await self.sizes.count(definition)
        limit = query.get("limit", "")
        if limit.isdecimal() and int(limit) and not _SELECTORS & query.keys():
            count = min(count, int(limit))
        return max(1, min(math.ceil(count / _OBJECTS_PER_SEAT), _MOST_SEATS))


class Sizes:
    """Object counts of the resources that have been listed; an `Observer`."""

    observed_buckets = None

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, int] = {}

    async def count(self, definition: ResourceDefinition) -> int:
        """The approximate number of objects."""
        count = self._counts.get(definition.bucket)
        if count is None:
            count = self._counts[definition.bucket] = await self._store.count(definition.bucket)
        return count

    def wrote(self, definition: ResourceDefinition, _: Row, previous: Row | None) -> None:
        """Count a created object."""
        if previous is None and definition.bucket in self._counts:
            self._counts[definition.bucket] += 1

    def removed(self, definition: ResourceDefinition, _: Row) -> None:
        """Subtract a deleted object."""
        if definition.bucket in self._counts:
            self._counts[definition.bucket] -= 1
