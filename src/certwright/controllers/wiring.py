"""Builder of the controllers: what each reconciles with, and the events that enqueue its keys.

The names of `--controllers`, of which some are steps of one controller here, are in `table.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from certwright.controllers import table
from certwright.controllers.acme import request_orders
from certwright.controllers.acme.ari_poller import AriPoller, EarlyRenewalInfo
from certwright.controllers.acme.caa_gate import CaaGate
from certwright.controllers.acme.challenges import ChallengeReconciler, ChallengeTools
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.clients import AcmeClients, AcmeRequests, ResolvedIssuer, creator_of
from certwright.controllers.acme.issuer_resolution import IssuerResolver
from certwright.controllers.acme.order_challenges import OrderChallenges, with_the_last
from certwright.controllers.acme.orders import OrderReconciler, OrderTools
from certwright.controllers.acme.preflight import Preflight, SolverVerification
from certwright.controllers.acme.provenance import ChallengeOrigin, Provenance
from certwright.controllers.acme.rate_limits import RateLimits
from certwright.controllers.acme.request_orders import RequestOrders
from certwright.controllers.acme.routes.services import Leftovers
from certwright.controllers.acme.solver_lookup import SolverLookup
from certwright.controllers.acme.waits import Wait
from certwright.controllers.breakers import BreakerReconciler, Probes
from certwright.controllers.cache import event_handlers as events
from certwright.controllers.cache.caches import signer_of
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import Ours, ours, sharing_of
from certwright.controllers.cainjector import reconcile as cainjector
from certwright.controllers.cainjector.targets import KINDS as CA_TARGETS
from certwright.controllers.certificates.parsed import Facts
from certwright.controllers.certificates.reconcile import CertificateReconciler, enabled_steps
from certwright.controllers.context import USER_AGENT, Context
from certwright.controllers.deliveries.cache import enqueue_deliveries, follow_deliveries
from certwright.controllers.deliveries.hooks import Hooks
from certwright.controllers.deliveries.reconcile import DeliveryReconciler, Tools
from certwright.controllers.issuer_gate import issuance_of
from certwright.controllers.issuer_sets import SetReconciler
from certwright.controllers.issuers import IssuerReconciler, IssuerTools
from certwright.controllers.precedence import ChallengePrecedence, OrderPrecedence, Precedence, Urgency
from certwright.controllers.requests.certificate_requests import RequestReconciler
from certwright.controllers.requests.members import Members
from certwright.controllers.requests.signing import Signing
from certwright.controllers.requests.signing_requests import SigningRequestReconciler, reference_review
from certwright.controllers.settings import Settings
from certwright.controllers.shims import reconcile as shim_handlers
from certwright.controllers.shims.reconcile import ShimReconciler
from certwright.controllers.shims.sources import follow_sources
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import AcmeTools, GetSecret, IssuerView, SolverProblem
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Controller, Result
from certwright.kube.runtime.idle_priority import IdleTurns
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import Clock
from certwright.resources.acme import Challenge, Order
from certwright.resources.delivery import Delivery
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS

# Challenges also wait for a CA, so they get this many times more workers. Orders do not, because many that
# begin together would then finish late, and all together.
_FOR_A_CA = 4
_EQUAL = Precedence()
_SHARE = 7 / 8
"""Of the workers of a controller, for the objects of one namespace: the servers that its issuers name may
never answer, and others' issuers must not wait for their time-outs."""


class Reconciler(Protocol):
    """A reconciler of one kind of object."""

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one object from its actual to its desired state."""


class Wiring(Context):
    """All controllers of one process, in the order in which they are built, ACME included."""

    def __init__(
        self, toolbox: Toolbox, clock: Clock, settings: Settings, mine: Mine | None, idle: IdleTurns
    ) -> None:
        super().__init__(toolbox, clock, settings, mine)
        self.controllers: list[Controller] = []
        self._idle = idle
        self._urgency = Urgency(self.caches, toolbox.now)
        self._kinds = table.signer_kinds(self.enabled)
        self._build_acme()
        self._tools = IssuerTools(
            toolbox, self.caches.secrets, self._acme_tools, self.servers.tools, settings.acme.policy
        )
        self._add_certificates()
        self._add_requests()
        self._add_issuers()
        self._add_acme()
        self._add_shims()
        self._add_others()

    def _build_acme(self) -> None:
        caches, toolbox, options, now = self.caches, self.toolbox, self.settings.acme, self.clock.now
        self._dependents: Dependents[ObjectKey] = Dependents()  # Orders and Challenges, by Secrets read
        caches.orders.add_handler(self._forget_dependents)
        caches.challenges.add_handler(self._forget_dependents)
        self.acme_requests = AcmeRequests()
        self.clients = AcmeClients(
            toolbox, options, user_agent=USER_AGENT, observe=self.acme_requests.observe
        )
        self._resolver = IssuerResolver(
            self.issuers,
            caches.secrets,
            self._dependents,
            registry=self.clients.registry,
            distrust=self.recheck,
            signer_of=partial(signer_of, caches),
            now=now,
        )
        self.ledgers = RateLimits(
            client=toolbox.client,
            caches=caches,
            clock=self.clock,
            find_issuer=self.issuers.find,
            namespace=self.namespace or self.secrets_of_cluster_issuers,
            chosen=options.limits,
            sharing=sharing_of(self.mine, caches),
        )
        lookup = SolverLookup(self, self._dependents)
        self._has_challenges = table.CHALLENGES in self.enabled
        self.services = lookup.services if self._has_challenges else None
        """The Services that lead to challenges; None: this process creates no Ingresses or HTTPRoutes."""
        self.leftovers = (
            Leftovers(toolbox.client, self.clock, caches.challenges, self.services) if self.services else None
        )
        self._solvers = SolverVerification(lookup, options, now)
        self.preflight = Preflight(lookup, options, self.adder("orders"), now)
        self.renewals = AriPoller(self._resolver.client_of, self.adder("certificates"), now=now)
        self.provenance = Provenance(caches)
        self._request_orders = RequestOrders(
            toolbox.client,
            caches,
            self.issuers.of_request,
            self.provenance,
            executor=toolbox.executor,
            now=now,
        )
        circuit_gate = CircuitGate(
            self.gate,
            self._check_solvers,
            self.ledgers.admit,
            self.ledgers.limit_of,
            caches.requests.cache.get,
            caches.orders.cache.get,
        )
        self._members = Members(
            caches,
            self.issuers,
            self.gate,
            kinds=self._kinds,
            now=now,
            forbids=CaaGate(self.issuers, self._resolver, options.dns01_nameservers).forbids,
        )
        self._orders = OrderReconciler(
            caches.orders,
            toolbox,
            OrderTools(
                challenges=OrderChallenges(
                    caches.challenges, toolbox.client, lambda order: caches.challenges_of(order.metadata)
                ),
                orders_at=caches.orders_at,
                superseded=partial(request_orders.superseded, caches, now),
                wake=self.adder("orders"),
                has_issued=partial(request_orders.has_issued, caches),
                is_proven=self._is_proven,
                problem_of=self.provenance.problem_of_order,
                resolve_issuer=lambda order: self._resolver.find(order.spec.issuer_ref, order.metadata),
                circuit_gate=circuit_gate,
                limited=self.ledgers.limited,
                distrust=self.recheck,
                downloaded=EarlyRenewalInfo(self.renewals, caches.requests.cache.get).poll,
                members=self._members,
            ),
        )
        enqueue_order = events.enqueues_order(caches, self.adder("orders"))
        self.challenges = ChallengeReconciler(
            caches.challenges,
            toolbox,
            ChallengeTools(
                origin=ChallengeOrigin(self.provenance, self._resolver.account_of, self._orders.described),
                resolve_issuer=lambda challenge: self._resolver.find(
                    challenge.spec.issuer_ref, challenge.metadata
                ),
                find_means=lookup.means_of,
                circuit_gate=circuit_gate,
                wake=self.adder("challenges"),
                enqueue_order=(
                    with_the_last(caches, self._is_proven, enqueue_order)
                    if table.ORDERS in self.enabled
                    else None
                ),
            ),
            options,
        )

    def _acme_tools(self, secrets_in: str) -> AcmeTools:
        """What the ACME issuer uses; its Secrets lie in the namespace `secrets_in`."""

        async def verify(issuer: IssuerView, get_secret: GetSecret) -> Sequence[SolverProblem]:
            return await self._solvers.problems(issuer, get_secret, secrets_in)

        return AcmeTools(
            registry=self.clients.registry,
            create_secret=creator_of(self.toolbox.client, self.caches.secrets, secrets_in),
            ensure_order=self._request_orders.ensure,
            account_limit=self.ledgers.accounts,
            verify_solvers=verify if self._has_challenges else None,
        )

    async def _check_solvers(self, order: Order, issuer: ResolvedIssuer) -> Wait | None:
        return await self.preflight.admit(order, issuer) if self._has_challenges else None

    def _is_proven(self, challenge: Challenge) -> bool:
        return self.challenges.is_proven(challenge)

    def _forget_dependents(self, old: Order | Challenge | None, new: Order | Challenge | None) -> None:
        done = new if new is not None and new.status.is_final else old if new is None else None
        if done is not None:
            if isinstance(done, Order):
                self._orders.ended(done.metadata.key)
            self._dependents.keep_only(done.metadata.key, ())
            self.preflight.forget(done.metadata.key)

    def _add(
        self,
        name: str,
        reconciler: Reconciler,
        precedence: Precedence = _EQUAL,
        *,
        workers: int | None = None,
        is_divided: bool = True,
        is_shared: bool = False,
        yields_when_idle: bool = True,
    ) -> Add:
        """Add a controller, and return what enqueues its keys.

        Keys are this replica's only, unless `is_divided` is False. Namespaces take turns; with
        `is_shared` one never occupies all `workers` (None: as configured).
        """
        workers = workers or self.settings.workers
        admit: Ours | None = None
        if self.mine is not None and is_divided:
            admit = own = ours(name, self.mine, self.caches)
            if name in ("issuers", "clusterissuers"):
                admit = lambda issuer: issuer in self.rechecked or own(issuer)  # noqa: E731
        flow = precedence.flow
        queue: WorkQueue[ObjectKey] = WorkQueue(
            self.clock,
            rank=precedence.rank,
            flow=lambda key: (key.namespace, flow(key)) if flow is not None else (key.namespace,),
            admit=admit,
            most_per_flow=max(1, int(workers * _SHARE)) if is_shared else None,
        )
        self.queues[name] = queue
        idle = self._idle if yields_when_idle else None
        self.controllers.append(Controller(name, reconciler.reconcile, queue, workers=workers, idle=idle))
        return queue.add

    def _add_certificates(self) -> None:
        caches = self.caches
        steps = enabled_steps(self.enabled, self.settings, self.gate, self.renewals, caches.has_failed_at)
        certificates = CertificateReconciler(
            steps,
            self.toolbox,
            caches=caches,
            facts=Facts(),
            authorities=self.authorities,
            suffix=self.settings.suffix,
        )
        add = self._add("certificates", certificates, self._urgency.certificates, is_shared=True)
        # Before the key is enqueued.
        caches.certificates.add_handler(self.gate.certificate_changed)
        caches.certificates.add_handler(self.renewals.certificate_changed)
        events.enqueue_certificates(caches, add)
        events.enqueue_with_secrets(caches.secrets, add, certificates.dependents)
        self.gate.on_release(self._enqueue_issuance)
        # The CA is known Certificate by Certificate.
        add = self._add("authorities", self.authorities, workers=1, is_divided=False, yields_when_idle=False)
        self.authorities.on_change(add)

    def _enqueue_issuance(self, applicant: ObjectKey) -> None:
        """Enqueue an applicant and its issuance: the open request, its Order, its Challenges."""
        for controller, key in issuance_of(self.caches, applicant):
            self.enqueue(controller, key)

    def _add_requests(self) -> None:
        caches = self.caches
        signing = Signing(
            self.issuers.of_request,
            kinds=self._kinds,
            now=self.toolbox.now,
            namespaced=caches.cluster_issuers is None,
            gate=self.gate,
        )
        requests = RequestReconciler(
            signing,
            self._tools,
            approves=table.APPROVER in self.enabled,
            requests=caches.requests,
            secrets=caches.secrets,
            secrets_of=self.issuers.secrets_of,
            members=self._members,
        )
        add = self._add("certificaterequests", requests, self._urgency.requests, is_shared=True)
        events.enqueue_requests(caches, add)
        events.enqueue_with_member(caches, add)
        events.enqueue_with_issuer(caches, add, caches.requests_for)
        events.enqueue_with_secrets(caches.secrets, add, requests.dependents)
        if caches.signing_requests is None:
            return
        signing_requests = SigningRequestReconciler(
            self.issuers.of_signer,
            self._tools,
            self.gate,
            kinds=table.signer_kinds(self.enabled, table.CSR_SIGNERS),
            may_reference=reference_review(self.toolbox.client),
            requests=caches.signing_requests,
            secrets=caches.secrets,
            secrets_in=lambda signer: signer.namespace or self.secrets_of_cluster_issuers,
        )
        add = self._add("certificatesigningrequests", signing_requests)
        events.enqueue_own(caches.signing_requests, add)
        events.enqueue_with_order(caches, add, CERTIFICATE_SIGNING_REQUESTS)
        events.enqueue_with_issuer(caches, add, caches.signing_requests_for)
        events.enqueue_with_secrets(caches.secrets, add, signing_requests.dependents)

    def _add_issuers(self) -> None:
        caches, checked = self.caches, self.gate.checked
        if table.ISSUERS in self.enabled:
            issuers = IssuerReconciler(caches.issuers, self._tools, checked)
            add = self._add("issuers", issuers, is_shared=True)
            events.enqueue_issuers(caches.issuers, add)
            events.enqueue_with_secrets(caches.secrets, add, issuers.dependents)
        if table.CLUSTER_ISSUERS in self.enabled and caches.cluster_issuers is not None:
            secrets_in = self.secrets_of_cluster_issuers
            cluster_issuers = IssuerReconciler(caches.cluster_issuers, self._tools, checked, secrets_in)
            add = self._add("clusterissuers", cluster_issuers)
            events.enqueue_issuers(caches.cluster_issuers, add)
            events.enqueue_with_secrets(caches.secrets, add, cluster_issuers.dependents)
        if table.ISSUER_SETS in self.enabled:
            sets = caches.sets.namespaced
            add = self._add("issuersets", SetReconciler(sets, self._members, self.toolbox))
            events.enqueue_sets(caches, add, sets)
        if table.CLUSTER_ISSUER_SETS in self.enabled and caches.sets.cluster is not None:
            cluster_sets = caches.sets.cluster
            add = self._add("clusterissuersets", SetReconciler(cluster_sets, self._members, self.toolbox))
            events.enqueue_sets(caches, add, cluster_sets)

    def _add_acme(self) -> None:
        caches = self.caches
        if table.ORDERS in self.enabled:
            first = OrderPrecedence(caches, self._urgency, self.challenges.is_proven)
            add = self._add("orders", self._orders, Precedence(first.rank, first.flow), is_shared=True)
            self.ledgers.start(add)
            events.enqueue_orders(caches, add)
            events.enqueue_with_issuer(caches, add, caches.orders_for)
            events.enqueue_orders_with_member(caches, add)
            events.enqueue_with_secrets(caches.secrets, add, self._dependents)
        if self._has_challenges:
            seen = ChallengePrecedence(caches, self.challenges.is_seen)
            add = self._add(
                "challenges",
                self.challenges,
                Precedence(seen.rank, seen.flow),
                workers=_FOR_A_CA * self.settings.workers,
                is_shared=True,
                yields_when_idle=False,
            )
            events.enqueue_challenges(caches, add)
            events.enqueue_refused(caches, add, self.challenges.refused)
            events.enqueue_with_issuer(caches, add, caches.challenges_for)
            events.enqueue_with_secrets(caches.secrets, add, self._dependents)

    def _add_shims(self) -> None:
        self.sources = sources = follow_sources(
            self.toolbox.client, self.clock, self.namespace, self.settings.shims, self.enabled
        )
        self.caches.add(sources.all)

        def add_shim(name: str, informer: Informer[Any], *, is_shared: bool = True) -> Add:
            shim = ShimReconciler(
                informer,
                self.caches,
                self.toolbox,
                options=self.settings.shims,
                inherited=sources.inherited,
                lacks_issuer=self.issuers.lacks,
            )
            add = self._add(name, shim, is_shared=is_shared)
            shim_handlers.enqueue_own(informer, add)
            shim_handlers.enqueue_with_certificates(informer, self.caches, add)
            return add

        if sources.ingresses is not None:
            add_shim("ingress-shim", sources.ingresses)
        if (
            sources.gateways is not None
            and table.GATEWAY_SHIM in self.enabled
            and self.settings.shims.gateways
        ):
            add_shim("gateway-shim", sources.gateways)
        for name, listener_sets, is_shared in (
            ("listenerset", sources.listener_sets, True),
            ("xlistenerset", sources.experimental_listener_sets, False),
        ):
            if listener_sets is not None:
                add = add_shim(name, listener_sets, is_shared=is_shared)
                shim_handlers.enqueue_with_parents(listener_sets, sources, add)

    def _add_others(self) -> None:
        caches, client, settings = self.caches, self.toolbox.client, self.settings
        # CA targets are not in a namespace: with one, there are no rights to them.
        kinds = CA_TARGETS if table.CA_INJECTOR in self.enabled and not self.namespace else ()
        self.ca_targets = [cainjector.follow_targets(client, self.clock, kind) for kind in kinds]
        caches.add(self.ca_targets)
        for informer in self.ca_targets:
            injector = cainjector.CAInjector(
                informer, caches, self.toolbox, api_server_ca=settings.api_server_ca, mine=self.mine
            )
            # By the Certificate of the CA.
            add = self._add(f"cainjector-{informer.kind.plural}", injector, workers=1, is_divided=False)
            events.enqueue_own(informer, add)
            cainjector.enqueue_with_certificates(informer, caches, add)
            events.enqueue_with_secrets(caches.secrets, add, injector.dependents)
        self.deliveries: Informer[Delivery] | None = None
        options = settings.deliveries
        if table.DELIVERIES in self.enabled and options.roots:
            self.deliveries = follow_deliveries(client, self.clock, self.namespace, options)
            caches.add((self.deliveries,))
            tools = Tools(Hooks(options, self.clock).run)
            deliveries = DeliveryReconciler(self.deliveries, caches, self.toolbox, options, tools)
            # The roots are of the machine, not of the shard.
            add = self._add(
                "deliveries", deliveries, is_divided=False, is_shared=True, yields_when_idle=False
            )
            enqueue_deliveries(self.deliveries, caches, options, add)
            events.enqueue_with_secrets(caches.secrets, add, deliveries.dependents)
        probe_acme = self._resolver.probe
        breakers = BreakerReconciler(
            self.gate,
            caches,
            self.toolbox,
            Probes(self.issuers, self._tools, acme=probe_acme).probe,
            check=self.check_issuer,
            owns=self.mine if self.mine is not None else lambda _issuer: True,
        )
        # Each replica records its own results; only probes are the owner's.
        add = self._add("circuit-breakers", breakers, is_divided=False, yields_when_idle=False)
        self.gate.on_change(add, breakers.save)
        for issuers in (caches.issuers, caches.cluster_issuers):
            if issuers is not None:
                issuers.add_handler(self.gate.issuer_changed)
