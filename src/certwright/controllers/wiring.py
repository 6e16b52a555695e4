"""Builder of the controllers: the dependencies of each reconciler, and the events that enqueue its keys.

`table.py` has the names of `--controllers`; several of them may be steps of one controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from certwright.controllers import table
from certwright.controllers.acme import request_orders
from certwright.controllers.acme.ari_poller import AriPoller
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
from certwright.controllers.authorities import Authorities
from certwright.controllers.cache import event_handlers as events
from certwright.controllers.cache.caches import Caches, signer_reference
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import Ours, ours, sharing_of
from certwright.controllers.cainjector import reconcile as cainjector
from certwright.controllers.cainjector.targets import KINDS as CA_TARGETS
from certwright.controllers.certificates.reconcile import CertificateReconciler, enabled_steps
from certwright.controllers.deliveries.cache import enqueue_deliveries, follow_deliveries
from certwright.controllers.deliveries.hooks import Hooks
from certwright.controllers.deliveries.lifecycle import Announcement, DeliveryLifecycle
from certwright.controllers.deliveries.permissions import DeliveryOptions
from certwright.controllers.deliveries.reconcile import DeliveryReconciler
from certwright.controllers.issuer_gate import IssuerGate, issuance_of
from certwright.controllers.issuer_sets import IssuerSetReconciler
from certwright.controllers.issuers import IssuerReconciler, IssuerTools, SecretReader
from certwright.controllers.precedence import Precedence, Urgency
from certwright.controllers.requests.certificate_requests import CertificateRequestReconciler
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.requests.members import Members
from certwright.controllers.requests.signing import Signing
from certwright.controllers.requests.signing_requests import SigningRequestReconciler, reference_review
from certwright.controllers.servers import Servers
from certwright.controllers.settings import Settings
from certwright.controllers.shims import reconcile as shim_handlers
from certwright.controllers.shims.reconcile import ShimReconciler
from certwright.controllers.shims.sources import follow_sources
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import AcmeTools, GetSecret, IssuerView, SolverProblem
from certwright.issuers.table import PROBED, kind_of
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Controller, Result
from certwright.kube.runtime.idle_priority import IdleTurns
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import Clock
from certwright.resources.acme import Challenge, Order
from certwright.resources.delivery import Delivery
from certwright.resources.references import reference_to
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS

# Challenges also wait for a CA, so they get this many times more workers. Orders do not, because many that
# begin together would then finish late, and all together.
_FOR_A_CA = 4
_EQUAL = Precedence()
USER_AGENT = "certwright"
"""The User-Agent that servers of issuers see."""
_SHARE = 7 / 8
"""Of the workers of a controller, for the objects of one namespace: the servers that its issuers name may
never answer, and others' issuers must not wait for their time-outs."""


class Reconciler(Protocol):
    """Reconciles the objects of one kind."""

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring the object from its actual to its desired state."""


class Wiring:
    """All controllers of one process, with their shared caches, issuers, circuit breakers and work queues
    (cert-manager's `controller.Context`), in the order in which they are built.

    `mine` selects the Certificates (with their requests, Orders and Challenges) and issuers of this replica;
    None: all. Raises `ValueError` with a sentence for invalid settings.
    """

    def __init__(
        self, toolbox: Toolbox, clock: Clock, settings: Settings, mine: Mine | None, idle: IdleTurns
    ) -> None:
        self.toolbox, self.clock, self.settings, self.mine, self._idle = toolbox, clock, settings, mine, idle
        self.controllers: list[Controller] = []
        self.queues: dict[str, WorkQueue[ObjectKey]] = {}
        """By the names of the controllers that run."""
        self.enabled = table.parse_enabled(settings.enabled)
        self.namespace = settings.namespace or ""
        secrets_in = settings.cluster_resource_namespace
        self.caches = Caches(
            toolbox.client,
            clock,
            namespace=self.namespace,
            cluster_resource_namespace=secrets_in,
            signing_requests=bool(table.signer_kinds(self.enabled, table.CSR_SIGNERS)),
            filtered_secrets=settings.filtered_secrets,
            mine=mine,
        )
        self.issuers = KnownIssuers(self.caches, self.enabled, secrets_in)
        self.gate = IssuerGate(
            toolbox.client,
            self.caches,
            self.issuers.object_of,
            now=clock.now,
            attempts_per_hour=settings.issuer_attempts_per_hour,
            mine=mine,
        )
        self.servers = Servers(toolbox.client, user_agent=USER_AGENT, policy=settings.acme.policy)
        self._authorities = Authorities(self.caches, secrets_in, self._adder("certificates"))
        # Issuers of other replicas that this replica checks.
        self._rechecked: set[ObjectKey] = set()
        self._urgency = Urgency(self.caches, clock.now)
        self._build_acme()
        self._tools = IssuerTools(
            toolbox, self.caches.secrets, self._acme_tools, self.servers.tools, settings.acme.policy
        )
        self._add_certificates()
        self._add_requests()
        self._add_issuers()
        self._add_acme()
        self._add_shims()
        self._add_cainjector()
        self._add_deliveries()
        # Each replica records its own results; only probes are the owner's.
        add = self._add("circuit-breakers", self.gate, is_divided=False, yields_when_idle=False)
        self.gate.start(add, self._probe, self._check_issuer)

    def _enqueue(self, controller: str, key: ObjectKey) -> None:
        """Enqueue a key of the controller of that name, if it runs."""
        if (queue := self.queues.get(controller)) is not None:
            queue.add(key)

    def _adder(self, controller: str) -> Add:
        """A function that enqueues keys of the controller of that name, which may be added later."""
        return partial(self._enqueue, controller)

    def _recheck(self, issuer: IssuerView) -> None:
        """Have an issuer checked again, even another replica's: the state of an account at its server is
        known in this process only."""
        key = ObjectKey(issuer.namespace, issuer.name)
        self._rechecked.add(key)
        self._check_issuer(key)

    def _check_issuer(self, issuer: ObjectKey) -> None:
        """Have the Issuer, or, without a namespace, the ClusterIssuer of that key checked again."""
        self._enqueue("issuers" if issuer.namespace else "clusterissuers", issuer)

    def _build_acme(self) -> None:
        caches, toolbox, options, now = self.caches, self.toolbox, self.settings.acme, self.clock.now
        self._dependents: Dependents[ObjectKey] = Dependents()  # Orders and Challenges, by Secrets read
        caches.orders.add_handler(self._forget_dependents)
        caches.challenges.add_handler(self._forget_dependents)
        self.acme_requests = AcmeRequests()
        self.clients = AcmeClients(
            toolbox, options, user_agent=USER_AGENT, observe=self.acme_requests.observe
        )
        resolver = self._resolver = IssuerResolver(
            self.issuers,
            caches.secrets,
            self._dependents,
            registry=self.clients.registry,
            recheck_issuer=self._recheck,
            signer_of=partial(signer_reference, caches),
            now=now,
        )
        self.ledgers = RateLimits(
            client=toolbox.client,
            caches=caches,
            clock=self.clock,
            find_issuer=self.issuers.find,
            namespace=self.namespace or self.settings.cluster_resource_namespace,
            chosen=options.limits,
            sharing=sharing_of(self.mine, caches),
        )
        lookup = SolverLookup(
            toolbox,
            caches=caches,
            issuers=self.issuers,
            servers=self.servers,
            dependents=self._dependents,
            options=options,
            clock=self.clock,
            mine=self.mine,
        )
        self._has_challenges = "challenges" in self.enabled
        self.services = lookup.services if self._has_challenges else None
        """The Services that lead to challenges; None: this process creates no Ingresses or HTTPRoutes."""
        self.leftovers = (
            Leftovers(toolbox.client, self.clock, caches.challenges, self.services) if self.services else None
        )
        self._solvers = SolverVerification(lookup, options, now)
        self.preflight = Preflight(lookup, options, self._adder("orders"), now)
        self.ari_poller = AriPoller(resolver.client_of, self._adder("certificates"), now=now)
        self.provenance = Provenance(caches)
        self._request_orders = RequestOrders(toolbox, caches, self.issuers.of_request, self.provenance)
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
            kinds=table.signer_kinds(self.enabled),
            now=now,
            forbids=CaaGate(self.issuers, resolver, options.dns01_nameservers).forbids,
        )
        self._orders = OrderReconciler(
            caches.orders,
            toolbox,
            OrderTools(
                challenges=OrderChallenges(caches, toolbox.client),
                orders_at=caches.orders_at,
                superseded=partial(request_orders.superseded, caches, now),
                wake=self._adder("orders"),
                has_issued=partial(request_orders.has_issued, caches),
                is_proven=self._is_proven,
                refusal_of=self.provenance.problem_of_order,
                resolve_issuer=lambda order: resolver.find(order.spec.issuer_ref, order.metadata),
                circuit_gate=circuit_gate,
                limited=self.ledgers.limited,
                recheck_issuer=self._recheck,
                downloaded=partial(self.ari_poller.poll_early, caches.requests.cache.get),
                find_failover=self._members.find_failover,
            ),
        )
        enqueue_order = events.enqueues_order(caches, self._adder("orders"))
        self.challenges = ChallengeReconciler(
            caches.challenges,
            toolbox,
            ChallengeTools(
                origin=ChallengeOrigin(self.provenance, resolver.account_of, self._orders.described),
                resolve_issuer=lambda challenge: resolver.find(challenge.spec.issuer_ref, challenge.metadata),
                find_solver=lookup.find,
                circuit_gate=circuit_gate,
                wake=self._adder("challenges"),
                enqueue_order=(
                    with_the_last(caches, self._is_proven, enqueue_order)
                    if "orders" in self.enabled
                    else None
                ),
            ),
            options,
        )

    def _acme_tools(self, secrets_in: str) -> AcmeTools:
        """The tools of the ACME issuer whose Secrets are in the namespace `secrets_in`."""

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
        dependents: Dependents[ObjectKey] | None = None,
        workers: int | None = None,
        is_divided: bool = True,
        yields_when_idle: bool = True,
    ) -> Add:
        """Add a controller; return the function that enqueues its keys. Objects that have read a Secret
        (`dependents`) are enqueued when the Secret changes.

        Keys are this replica's, unless `is_divided` is False. Namespaces take turns, and one namespace never
        occupies all `workers` (None: as configured).
        """
        workers = workers or self.settings.workers
        admit: Ours | None = None
        if self.mine is not None and is_divided:
            admit = own = ours(name, self.mine, self.caches)
            if name in ("issuers", "clusterissuers"):
                admit = lambda issuer: issuer in self._rechecked or own(issuer)  # noqa: E731
        flow = precedence.flow
        queue: WorkQueue[ObjectKey] = WorkQueue(
            self.clock,
            rank=precedence.rank,
            flow=lambda key: (key.namespace, flow(key)) if flow is not None else (key.namespace,),
            admit=admit,
            most_per_flow=max(1, int(workers * _SHARE)),
        )
        self.queues[name] = queue
        idle = self._idle if yields_when_idle else None
        self.controllers.append(Controller(name, reconciler.reconcile, queue, workers=workers, idle=idle))
        if dependents is not None:
            events.enqueue_with_secrets(self.caches.secrets, queue.add, dependents)
        return queue.add

    def _add_certificates(self) -> None:
        caches = self.caches
        certificates = CertificateReconciler(
            enabled_steps(self.enabled, self.settings, self.gate, self.ari_poller, caches.has_failed_at),
            self.toolbox,
            caches=caches,
            authorities=self._authorities,
            suffix=self.settings.suffix,
        )
        # Before the key is enqueued.
        caches.certificates.add_handler(self.gate.certificate_changed)
        caches.certificates.add_handler(self.ari_poller.certificate_changed)
        add = self._add(
            "certificates", certificates, self._urgency.certificates, dependents=certificates.dependents
        )
        events.enqueue_certificates(caches, add)
        self.gate.on_release(self._enqueue_issuance)
        # The CA is known Certificate by Certificate.
        add = self._add("authorities", self._authorities, workers=1, is_divided=False, yields_when_idle=False)
        self._authorities.on_change(add)

    def _enqueue_issuance(self, applicant: ObjectKey) -> None:
        """Enqueue an applicant, its open request, the request's Orders, and their Challenges."""
        for controller, key in issuance_of(self.caches, applicant):
            self._enqueue(controller, key)

    def _add_requests(self) -> None:
        caches = self.caches
        signing = Signing(
            self.issuers.of_request,
            kinds=table.signer_kinds(self.enabled),
            now=self.clock.now,
            namespaced=caches.cluster_issuers is None,
            gate=self.gate,
        )
        requests = CertificateRequestReconciler(
            signing,
            self._tools,
            self._members,
            caches.requests,
            approves="certificaterequests-approver" in self.enabled,
            secrets_of=self.issuers.secrets_of,
        )
        add = self._add(
            "certificaterequests", requests, self._urgency.requests, dependents=requests.dependents
        )
        events.enqueue_requests(caches, add)
        events.enqueue_with_member(caches, add)
        events.enqueue_with_issuer(caches, add, caches.requests_for)
        if caches.signing_requests is None:
            return
        signing_requests = SigningRequestReconciler(
            self.issuers.of_signer,
            self._tools,
            self.gate,
            caches.signing_requests,
            kinds=table.signer_kinds(self.enabled, table.CSR_SIGNERS),
            may_reference=reference_review(self.toolbox.client),
            secrets_in=lambda signer: signer.namespace or self.settings.cluster_resource_namespace,
        )
        add = self._add(
            "certificatesigningrequests", signing_requests, dependents=signing_requests.dependents
        )
        events.enqueue_own(caches.signing_requests, add)
        events.enqueue_with_order(caches, add, CERTIFICATE_SIGNING_REQUESTS)
        events.enqueue_with_issuer(caches, add, caches.signing_requests_for)

    def _add_issuers(self) -> None:
        caches, sets = self.caches, self.caches.sets
        for name, informer, secrets_in in (
            ("issuers", caches.issuers, ""),
            ("clusterissuers", caches.cluster_issuers, self.settings.cluster_resource_namespace),
        ):
            if name in self.enabled and informer is not None:
                issuers = IssuerReconciler[Any](informer, self._tools, self.gate.checked, secrets_in)
                add = self._add(name, issuers, dependents=issuers.dependents)
                events.enqueue_issuers(informer, add)
        for name, set_informer in (("issuersets", sets.namespaced), ("clusterissuersets", sets.cluster)):
            if name in self.enabled and set_informer is not None:
                add = self._add(name, IssuerSetReconciler[Any](set_informer, self._members, self.toolbox))
                events.enqueue_sets(caches, add, set_informer)

    def _add_acme(self) -> None:
        caches = self.caches
        if "orders" in self.enabled:
            precedence = self._urgency.orders(self.challenges.is_proven)
            add = self._add("orders", self._orders, precedence, dependents=self._dependents)
            self.ledgers.start(add)
            events.enqueue_orders(caches, add)
            events.enqueue_with_issuer(caches, add, caches.orders_for)
            events.enqueue_orders_with_member(caches, add)
        if self._has_challenges:
            add = self._add(
                "challenges",
                self.challenges,
                self._urgency.challenges(self.challenges.is_seen),
                dependents=self._dependents,
                workers=_FOR_A_CA * self.settings.workers,
                yields_when_idle=False,
            )
            events.enqueue_challenges(caches, add)
            events.enqueue_refused(caches, add, self.challenges.refused)
            events.enqueue_with_issuer(caches, add, caches.challenges_for)

    def _add_shims(self) -> None:
        options = self.settings.shims
        sources = self.sources = follow_sources(
            self.toolbox.client, self.clock, self.namespace, options, self.enabled
        )
        self.caches.add(sources.all)
        # A Gateway is also followed for its ListenerSets.
        gateways = sources.gateways if "gateway-shim" in self.enabled and options.gateways else None
        shims: Mapping[str, Informer[Any] | None] = {
            "ingress-shim": sources.ingresses,
            "gateway-shim": gateways,
            "listenerset": sources.listener_sets,
            "xlistenerset": sources.experimental_listener_sets,
        }
        for name, informer in shims.items():
            if informer is None:
                continue
            shim = ShimReconciler[Any](
                informer,
                self.caches,
                self.toolbox,
                options=options,
                inherited=sources.inherited,
                lacks_issuer=self.issuers.lacks,
            )
            add = self._add(name, shim)
            shim_handlers.enqueue_own(informer, add)
            shim_handlers.enqueue_with_certificates(informer, self.caches, add)
            if name.endswith("listenerset"):
                shim_handlers.enqueue_with_parents(informer, sources, add)

    def _add_cainjector(self) -> None:
        # CA targets are not in a namespace: with one, there are no rights to them.
        kinds = CA_TARGETS if "cainjector" in self.enabled and not self.namespace else ()
        self.ca_targets = [cainjector.follow_targets(self.toolbox.client, self.clock, kind) for kind in kinds]
        self.caches.add(self.ca_targets)
        for informer in self.ca_targets:
            injector = cainjector.CAInjector(
                informer,
                self.caches,
                self.toolbox,
                api_server_ca=self.settings.api_server_ca,
                mine=self.mine,
            )
            # By the Certificate of the CA.
            add = self._add(
                f"cainjector-{informer.kind.plural}",
                injector,
                dependents=injector.dependents,
                workers=1,
                is_divided=False,
            )
            events.enqueue_own(informer, add)
            cainjector.enqueue_with_certificates(informer, self.caches, add)

    def _add_deliveries(self) -> None:
        options = self.settings.deliveries
        self.deliveries: Informer[Delivery] | None = None
        self.announcement: Announcement | None = None
        self.delivery_lifecycle: DeliveryLifecycle | None = None
        delivers = "deliveries" in self.enabled and bool(options.roots)
        if not delivers and "deliveries-lifecycle" not in self.enabled:
            return
        client, central = self.toolbox.client, self.namespace or self.settings.cluster_resource_namespace
        self.deliveries = follow_deliveries(client, self.clock, self.namespace, options)
        self.caches.add((self.deliveries,))
        if "deliveries-lifecycle" in self.enabled:
            self.delivery_lifecycle = DeliveryLifecycle(
                self.deliveries,
                self.caches,
                self.toolbox,
                self.clock,
                options if delivers else DeliveryOptions(),
                namespace=self.namespace,
                central=central,
                mine=self.mine,
            )
        if not delivers:
            return
        if self.mine is not None or self.delivery_lifecycle is None:
            # A process that checks all Deliveries itself need not announce its roots.
            self.announcement = Announcement(client, self.clock, options, self.deliveries, central)
        run_hook = Hooks(options, self.clock).run
        reconciler = DeliveryReconciler(self.deliveries, self.caches, self.toolbox, options, run_hook)
        # The roots are of the machine, not of the shard.
        add = self._add(
            "deliveries",
            reconciler,
            dependents=reconciler.dependents,
            is_divided=False,
            yields_when_idle=False,
        )
        enqueue_deliveries(self.deliveries, self.caches, options, add)

    async def _probe(self, issuer: ObjectKey) -> str:
        """Why the issuer's server does not answer, in a sentence; empty: it does."""
        reference = reference_to(issuer)
        state = self.issuers.find(reference, issuer.namespace)
        if state is None:
            return "the issuer does not exist any more"
        issuer_type = PROBED.get(kind_of(state.view.spec))
        if issuer_type is None:
            return await self._resolver.probe(issuer)
        secrets_in = self.issuers.secrets_of(reference, issuer.namespace)
        reader = SecretReader(self._tools.secrets, Dependents(), issuer)
        tools = self._tools.within(secrets_in, reader.within(secrets_in))
        return await issuer_type.probe(state.view, tools)
