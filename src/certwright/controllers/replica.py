"""One of several copies of the controllers: it works while it holds the lease, and only then.

What is not held is not begun: a replica that waits keeps no local copies and costs next to nothing. One that
loses the lease stops at once, and waits again, with everything forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from certwright.client.rest import Client
from certwright.client.throttle import Throttle, ThrottledTransport, lift_where_fair
from certwright.client.transport import Transport
from certwright.controllers.manager import Controllers
from certwright.engine.lease import Candidate, FencedTransport, Terms
from certwright.kit.clock import Clock
from certwright.kit.exposition import head, labels
from certwright.kit.tasks import TaskSet

_log = logging.getLogger(__name__)

LEASE_NAME = "cert-manager-controller"
"""cert-manager's: where both are installed in one cluster, one of them works."""
USER_AGENT = "certwright-controllers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """How controllers behave beside an API server; names and meanings as cert-manager's flags.

    A negative `kube_api_qps` is no limit. `identity` names this replica, and no other one ever.
    """

    identity: str
    kube_api_qps: float = 20.0
    kube_api_burst: int = 50
    leader_elect: bool = True
    leader_election_namespace: str = "kube-system"
    terms: Terms = field(default_factory=Terms)


def beside_a_server(
    transport: Transport,
    settings: ClusterSettings,
    *,
    clock: Clock,
    make: Callable[[Client], Controllers],
    tasks: TaskSet,
) -> Controllers | Replica:
    """Controllers, or a replica of them, that ask the server behind `transport` as `settings` allow.

    `tasks` gets what runs beside them. Raises `ValueError` for settings that make no sense.
    """
    paced = transport
    if settings.kube_api_qps >= 0:
        throttle = Throttle(clock, qps=settings.kube_api_qps, burst=settings.kube_api_burst)
        asking = lift_where_fair(transport, throttle, clock, USER_AGENT)
        tasks.start(asking, name="priority and fairness")
        paced = ThrottledTransport(transport, throttle)
    if not settings.leader_elect:
        return make(Client(paced, user_agent=USER_AGENT, clock=clock))
    # Not paced: a renewal that stands in the line behind a thousand requests comes too late.
    own = Client(transport, user_agent=f"{USER_AGENT}/leader-election", clock=clock)
    candidate = Candidate(
        own,
        clock,
        namespace=settings.leader_election_namespace,
        name=LEASE_NAME,
        identity=settings.identity,
        terms=settings.terms,
    )
    # Between the line and the server: what waited there for its turn may not be ours to do any more.
    fenced: Transport = FencedTransport(transport, lambda: candidate.held)
    if paced is not transport:
        fenced = ThrottledTransport(fenced, throttle)
    client = Client(fenced, user_agent=USER_AGENT, clock=clock)
    return Replica(lambda: make(client), candidate)


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """The numbers of a replica, and of its controllers while they work."""

    name: str
    leads: bool
    controllers: Controllers | None

    def take(self) -> Callable[[], bytes]:
        """Hold the present state, and return a function that writes it down."""
        rest = self.controllers.metrics.take() if self.controllers is not None else None
        text = head(
            "leader_election_master_status",
            "gauge",
            "Whether this replica holds the lease (1) or waits for it (0).",
        )
        text += f"leader_election_master_status{{{labels((('name', self.name),))}}} {int(self.leads)}\n"
        own = text.encode()
        return lambda: own + (rest() if rest is not None else b"")


class Replica:
    """Makes controllers (`make`, not started) whenever `candidate` gets the lease.

    They MUST change things through a client that is fenced by the same candidate
    (`engine.lease.FencedTransport`). Raises what `make` raises.
    """

    def __init__(self, make: Callable[[], Controllers], candidate: Candidate) -> None:
        self._make = make
        # Made now, so that options that make no sense are told at the start.
        self._next: Controllers | None = make()
        self._candidate = candidate
        self._controllers: Controllers | None = None
        self._leading = asyncio.Event()
        self._tasks = TaskSet()

    @property
    def leads(self) -> bool:
        """Whether the controllers of this replica are the ones at work."""
        return self._controllers is not None and self._candidate.held

    @property
    def holder(self) -> str:
        """Who holds the lease, as last seen; empty where nobody does."""
        return self._candidate.holder

    @property
    def metrics(self) -> ReplicaMetrics:
        """What can be told about the work at this moment."""
        return ReplicaMetrics(self._candidate.name, self.leads, self._controllers)

    def start(self) -> None:
        """Begin to wait for the lease, and to work when it is there."""
        self._tasks.start(self._run(), name="replica")

    async def wait_leading(self) -> None:
        """Return when this replica is at work."""
        await self._leading.wait()

    async def wait_synced(self) -> None:
        """Return when this replica is at work, with complete local copies."""
        while (controllers := self._controllers) is None:
            await self._leading.wait()
        await controllers.wait_synced()

    async def wait_failed(self) -> BaseException:
        """Return when a part that must never end has ended, with the reason."""
        await self._tasks.failed.wait()
        assert self._tasks.error is not None
        return self._tasks.error

    async def flush(self) -> None:
        """Return when the Events recorded so far have been written."""
        if self._controllers is not None:
            await self._controllers.flush()

    async def close(self) -> None:
        """Stop, and then let the next replica in. In this order: two must never work at once."""
        await self._tasks.close()
        await self._candidate.release()

    async def _run(self) -> None:
        while True:
            await self._candidate.acquire()
            await self._work()
            _log.warning("%s has stopped its controllers and waits for the lease", self._candidate.identity)

    async def _work(self) -> None:
        controllers = self._controllers = self._next or self._make()
        self._next = None
        controllers.start()
        self._leading.set()
        keeping = asyncio.ensure_future(self._candidate.keep())
        failing = asyncio.ensure_future(controllers.wait_failed())
        try:
            await asyncio.wait((keeping, failing), return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                raise failing.result()
        finally:
            self._leading.clear()
            self._controllers = None
            keeping.cancel()
            failing.cancel()
            await controllers.close()
