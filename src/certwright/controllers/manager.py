"""Controller manager: starts and stops the controllers that `wiring.py` builds."""

from __future__ import annotations

import asyncio

from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.metrics import ControllerMetrics
from certwright.controllers.notifier import Notifier
from certwright.controllers.settings import Settings
from certwright.controllers.toolbox import Toolbox
from certwright.controllers.wiring import Wiring
from certwright.kube.client.rest import Client
from certwright.kube.runtime.idle_priority import IdleTurns
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util import memory
from certwright.kube.util.clock import Clock
from certwright.kube.util.executor import Executor
from certwright.kube.util.tasks import TaskSet

COMPONENT = "cert-manager"
"""The reporting component of the Events."""
_CHECK_EVERY_S = 5.0


class ControllerManager:
    """The controllers that the settings name, connected to one API server.

    `mine` selects the Certificates (with their requests, Orders and Challenges) and issuers of this replica;
    None: all. Raises `ValueError` with a sentence for invalid settings.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        executor: Executor,
        settings: Settings | None = None,
        mine: Mine | None = None,
    ) -> None:
        self._client, self._clock, self._executor, self._mine = client, clock, executor, mine
        self._tasks = TaskSet()
        self._idle_turns = IdleTurns(clock)
        self._recorder = Recorder(client, clock, COMPONENT, idle=self._idle_turns)
        self._is_started = self._is_closed = False
        self._turn = asyncio.Lock()
        self.wiring, self._notifier = self._make(settings or Settings())

    def _make(self, settings: Settings) -> tuple[Wiring, Notifier | None]:
        client, clock, mine = self._client, self._clock, self._mine
        toolbox = Toolbox(client, self._recorder, self._executor, clock.now)
        wiring = Wiring(toolbox, clock, settings, mine, self._idle_turns)
        if (notifications := settings.notifications) is None:
            return wiring, None
        return wiring, Notifier(wiring.caches, client, clock, mine, notifications)

    def start(self) -> None:
        """Start the informers, and the controllers as soon as the caches are in sync."""
        self._is_started = True
        self.wiring.caches.start(self._tasks)
        self._tasks.start(self._work(), name="controllers")

    async def reload(self, settings: Settings) -> None:
        """Restart with these settings and new caches, as after a restart of the process; nothing happens
        after `close`, which waits for the end of a reload. Raises `ValueError`; the former settings then
        stay."""
        async with self._turn:
            if self._is_closed:
                return
            made = self._make(settings)
            await self._stop()
            self.wiring, self._notifier = made
            if self._is_started:
                self.start()

    async def wait_synced(self, *, patience_s: float | None = None) -> None:
        """Return when the caches are in sync with the API server. Raises `TimeoutError` when for `patience_s`
        nothing arrives."""
        await self.wiring.caches.wait_synced(patience_s=patience_s)

    async def wait_failed(self) -> BaseException:
        """Return when a part that must never end has ended, with the reason."""
        await self._tasks.failed.wait()
        assert self._tasks.error is not None
        return self._tasks.error

    @property
    def metrics(self) -> ControllerMetrics:
        """The metrics of the work at this moment."""
        sent = self._notifier.totals if self._notifier is not None else []
        return ControllerMetrics(self.wiring, sent)

    @property
    def synced(self) -> bool:
        """Whether the caches are in sync with the API server."""
        return self.wiring.caches.synced

    @property
    def idle(self) -> bool:
        """Whether no key is due; keys that wait for their time do not count."""
        wiring = self.wiring
        # Self-checks, polls of renewal information and preflights run beside the reconciles.
        acme_is_idle = wiring.challenges.checks.idle and wiring.ari_poller.idle and wiring.preflight.idle
        return self.synced and acme_is_idle and all(controller.idle for controller in wiring.controllers)

    async def flush(self) -> None:
        """Return when the Events recorded so far have been written."""
        await self._recorder.flush()

    async def close(self) -> None:
        """Stop. Work in progress is dropped, Events too (`flush` first); the next start does it again."""
        async with self._turn:
            self._is_closed = True
            await self._stop()
            await self._recorder.close()
            self._idle_turns.close()

    async def _stop(self) -> None:
        await self._tasks.close()
        wiring = self.wiring
        if wiring.announcement is not None:
            await wiring.announcement.withdraw()
        for part in (wiring.preflight, wiring.challenges, wiring.ari_poller, wiring.ledgers, wiring.clients):
            await part.close()
        await wiring.servers.close()

    async def _work(self) -> None:
        # Only now, because a Certificate whose Secret is not cached YET would be issued again.
        await self.wiring.caches.wait_synced()
        self.wiring.gate.rebuild()
        async with asyncio.TaskGroup() as group:
            for controller in self.wiring.controllers:
                group.create_task(controller.run(), name=controller.name)
            group.create_task(self._give_back(), name="memory")
            if (leftovers := self.wiring.leftovers) is not None:
                namespace = self.wiring.namespace
                group.create_task(leftovers.run(namespace), name="left-over solver objects")
            if (services := self.wiring.services) is not None:
                group.create_task(services.follow_replicas(), name="replicas that answer challenges")
            if (announcement := self.wiring.announcement) is not None:
                group.create_task(announcement.run(), name="announcement of delivery roots")
            if (lifecycle := self.wiring.delivery_lifecycle) is not None:
                group.create_task(lifecycle.run(), name="deliveries-lifecycle")
            if self._notifier is not None:
                group.create_task(self._notifier.run(), name="notifications")

    async def _give_back(self) -> None:
        """Return the memory of the first pass over all objects to the system."""
        while not self.idle:
            await self.wiring.clock.sleep(_CHECK_EVERY_S)
        memory.give_back()
