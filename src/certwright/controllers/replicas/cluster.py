"""Controllers against a shared API server: rate-limited, fenced, and one of several replicas."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.manager import Controllers
from certwright.controllers.replicas.replica import Replica
from certwright.controllers.replicas.shards import ShardedReplica
from certwright.kube.client.rest import Client
from certwright.kube.client.throttle import Throttle, ThrottledTransport, lift_where_fair
from certwright.kube.client.transport import Transport
from certwright.kube.runtime.lease import Candidate, FencedTransport, Terms
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet

Make = Callable[[Client, Mine | None], Controllers]
"""Makes controllers, not started, that use that client and work on `mine` (None: on everything)."""

LEASE_NAME = "cert-manager-controller"
"""cert-manager's: where both are installed in one cluster, one of them works. Shards hold it
together, so that they exclude cert-manager, replicas without shards, and those of another number."""
USER_AGENT = "certwright-controllers"


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of controllers against a shared API server; names and meanings as cert-manager's flags.

    A negative `kube_api_qps` is no limit. With several `shards`, replicas share the work instead of waiting
    for each other (ours; cert-manager has no such flag). `identity` names this replica, and no other one; a
    replica that restarts with its former identity takes its Leases over immediately.
    """

    identity: str
    kube_api_qps: float = 20.0
    kube_api_burst: int = 50
    shards: int = 1
    leader_elect: bool = True
    leader_election_namespace: str = "kube-system"
    terms: Terms = msgspec.field(default_factory=Terms)


def beside_a_server(
    transport: Transport,
    settings: ClusterSettings,
    *,
    clock: Clock,
    make: Make,
    tasks: TaskSet,
) -> Controllers | Replica | ShardedReplica:
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

    def candidate(name: str, group: str = "") -> Candidate:
        return Candidate(
            own,
            clock,
            namespace=settings.leader_election_namespace,
            name=name,
            identity=group or settings.identity,
            terms=settings.terms,
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
        replica = Replica(lambda: make(client, None), candidate(LEASE_NAME))
    else:
        seats = [candidate(f"{LEASE_NAME}-shard-{number}") for number in range(settings.shards)]
        group = candidate(LEASE_NAME, group=f"certwright-shards-of-{settings.shards}")
        replica = ShardedReplica(lambda mine: make(client, mine), seats, group, clock, settings.terms)
    return replica
