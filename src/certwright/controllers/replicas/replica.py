"""Leader election: one of several replicas runs the controllers while it holds the Lease.

A replica without the Lease has no caches and costs next to nothing. A replica that loses the Lease stops
immediately, drops its state, and waits again.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from certwright.controllers.manager import ControllerManager
from certwright.kit.exposition import family, labels
from certwright.kube.runtime.lease import LeaderElector
from certwright.kube.util.tasks import TaskSet

_log = logging.getLogger(__name__)


class ReplicaMetrics(msgspec.Struct, frozen=True):
    """The metrics of a replica, and of its controllers while they run."""

    name: str
    leads: bool
    controllers: ControllerManager | None
    has_conflict: bool = False

    def take(self) -> Callable[[], bytes]:
        """Take a snapshot, and return a function that renders it."""
        rest = self.controllers.metrics.take() if self.controllers is not None else None
        name = labels((("name", self.name),))
        leads = family(
            "leader_election_master_status",
            "gauge",
            "Whether this replica holds the lease (1) or waits for it (0).",
            [(name, int(self.leads))],
        )
        conflict = family(
            "certwright_shards_conflict",
            "gauge",
            "Whether this replica waits because replicas with another number of shards hold the lease (1).",
            [(name, int(self.has_conflict))],
        )
        own = "".join((*leads, *conflict)).encode()
        return lambda: own + (rest() if rest is not None else b"")


class Member(ABC):
    """Base class of replicas, independent of which leases they need in order to work.

    `name` is that of the lease, or the beginning of it. Subclasses set `_controllers` while they work, set
    `_leading`, and end both by `_end_work`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._controllers: ControllerManager | None = None
        self._ending: ControllerManager | None = None
        self._leading = asyncio.Event()
        self._tasks = TaskSet()

    @property
    def leads(self) -> bool:
        """Whether this replica works, and may."""
        return self._controllers is not None and self.may_write

    @property
    @abstractmethod
    def may_write(self) -> bool:
        """Whether this replica certainly holds the leases of its work."""

    @property
    def metrics(self) -> ReplicaMetrics:
        """The metrics of the work at this moment."""
        return ReplicaMetrics(self._name, self.leads, self._controllers)

    async def wait_leading(self) -> None:
        """Return when this replica runs the controllers."""
        await self._leading.wait()

    async def wait_synced(self, *, patience_s: float | None = None) -> None:
        """Return when this replica runs the controllers, with caches in sync. Raises `TimeoutError` when they
        receive nothing for `patience_s`."""
        while (controllers := self._controllers) is None:
            await self._leading.wait()
        await controllers.wait_synced(patience_s=patience_s)

    async def wait_failed(self) -> BaseException:
        """Return when a part that must never end has ended, with the reason."""
        await self._tasks.failed.wait()
        assert self._tasks.error is not None
        return self._tasks.error

    async def flush(self) -> None:
        """Return when the Events recorded so far have been written."""
        if self._controllers is not None:
            await self._controllers.flush()

    async def _end_work(self) -> None:
        """Close the controllers; also those whose closing was cancelled because the replica is closed."""
        self._leading.clear()
        self._ending, self._controllers = self._controllers or self._ending, None
        if self._ending is not None:
            await self._ending.close()
            self._ending = None


class Replica(Member):
    """Makes controllers (`make`, not started) whenever `elector` gets the lease.

    They MUST change things through a client that is fenced by `may_write` (`kube.runtime.fence`).
    Raises what `make` raises.
    """

    def __init__(self, make: Callable[[], ControllerManager], elector: LeaderElector) -> None:
        super().__init__(elector.name)
        self._make = make
        # Made now, so that invalid options are reported at the start.
        self._next: ControllerManager | None = make()
        self._elector = elector

    @property
    def may_write(self) -> bool:
        """Whether this replica certainly holds the lease."""
        return self._elector.is_held

    @property
    def holder(self) -> str:
        """The holder of the lease, as last seen; empty if it is free."""
        return self._elector.holder

    async def wait_tried(self) -> None:
        """Return when this replica has tried once to acquire the lease."""
        await self._elector.tried.wait()

    def start(self) -> None:
        """Begin to wait for the lease, and to work while holding it."""
        self._tasks.start(self._run(), name="replica")

    async def close(self) -> None:
        """Stop, and then release the lease. In this order: two replicas must never work at the same time."""
        await self._tasks.close()
        await self._end_work()
        await self._elector.release()

    async def _run(self) -> None:
        while True:
            await self._elector.acquire()
            await self._work()
            _log.warning(
                "%s has stopped its controllers and is waiting for the lease", self._elector.identity
            )

    async def _work(self) -> None:
        controllers = self._controllers = self._next or self._make()
        self._next = None
        controllers.start()
        self._leading.set()
        keeping = asyncio.ensure_future(self._elector.keep())
        failing = asyncio.ensure_future(controllers.wait_failed())
        try:
            await asyncio.wait((keeping, failing), return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                raise failing.result()
        finally:
            keeping.cancel()
            failing.cancel()
            await self._end_work()
