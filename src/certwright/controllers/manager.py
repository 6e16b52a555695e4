"""Controller manager: build the controllers, start them, stop them.

All wiring is here: which change of which object enqueues which key (by `event_handlers.py`). The reconcilers
lie in the modules that `table.py` names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from certwright.controllers import table
from certwright.controllers.acme.priorities import ChallengePrecedence, OrderPrecedence
from certwright.controllers.acme.setup import Acme, AcmeOptions
from certwright.controllers.authorities import Authorities
from certwright.controllers.breakers import BreakerReconciler
from certwright.controllers.cache.caches import Caches, is_finished, owner_value, secret_value
from certwright.controllers.cache.event_handlers import (
    add_owner,
    add_owner_of_request,
    key_of,
    sharing,
    wake_challenges,
    wake_orders,
    wake_refused,
    wake_requests,
    wake_with_issuer,
    wake_with_secrets,
)
from certwright.controllers.cache.own_writes import is_own_write
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import Ours, ours, share_of, sharing_of
from certwright.controllers.certificates.contention import Fights
from certwright.controllers.certificates.effects import Effects
from certwright.controllers.certificates.issuing import Issuing
from certwright.controllers.certificates.keys import Keys
from certwright.controllers.certificates.parsed import Facts
from certwright.controllers.certificates.readiness import Readiness
from certwright.controllers.certificates.reconcile import CertificateReconciler
from certwright.controllers.certificates.renewal_info import RenewalInformation
from certwright.controllers.certificates.requests import Requests
from certwright.controllers.certificates.revisions import Revisions
from certwright.controllers.certificates.secret_sync import Upkeep
from certwright.controllers.certificates.trigger import Trigger
from certwright.controllers.issuers import IssuerReconciler
from certwright.controllers.metrics import ControllerMetrics
from certwright.controllers.probes import Probes
from certwright.controllers.requests.certificate_requests import RequestReconciler
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.requests.signing import Signing
from certwright.controllers.requests.signing_requests import SigningRequestReconciler, reference_review
from certwright.controllers.retry.backoff import Limits
from certwright.controllers.retry.breaker import ATTEMPTS_PER_HOUR
from certwright.controllers.retry.gate import IssuerGate
from certwright.controllers.servers import Servers
from certwright.issuers.contract import IssuerView
from certwright.kube.api.core import Secret
from certwright.kube.api.meta import Object, ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.commit import StatusWriter
from certwright.kube.runtime.controller import Controller, Reconcile
from certwright.kube.runtime.idle_priority import IdleTurns
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util import memory
from certwright.kube.util.clock import Clock
from certwright.kube.util.executor import Executor
from certwright.kube.util.ids import random_suffix
from certwright.kube.util.tasks import TaskSet
from certwright.resources.certificate import Certificate
from certwright.resources.challenge import Challenge
from certwright.resources.issuer import ClusterIssuer
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS

T = TypeVar("T", bound=Object)
Rank = Callable[[ObjectKey], float]
Flow = Callable[[ObjectKey], Hashable]

COMPONENT = "cert-manager"
"""The reporting component of the Events."""
USER_AGENT = "certwright"
"""The User-Agent that ACME servers see."""

# Each worker mostly waits for the API server; the more writes are in progress, the more a store with group
# commit can put into one commit.
_WORKERS = 32
# The controller of Challenges also waits for a CA, so it gets this many times more workers. The controller of
# Orders does not, because many Orders that begin together would then finish late, and all together.
_FOR_A_CA = 4
_A_DAY = timedelta(days=1)
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
        self._mine, self._options = mine, acme or AcmeOptions()
        self._copied = copied_annotation_prefixes
        self._looked_at: set[ObjectKey] = set()
        self._enabled = table.parse_enabled(enabled)
        self._cluster_resource_namespace = cluster_resource_namespace
        self._client = client
        self._clock = clock
        self._executor = executor
        self._workers = workers
        self._tasks = TaskSet()
        self._idle_turns = IdleTurns(clock)
        self._recorder = Recorder(client, clock, COMPONENT, idle=self._idle_turns)
        self._caches = Caches(
            client,
            clock,
            namespace=namespace or "",
            cluster_resource_namespace=cluster_resource_namespace,
            signing_requests=bool(table.signer_kinds(self._enabled, table.CSR_SIGNERS)),
            filtered_secrets=filtered_secrets,
            mine=mine,
        )
        self._issuers = KnownIssuers(self._caches, self._enabled, cluster_resource_namespace)
        self._controllers: list[Controller] = []
        self._gate = self._make_gate(issuer_attempts_per_hour)
        self._servers = Servers(client, user_agent=USER_AGENT, rules=self._options.policy.servers)
        self._acme = Acme(
            client=client,
            caches=self._caches,
            clock=clock,
            recorder=self._recorder,
            options=self._options,
            issuers=self._issuers,
            distrust=self._look_at_issuer,
            gate=self._gate,
            user_agent=USER_AGENT,
            namespace=namespace or cluster_resource_namespace,
            executor=executor,
            sharing=sharing_of(mine, self._caches),
        )
        limits = Limits(minimum=backoff_minimum, maximum=backoff_maximum)
        self._build_certificates(limits, suffix, owner_references=certificate_owner_references)
        self._build_requests()
        self._build_signing_requests()
        self._build_issuers()
        self._build_acme()
        self._build_breakers()

    def _make_gate(self, attempts_per_hour: int) -> IssuerGate:
        own = share_of(attempts_per_hour, self._mine)
        return IssuerGate(
            self._caches,
            self._issuers.object_of,
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

    def _controller(
        self,
        name: str,
        reconcile: Reconcile,
        rank: Rank | None = None,
        flow: Flow | None = None,
    ) -> Controller:
        queue = self._queue(name, rank, flow)
        controller = Controller(name, reconcile, queue, workers=self._workers, idle=self._idle_turns)
        self._controllers.append(controller)
        return controller

    def _queue(self, name: str, rank: Rank | None = None, flow: Flow | None = None) -> WorkQueue[ObjectKey]:
        admit = ours(name, self._mine, self._caches) if self._mine is not None else None
        if admit is not None and name in ("issuers", "clusterissuers"):
            admit = partial(self._is_looked_after, admit)
        return WorkQueue(self._clock, rank=rank, flow=flow, admit=admit)

    def _build_certificates(
        self, limits: Limits, suffix: Callable[[int], str], *, owner_references: bool
    ) -> None:
        caches, facts = self._caches, Facts()
        authorities = Authorities(caches, self._cluster_resource_namespace, wake=lambda key: queue.add(key))
        fights, trigger = Fights(limits), Trigger(limits, self._gate)
        keys, requests = Keys(), Requests(self._copied)
        issuing = Issuing(limits, owns_secrets=owner_references)
        upkeep = Upkeep(owns_secrets=owner_references)
        readiness, revisions = Readiness(), Revisions()
        office = self._acme.renewal_office(lambda key: queue.add(key))
        renewal_info = RenewalInformation(office)
        on = self._enabled
        reconciler = CertificateReconciler(
            deciders=_rows(
                on,
                (table.TRIGGER, fights),
                (table.TRIGGER, trigger),
                (table.KEYS, keys),
                (table.ISSUING, issuing),
                (table.ISSUING, upkeep),
                (table.READINESS, renewal_info),
                (table.READINESS, readiness),
            ),
            actors=_rows(
                on,
                (table.KEYS, keys),
                (table.REQUESTS, requests),
                (table.ISSUING, issuing),
                (table.ISSUING, upkeep),
                (table.REVISIONS, revisions),
                (table.READINESS, renewal_info),
            ),
            wakers=_rows(
                on,
                (table.TRIGGER, trigger),
                (table.ISSUING, issuing),
                (table.ISSUING, upkeep),
                (table.READINESS, renewal_info),
                (table.READINESS, readiness),
            ),
            caches=caches,
            facts=facts,
            effects=Effects(self._client, caches, facts, self._executor, self._recorder),
            status=StatusWriter(self._client, caches.certificates),
            client=self._client,
            authority_of=authorities.of,
            issuer_of=authorities.issuer_of,
            now=self._clock.now,
            suffix=suffix,
        )
        queue = self._controller("certificates", reconciler.reconcile, self._expiry).queue
        self._wire_certificates(queue, office.forget)
        wake_with_secrets(caches.secrets, queue.add, reconciler.dependents)
        # Not divided among shards, because the CA is known Certificate by Certificate.
        looks = Controller("authorities", authorities.reconcile, WorkQueue(self._clock), workers=1)
        self._controllers.append(looks)
        authorities.on_change(looks.queue.add)
        self._gate.on_release(self._wake)

    def _wake(self, key: ObjectKey, at: datetime) -> None:
        """Enqueue a Certificate and its issuance at that time: its open request, the Order of that, its
        Challenges."""
        delay = at - self._clock.now()
        named = {controller.name: controller.queue for controller in self._controllers}
        named["certificates"].add_after(key, delay)
        for request in self._caches.requests_of(owner_value(*key)):
            if is_finished(request):
                continue
            named["certificaterequests"].add_after(request.metadata.key, delay)
            for order in self._caches.orders_of(request.metadata):
                if (orders := named.get("orders")) is not None:
                    orders.add_after(order.metadata.key, delay)
                if (challenges := named.get("challenges")) is not None:
                    for challenge in self._caches.challenges_of(order.metadata):
                        challenges.add_after(challenge.metadata.key, delay)

    def _expiry(self, key: ObjectKey) -> float:
        """When more keys are due than can run, those whose certificate expires first go first. A Certificate
        without one is as urgent as one that expires tomorrow."""
        return self._caches.ends_at(key) or (self._clock.now() + _A_DAY).timestamp()

    def _wire_certificates(self, queue: WorkQueue[ObjectKey], forget: Callable[[str], None]) -> None:
        caches = self._caches

        def add(key: ObjectKey) -> None:
            if not is_own_write(CERTIFICATES, key):
                queue.add(key)

        def certificate_changed(old: Certificate | None, new: Certificate | None) -> None:
            add(key_of(old, new))
            if old is not None and new is None:
                forget(old.metadata.uid)
            if old is None or new is None or old.spec.secret_name != new.spec.secret_name:
                # Others with the same secretName may win or lose their right to it.
                for one in (old, new):
                    for rival in sharing(caches, one):
                        add(rival)

        def secret_changed(secret: ObjectKey, states: Sequence[Secret]) -> None:
            for key in caches.certificate_keys_for(secret_value(*secret)):
                add(key)
            add_owner(add, *states)

        caches.certificates.add_handler(self._gate.certificate_changed)
        caches.certificates.add_handler(certificate_changed)
        caches.requests.add_handler(partial(add_owner_of_request, add))
        caches.secrets.add_handler(secret_changed)

    def _build_requests(self) -> None:
        caches = self._caches
        signing = Signing(
            self._issuers.of_request,
            kinds=table.signer_kinds(self._enabled),
            now=self._clock.now,
            namespaced=caches.cluster_issuers is None,
            gate=self._gate,
        )
        reconciler = RequestReconciler(
            signing,
            approves=table.APPROVER in self._enabled,
            requests=caches.requests,
            secrets=caches.secrets,
            secrets_of=self._issuers.secrets_of,
            status=StatusWriter(self._client, caches.requests),
            recorder=self._recorder,
            executor=self._executor,
            acme=self._acme.tools,
            servers=self._servers.tools,
            now=self._clock.now,
        )
        add = self._controller("certificaterequests", reconciler.reconcile).queue.add
        wake_requests(caches, add)
        wake_with_issuer(self._caches, add, caches.requests_for)
        wake_with_secrets(caches.secrets, add, reconciler.dependents)

    def _build_signing_requests(self) -> None:
        caches, informer = self._caches, self._caches.signing_requests
        if informer is None:
            return
        reconciler = SigningRequestReconciler(
            self._issuers.of_signer,
            kinds=table.signer_kinds(self._enabled, table.CSR_SIGNERS),
            may_reference=reference_review(self._client),
            requests=informer,
            secrets=caches.secrets,
            secrets_in=lambda signer: signer.namespace or self._cluster_resource_namespace,
            status=StatusWriter(self._client, informer),
            recorder=self._recorder,
            executor=self._executor,
            servers=self._servers.tools,
            now=self._clock.now,
        )
        add = self._controller("certificatesigningrequests", reconciler.reconcile).queue.add
        informer.add_handler(lambda old, new: add(key_of(old, new)))
        wake_with_issuer(self._caches, add, caches.signing_requests_for)
        wake_with_secrets(caches.secrets, add, reconciler.dependents)

    def _build_issuers(self) -> None:
        caches = self._caches
        if table.ISSUERS in self._enabled:
            namespaced = IssuerReconciler(
                ISSUERS,
                informer=caches.issuers,
                secrets=caches.secrets,
                secrets_in=lambda issuer: issuer.metadata.namespace,
                status=StatusWriter(self._client, caches.issuers),
                recorder=self._recorder,
                executor=self._executor,
                acme=self._acme.tools,
                servers=self._servers.tools,
                policy=self._options.policy,
                now=self._clock.now,
            )
            add = self._controller("issuers", namespaced.reconcile).queue.add
            caches.issuers.add_handler(lambda old, new: add(key_of(old, new)))
            wake_with_secrets(caches.secrets, add, namespaced.dependents)
        if table.CLUSTER_ISSUERS in self._enabled and caches.cluster_issuers is not None:
            self._build_cluster_issuers(caches.cluster_issuers)

    def _build_cluster_issuers(self, informer: Informer[ClusterIssuer]) -> None:
        reconciler = IssuerReconciler(
            CLUSTER_ISSUERS,
            informer=informer,
            secrets=self._caches.secrets,
            secrets_in=lambda _: self._cluster_resource_namespace,
            status=StatusWriter(self._client, informer),
            recorder=self._recorder,
            executor=self._executor,
            acme=self._acme.tools,
            servers=self._servers.tools,
            policy=self._options.policy,
            now=self._clock.now,
        )
        add = self._controller("clusterissuers", reconciler.reconcile).queue.add
        informer.add_handler(lambda old, new: add(key_of(old, new)))
        wake_with_secrets(self._caches.secrets, add, reconciler.dependents)

    def _build_acme(self) -> None:
        caches = self._caches
        tell_order = self._build_orders() if table.ORDERS in self._enabled else None
        if table.CHALLENGES in self._enabled:
            precedence = ChallengePrecedence(caches, lambda key: challenges.is_seen(key))
            queue = self._queue("challenges", precedence.rank, precedence.flow)
            challenges = self._acme.challenges(queue.add, tell_order)
            self._controllers.append(
                Controller("challenges", challenges.reconcile, queue, workers=_FOR_A_CA * self._workers)
            )
            wake_challenges(caches, queue.add)
            wake_refused(caches, queue.add, challenges.refused)
            wake_with_issuer(self._caches, queue.add, caches.challenges_for)
            wake_with_secrets(caches.secrets, queue.add, self._acme.dependents)

    def _build_breakers(self) -> None:
        mine = self._mine
        probes = Probes(
            self._issuers,
            self._caches.secrets,
            self._servers,
            acme=self._acme.probe,
            executor=self._executor,
            now=self._clock.now,
        )
        reconciler = BreakerReconciler(
            self._gate,
            self._caches,
            self._client,
            probes.probe,
            owns=mine if mine is not None else lambda _issuer: True,
            now=self._clock.now,
        )
        # Each replica records its own results; only probes are the owner's.
        queue: WorkQueue[ObjectKey] = WorkQueue(self._clock)
        self._controllers.append(Controller("circuit-breakers", reconciler.reconcile, queue))
        self._gate.on_change(queue.add, reconciler.save)
        self._caches.issuers.add_handler(self._gate.issuer_changed)
        if self._caches.cluster_issuers is not None:
            self._caches.cluster_issuers.add_handler(self._gate.issuer_changed)

    def _build_orders(self) -> Callable[[Challenge], None]:
        """Returns a function that enqueues the Order of a Challenge."""
        caches, orders = self._caches, self._acme.orders()
        first = OrderPrecedence(caches, self._acme.is_proven)
        add = self._controller("orders", orders.reconcile, first.rank, first.flow).queue.add
        self._acme.ledgers.start(add)
        tell_order = wake_orders(caches, add)
        wake_with_issuer(caches, add, caches.orders_for)
        wake_with_secrets(caches.secrets, add, self._acme.dependents)
        return tell_order

    def _is_looked_after(self, admit: Ours, issuer: ObjectKey) -> bool | None:
        return issuer in self._looked_at or admit(issuer)

    def _look_at_issuer(self, issuer: IssuerView) -> None:
        # Another replica's, too, because the state of an account at its server is known in this process only.
        self._looked_at.add(ObjectKey(issuer.namespace, issuer.name))
        name = "clusterissuers" if issuer.kind == CLUSTER_ISSUERS.kind else "issuers"
        for controller in self._controllers:
            if controller.name == name:
                controller.queue.add(ObjectKey(issuer.namespace, issuer.name))


S = TypeVar("S")


def _rows(enabled: frozenset[str], *rows: tuple[str, S]) -> list[S]:
    return [step for name, step in rows if name in enabled]
