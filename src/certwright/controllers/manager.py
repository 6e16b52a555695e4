"""Controller manager: build the controllers of `wiring.py`, start them, stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from certwright.controllers import table
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.setup import Acme
from certwright.controllers.authorities import Authorities
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import share_of, sharing_of
from certwright.controllers.issuer_tools import IssuerTools
from certwright.controllers.metrics import ControllerMetrics
from certwright.controllers.parts import Parts, Row
from certwright.controllers.queues import Queues
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.requests.members import Members
from certwright.controllers.retry.backoff import Limits
from certwright.controllers.retry.breaker import ATTEMPTS_PER_HOUR
from certwright.controllers.retry.gate import IssuerGate
from certwright.controllers.servers import Servers
from certwright.controllers.toolbox import Toolbox
from certwright.controllers.wiring import ROWS
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Controller
from certwright.kube.runtime.idle_priority import IdleTurns
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util import memory
from certwright.kube.util.clock import Clock
from certwright.kube.util.executor import Executor
from certwright.kube.util.ids import random_suffix
from certwright.kube.util.tasks import TaskSet
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES

COMPONENT = "cert-manager"
"""The reporting component of the Events."""
USER_AGENT = "certwright"
"""The User-Agent that ACME servers see."""

# Each worker mostly waits for the API server; the more writes are in progress, the more a store with group
# commit can put into one commit.
_WORKERS = 32
_LOOK_AGAIN_S = 5.0


class Controllers:
    """The controllers that `enabled` (cert-manager's `--controllers`) names, against one API server.

    `mine` selects the Certificates (with all that belongs to them) and issuers that this replica works on;
    None is all. `namespace` restricts them to one namespace, without ClusterIssuers. The Secrets of
    ClusterIssuers lie in `cluster_resource_namespace`; `filtered_secrets` False caches all Secrets in full.
    Raises `ValueError` with a sentence for invalid options.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        executor: Executor,
        *,
        enabled: str = "*",
        cluster_resource_namespace: str = "kube-system",
        namespace: str | None = None,
        backoff_minimum: timedelta = timedelta(hours=1),
        backoff_maximum: timedelta = timedelta(hours=32),
        issuer_attempts_per_hour: int = ATTEMPTS_PER_HOUR,
        certificate_owner_references: bool = False,
        copied_annotation_prefixes: Sequence[str] = COPIED_ANNOTATION_PREFIXES,
        filtered_secrets: bool = True,
        acme: AcmeOptions | None = None,
        workers: int = _WORKERS,
        suffix: Callable[[int], str] = random_suffix,
        mine: Mine | None = None,
    ) -> None:
        names = table.parse_enabled(enabled)
        self._mine = mine
        self._clock = clock
        self._tasks = TaskSet()
        self._idle_turns = IdleTurns(clock)
        self._recorder = Recorder(client, clock, COMPONENT, idle=self._idle_turns)
        self._caches = Caches(
            client,
            clock,
            namespace=namespace or "",
            cluster_resource_namespace=cluster_resource_namespace,
            signing_requests=bool(table.signer_kinds(names, table.CSR_SIGNERS)),
            filtered_secrets=filtered_secrets,
            mine=mine,
        )
        issuers = KnownIssuers(self._caches, names, cluster_resource_namespace)
        queues = Queues(clock, self._caches, mine)
        self._gate = self._make_gate(issuers, issuer_attempts_per_hour)
        options = acme or AcmeOptions()
        self._servers = Servers(client, user_agent=USER_AGENT, rules=options.policy.servers)
        toolbox = Toolbox(client, self._recorder, executor, clock.now)
        self._acme = self._make_acme(
            toolbox, options, issuers, queues, namespace or cluster_resource_namespace
        )
        parts = Parts(
            toolbox=toolbox,
            caches=self._caches,
            queues=queues,
            issuers=issuers,
            gate=self._gate,
            members=self._make_members(issuers, names),
            acme=self._acme,
            issuer_tools=IssuerTools(toolbox, self._acme.tools, self._servers.tools, options.policy),
            authorities=Authorities(
                self._caches, cluster_resource_namespace, wake=partial(queues.add, "certificates")
            ),
            enabled=names,
            mine=mine,
            secrets_of_cluster_issuers=cluster_resource_namespace,
            policy=options.policy,
            limits=Limits(minimum=backoff_minimum, maximum=backoff_maximum),
            suffix=suffix,
            owner_references=certificate_owner_references,
            copied_annotation_prefixes=copied_annotation_prefixes,
        )
        self._controllers = [self._build(row, parts, workers) for row in ROWS if row.runs(parts)]

    def _make_acme(
        self,
        toolbox: Toolbox,
        options: AcmeOptions,
        issuers: KnownIssuers,
        queues: Queues,
        namespace: str,
    ) -> Acme:
        return Acme(
            toolbox,
            caches=self._caches,
            clock=self._clock,
            options=options,
            issuers=issuers,
            distrust=queues.check_issuer,
            gate=self._gate,
            user_agent=USER_AGENT,
            namespace=namespace,
            sharing=sharing_of(self._mine, self._caches),
            servers=self._servers,
        )

    def _build(self, row: Row[Any], parts: Parts, workers: int) -> Controller:
        queue = parts.queues.create(row.name, row.precedence(parts), is_divided=row.is_divided)
        reconciler = row.build(parts)
        row.add_handlers(parts, reconciler, queue.add)
        idle = self._idle_turns if row.yields_when_idle else None
        return Controller(row.name, reconciler.reconcile, queue, workers=row.workers(workers), idle=idle)

    def _make_members(self, issuers: KnownIssuers, enabled: frozenset[str]) -> Members:
        kinds, now = table.signer_kinds(enabled), self._clock.now
        forbids = self._acme.forbids
        return Members(self._caches, issuers, self._gate, kinds=kinds, now=now, forbids=forbids)

    def _make_gate(self, issuers: KnownIssuers, attempts_per_hour: int) -> IssuerGate:
        own = share_of(attempts_per_hour, self._mine)
        return IssuerGate(
            self._caches,
            issuers.object_of,
            now=self._clock.now,
            attempts_per_hour=own,
            mine=self._mine,
            share_of_attempts=own / attempts_per_hour if attempts_per_hour > 0 else 1.0,
        )

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
        return ControllerMetrics(
            self._caches, self._controllers, self._gate, self._acme.traffic, self._clock, self._mine
        )

    @property
    def synced(self) -> bool:
        """Whether the caches are in sync with the API server."""
        return self._caches.synced

    @property
    def idle(self) -> bool:
        """Whether no key is due; keys that wait for their time do not count."""
        return self.synced and self._acme.idle and all(one.idle for one in self._controllers)

    async def flush(self) -> None:
        """Return when the Events recorded so far have been written."""
        await self._recorder.flush()

    async def close(self) -> None:
        """Stop. Work in progress is dropped, Events too (`flush` first); the next start does it again."""
        await self._tasks.close()
        await self._acme.close()
        await self._servers.close()
        await self._recorder.close()
        self._idle_turns.close()

    async def _work(self) -> None:
        # Only now, because a Certificate whose Secret is not cached YET would be issued again.
        await self._caches.wait_synced()
        self._gate.rebuild()
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.name)
            group.create_task(self._give_back(), name="memory")

    async def _give_back(self) -> None:
        """Return the memory of the first pass over all objects to the system."""
        while not self.idle:
            await self._clock.sleep(_LOOK_AGAIN_S)
        memory.give_back()
