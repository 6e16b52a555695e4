"""Controller manager: build the controllers of `wiring.py`, start them, stop them."""

from __future__ import annotations

import asyncio
from typing import Any

from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.metrics import ControllerMetrics
from certwright.controllers.notifications.notifier import Notifier
from certwright.controllers.parts import Parts, Row
from certwright.controllers.settings import Settings
from certwright.controllers.toolbox import Toolbox
from certwright.controllers.wiring import ROWS
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Controller
from certwright.kube.runtime.idle_priority import IdleTurns
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util import memory
from certwright.kube.util.clock import Clock
from certwright.kube.util.executor import Executor
from certwright.kube.util.tasks import TaskSet

COMPONENT = "cert-manager"
"""The reporting component of the Events."""
_CHECK_EVERY_S = 5.0
_SHARE = 7 / 8
"""Of the workers of a controller, for the objects of one namespace: the servers that its issuers name may
never answer, and others' issuers must not wait for their time-outs."""


class Controllers:
    """The controllers that the settings name, against one API server.

    `mine` selects the Certificates (with all that belongs to them) and issuers that this replica works on;
    None is all. Raises `ValueError` with a sentence for invalid settings.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        executor: Executor,
        settings: Settings | None = None,
        mine: Mine | None = None,
    ) -> None:
        self._tasks = TaskSet()
        self._idle_turns = IdleTurns(clock)
        self._recorder = Recorder(client, clock, COMPONENT, idle=self._idle_turns)
        toolbox = Toolbox(client, self._recorder, executor, clock.now)
        self._parts = Parts(toolbox, clock, settings or Settings(), mine)
        self._caches = self._parts.caches
        notifications = self._parts.settings.notifications
        self._notifier = (
            Notifier(self._caches, client, clock, mine, notifications) if notifications is not None else None
        )
        self._controllers = [self._build(row) for row in ROWS if row.runs(self._parts)]

    def _build(self, row: Row[Any]) -> Controller:
        parts = self._parts
        workers = row.workers(parts.settings.workers)
        queue = parts.queues.create(
            row.name,
            row.precedence(parts),
            is_divided=row.is_divided,
            most_per_namespace=max(1, int(workers * _SHARE)) if row.is_shared else None,
        )
        reconciler = row.build(parts)
        row.add_handlers(parts, reconciler, queue.add)
        idle = self._idle_turns if row.yields_when_idle else None
        return Controller(row.name, reconciler.reconcile, queue, workers=workers, idle=idle)

    def start(self) -> None:
        """Start the informers, and the controllers as soon as the caches are in sync."""
        self._caches.start(self._tasks)
        self._tasks.start(self._work(), name="controllers")

    async def wait_synced(self, *, patience_s: float | None = None) -> None:
        """Return when the caches are in sync with the API server. Raises `TimeoutError` when for `patience_s`
        nothing arrives."""
        await self._caches.wait_synced(patience_s=patience_s)

    async def wait_failed(self) -> BaseException:
        """Return when a part that must never end has ended, with the reason."""
        await self._tasks.failed.wait()
        assert self._tasks.error is not None
        return self._tasks.error

    @property
    def metrics(self) -> ControllerMetrics:
        """The metrics of the work at this moment."""
        sent = self._notifier.tallies if self._notifier is not None else []
        return ControllerMetrics(self._parts, self._controllers, self._parts.acme.traffic, sent)

    @property
    def synced(self) -> bool:
        """Whether the caches are in sync with the API server."""
        return self._caches.synced

    @property
    def idle(self) -> bool:
        """Whether no key is due; keys that wait for their time do not count."""
        return (
            self.synced and self._parts.acme.idle and all(controller.idle for controller in self._controllers)
        )

    async def flush(self) -> None:
        """Return when the Events recorded so far have been written."""
        await self._recorder.flush()

    async def close(self) -> None:
        """Stop. Work in progress is dropped, Events too (`flush` first); the next start does it again."""
        await self._tasks.close()
        await self._parts.acme.close()
        await self._parts.servers.close()
        await self._recorder.close()
        self._idle_turns.close()

    async def _work(self) -> None:
        # Only now, because a Certificate whose Secret is not cached YET would be issued again.
        await self._caches.wait_synced()
        self._parts.gate.rebuild()
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.name)
            group.create_task(self._give_back(), name="memory")
            if (leftovers := self._parts.acme.leftovers) is not None:
                namespace = self._parts.settings.namespace or ""
                group.create_task(leftovers.run(namespace), name="left-over solver objects")
            if (services := self._parts.acme.services) is not None:
                group.create_task(services.follow_replicas(), name="replicas that answer challenges")
            if self._notifier is not None:
                group.create_task(self._notifier.run(), name="notifications")

    async def _give_back(self) -> None:
        """Return the memory of the first pass over all objects to the system."""
        while not self.idle:
            await self._parts.clock.sleep(_CHECK_EVERY_S)
        memory.give_back()
