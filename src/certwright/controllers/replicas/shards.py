"""Sharding: several replicas share the work; each works on the shards whose Leases it holds.

A replica without a shard takes any free shard. It takes further shards, up to its share, when their holder
has ended or died, or when they have been free for so long that no replica without a shard can want them. If
no shard is free, the replica requests one from the replica with the most, through the Lease
(`preferredHolder`); a holder of two or more shards releases one. So each of N replicas comes to hold a shard,
and the shards of a replica that ended are divided among the rest.

All replicas hold one further Lease together, `group`, under an identity that names N. So replicas with
another N, replicas without shards, and cert-manager itself wait until all members have ended. A replica takes
a shard's Lease first and joins the group's Lease afterwards. A replica that ends releases the group's Lease
only if all shards are free, and nothing was written to the group's Lease since it began to check.

When its set of shards changes, a replica stops its controllers and makes new ones, by the code of a start.
That is rare.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import Shards
from certwright.controllers.manager import ControllerManager
from certwright.controllers.replicas.replica import Member, Replica, ReplicaMetrics
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.client.throttle import Throttle, ThrottledTransport, lift_where_fair
from certwright.kube.client.transport import Transport
from certwright.kube.runtime.lease import FencedTransport, LeaderElector, LeaseTiming
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet

_log = logging.getLogger(__name__)

# Replicas look more often than once in a retry period: a shard that has been free for longer than this many
# of them is wanted by no replica without one.
_FREE_FOR_LONG = 1.0
# Between two rounds at least, however often the group's Lease changes.
_ROUND_S = 1.0
_WARN_EVERY_S = 600.0


class ShardedReplica(Member):
    """Makes controllers (`make`) for the shards it holds. `seats`: a candidate for the Lease of each shard;
    `group`: the candidate for the Lease that all replicas of these shards hold together.

    The controllers MUST write through a client that is fenced by `may_write`. Raises what `make` raises.
    """

    def __init__(
        self,
        make: Callable[[Mine], ControllerManager],
        seats: Sequence[LeaderElector],
        group: LeaderElector,
        clock: Clock,
        timing: LeaseTiming,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(seats[0].name.rpartition("-")[0])
        # So that invalid options are refused at the start.
        make(Shards(frozenset(), len(seats)))
        self._make = make
        self._seats = seats
        self._group = group
        self._clock = clock
        self._retry_s = timing.retry_period.total_seconds()
        self._jitter = jitter
        self._working: frozenset[int] = frozenset()
        self._joined_with: frozenset[int] = frozenset()
        self._watch_over: asyncio.Task[None] | None = None
        self._conflicts_with = ""
        self._warned_at = 0.0

    @property
    def shards(self) -> frozenset[int]:
        """The shards under work."""
        return self._working

    @property
    def may_write(self) -> bool:
        """Whether this replica certainly holds all shards under work."""
        all_held = all(self._seats[number].is_held for number in self._working)
        return bool(self._working) and all_held and self._group.is_held

    @property
    def holder(self) -> str:
        """The holders of the shards, or the holder that this replica waits for, as last observed."""
        others = sorted({seat.holder for seat in self._seats if seat.holder})
        return self._conflicts_with or ", ".join(others)

    @property
    def metrics(self) -> ReplicaMetrics:
        """The metrics of the work at this moment."""
        return ReplicaMetrics(self._name, self.leads, self._controllers, bool(self._conflicts_with))

    def start(self) -> None:
        """Begin to acquire shards, and to work on held shards."""
        self._tasks.start(self._run(), name="replica")
        self._tasks.start(self._group.follow(), name="watch on the lease")

    async def close(self) -> None:
        """Stop, and then release the shards."""
        await self._tasks.close()
        await self._stop()
        await self._release(frozenset(range(len(self._seats))))
        if self._group.is_held:
            await self._leave_group()

    async def _run(self) -> None:
        while True:
            # BEFORE the Leases are read: what changes afterwards is for the next round.
            self._group.changed.clear()
            # Stop the work on lost shards before anything else.
            await self._work_on(self._workable() & self._working)
            if await self._may_join():
                await asyncio.gather(*(self._renew_or_observe(seat) for seat in self._seats))
                leaving = self._requested()
                await self._acquire()
                if self._own_seats() and not await self._join_group():
                    every = frozenset(range(len(self._seats)))
                    leaving |= every - self._working if self._group.is_held else every
                await self._work_on(self._workable() - leaving)
                # Only now: two must never work on the same shard.
                await self._release(leaving)
            await self._pause()

    async def _pause(self) -> None:
        # More often than once in a retry period, and never all replicas at the same moment; and when another
        # one's Lease expires.
        pause_s = self._retry_s * (0.7 + 0.2 * self._jitter())
        pause_s = min([pause_s, *(lease.expires_in_s for lease in (self._group, *self._seats))])
        if self._working:
            if self._group.needs_renewal:
                # After a failed renewal there is time for another.
                pause_s = self._retry_s / 3
            pause_s = min(
                [pause_s, self._group.left_s, *(self._seats[number].left_s for number in self._working)]
            )
        await self._clock.sleep(min(pause_s, _ROUND_S))
        alarm = asyncio.ensure_future(self._clock.sleep(pause_s - _ROUND_S))
        changed = asyncio.ensure_future(self._group.changed.wait())
        try:
            await asyncio.wait((alarm, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
            changed.cancel()

    async def _may_join(self) -> bool:
        """Whether the group's Lease is ours or free; otherwise replicas with another number of shards hold
        it."""
        if not self._group.is_held:
            try:
                await self._group.observe(self._retry_s)
            except (ApiError, Unreachable) as error:
                _log.warning("the lease %s: %s", self._group.place, error)
                return False
            if self._group.free_for_s is None:
                await self._release(frozenset(range(len(self._seats))))
                self._warn(self._group.holder)
                return False
        self._conflicts_with = ""
        return True

    def _warn(self, holder: str) -> None:
        """Report, now and then, that replicas with another number of shards hold the Lease."""
        now = self._clock.monotonic()
        if holder == self._conflicts_with and now - self._warned_at < _WARN_EVERY_S:
            return
        self._conflicts_with, self._warned_at = holder, now
        _log.warning(
            "waiting: %s holds the lease %s, and this replica is one of %d shards; --shards must be the same "
            "for all replicas, and replicas without --shards, or cert-manager's own controller, cannot work "
            "beside them; this one starts when they have ended",
            holder,
            self._group.place,
            len(self._seats),
        )

    def _own_seats(self) -> frozenset[int]:
        """The shards whose Lease is ours."""
        return frozenset(number for number, seat in enumerate(self._seats) if seat.is_held)

    def _workable(self) -> frozenset[int]:
        """The shards that may be worked on: none unless the group's Lease is ours too."""
        return self._own_seats() if self._group.is_held else frozenset()

    async def _release(self, shards: frozenset[int]) -> None:
        """Release these Leases, and notify the other replicas."""
        ours = [self._seats[number] for number in shards if self._seats[number].is_held]
        if not ours:
            return
        await asyncio.gather(*(seat.release() for seat in ours))
        try:
            await self._group.notify_group()
        except (ApiError, Unreachable) as error:
            _log.debug("the lease %s: %s", self._group.place, error)

    async def _join_group(self) -> bool:
        """Write the group's Lease AFTER a shard's Lease was taken (see `_leave_group`); otherwise once in a
        retry period, which is less often than a round."""
        seats = self._own_seats()
        if seats <= self._joined_with and not self._group.needs_renewal:
            return True
        if not await self._group.join(self._retry_s):
            return False
        self._joined_with = seats
        return True

    async def _leave_group(self) -> None:
        """Release the group's Lease if this is the last replica. A replica that takes a shard meanwhile joins
        the group afterwards: either its shard is seen here, or its write makes this release fail."""
        try:
            await self._group.observe(self._retry_s)
            await asyncio.gather(*(seat.observe(self._retry_s) for seat in self._seats))
        except (ApiError, Unreachable) as error:
            _log.debug("the lease %s: %s", self._group.place, error)
            return
        if all(seat.free_for_s is not None for seat in self._seats):
            await self._group.release()

    async def _renew_or_observe(self, seat: LeaderElector) -> None:
        if seat.is_held:
            await seat.attempt(min(self._retry_s, seat.left_s))
            return
        try:
            await seat.observe(self._retry_s)
        except (ApiError, Unreachable) as error:
            _log.warning("the lease %s: %s", seat.name, error)

    def _requested(self) -> frozenset[int]:
        """The shard to release: one at a time, and never the last."""
        ours = self._own_seats()
        asked = [number for number in sorted(ours) if self._seats[number].release_requested_by]
        return frozenset(asked[:1] if len(ours) > 1 else ())

    async def _acquire(self) -> None:
        free = [seat for seat in self._seats if not seat.is_held and seat.free_for_s is not None]
        # Shuffled, so that replicas that start together try different shards.
        free.sort(key=lambda _: self._jitter())
        # One replica's share, counting the replicas that are visible.
        alive = {seat.holder for seat in self._seats if seat.free_for_s is None and not seat.is_held}
        share = math.ceil(len(self._seats) / (len(alive - {""}) + 1))
        for seat in free:
            had, has_ended = len(self._own_seats()), bool(seat.holder) or seat.was_released
            is_left_over = has_ended or (seat.free_for_s or 0.0) >= _FREE_FOR_LONG * self._retry_s
            if had < share and (not had or is_left_over):
                await seat.attempt(self._retry_s)
        if not free and not self._own_seats():
            await self._request_from_fullest()

    async def _request_from_fullest(self) -> None:
        counts = Counter(seat.holder for seat in self._seats if seat.holder)
        fullest, count = counts.most_common(1)[0] if counts else ("", 0)
        theirs = [seat for seat in self._seats if seat.holder == fullest]
        if count < 2 or any(seat.release_requested_by or seat.has_requested_release for seat in theirs):
            return
        try:
            await theirs[0].request_release()
            await self._group.notify_group()
        except (ApiError, Unreachable) as error:
            _log.debug("requesting a shard from %s: %s", fullest, error)

    async def _work_on(self, shards: frozenset[int]) -> None:
        if shards == self._working:
            return
        await self._stop()
        if not shards:
            _log.warning("%s no longer holds a shard and is waiting for one", self._seats[0].identity)
            return
        count = len(self._seats)
        _log.info(
            "%s works on shards %s of %d", self._seats[0].identity, ", ".join(map(str, sorted(shards))), count
        )
        self._working = shards
        self._controllers = self._make(Shards(shards, count))
        self._controllers.start()
        self._watch_over = self._tasks.start(self._end_with(self._controllers), name="controllers")
        self._leading.set()

    async def _end_with(self, controllers: ControllerManager) -> None:
        """Fail when they fail."""
        raise await controllers.wait_failed()

    async def _stop(self) -> None:
        if self._watch_over is not None:
            self._watch_over.cancel()
        # Closed first, because the fence must not change before that.
        await self._end_work()
        self._working = frozenset()


Make = Callable[[Client, Mine | None], ControllerManager]
"""Makes controllers, not started, that use that client and work on `mine` (None: on everything)."""

LEASE_NAME = "cert-manager-controller"
"""cert-manager's: where both are installed in one cluster, one of them works. Shards hold it
together, so that they exclude cert-manager, replicas without shards, and those of another number."""
USER_AGENT = "certwright-controllers"


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of controllers against a shared API server; names and meanings as cert-manager's flags.

    A negative `kube_api_qps` means no limit. With several `shards`, replicas share the work instead of
    waiting for each other (not a flag of cert-manager). `identity` is unique to this replica; a replica that
    restarts with its former identity takes its Leases over immediately.
    """

    identity: str
    kube_api_qps: float = 20.0
    kube_api_burst: int = 50
    shards: int = 1
    leader_elect: bool = True
    leader_election_namespace: str = "kube-system"
    timing: LeaseTiming = msgspec.field(default_factory=LeaseTiming)


def beside_a_server(
    transport: Transport,
    settings: ClusterSettings,
    *,
    clock: Clock,
    make: Make,
    tasks: TaskSet,
) -> ControllerManager | Replica | ShardedReplica:
    """Controllers, or a replica of them, that use the server behind `transport` as `settings` allow.

    `tasks` gets what runs beside them. Raises `ValueError` for invalid settings.
    """
    if settings.shards < 1:
        raise ValueError("there must be at least one shard")
    if settings.shards > 1 and not settings.leader_elect:
        raise ValueError("shards are shared out by leases: they need leader election")
    paced = transport
    if settings.kube_api_qps >= 0:
        throttle = Throttle(clock, qps=settings.kube_api_qps, burst=settings.kube_api_burst)
        asking = lift_where_fair(transport, throttle, clock, USER_AGENT)
        tasks.start(asking, name="priority and fairness")
        paced = ThrottledTransport(transport, throttle)
    if not settings.leader_elect:
        return make(Client(paced, user_agent=USER_AGENT, clock=clock), None)
    # Not rate-limited, because a renewal of the Lease behind a thousand requests comes too late.
    own = Client(transport, user_agent=f"{USER_AGENT}/leader-election", clock=clock)

    def elector(name: str, group: str = "") -> LeaderElector:
        return LeaderElector(
            own,
            clock,
            namespace=settings.leader_election_namespace,
            name=name,
            identity=group or settings.identity,
            timing=settings.timing,
            is_group=bool(group),
        )

    # Fenced between the rate limiter and the server, because the lease may be lost while a request waits
    # there.
    fenced: Transport = FencedTransport(transport, lambda: replica.may_write)
    if paced is not transport:
        fenced = ThrottledTransport(fenced, throttle)
    client = Client(fenced, user_agent=USER_AGENT, clock=clock)
    replica: Replica | ShardedReplica
    if settings.shards == 1:
        replica = Replica(lambda: make(client, None), elector(LEASE_NAME))
    else:
        seats = [elector(f"{LEASE_NAME}-shard-{number}") for number in range(settings.shards)]
        group = elector(LEASE_NAME, group=f"certwright-shards-of-{settings.shards}")
        replica = ShardedReplica(lambda mine: make(client, mine), seats, group, clock, settings.timing)
    return replica
