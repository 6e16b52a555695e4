"""Wiring of ACME: what its issuers use, and the reconcilers of Orders and Challenges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from certwright.controllers import table
from certwright.controllers.acme import issuer_queries, order_reuse, request_orders
from certwright.controllers.acme.account_secrets import creator_of
from certwright.controllers.acme.ari_poller import RenewalOffice
from certwright.controllers.acme.caa_gate import CaaGate
from certwright.controllers.acme.challenge_origin import ChallengeOrigin
from certwright.controllers.acme.challenges import ChallengeReconciler, ChallengeTools
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.client_metrics import Traffic
from certwright.controllers.acme.clients import AcmeClients
from certwright.controllers.acme.issuer_resolution import IssuerResolver
from certwright.controllers.acme.last_names import with_the_last
from certwright.controllers.acme.order_challenges import OrderChallenges
from certwright.controllers.acme.orders import OrderReconciler, OrderTools
from certwright.controllers.acme.preflight import Preflight
from certwright.controllers.acme.provenance import Provenance
from certwright.controllers.acme.rate_limits import Ledgers
from certwright.controllers.acme.request_orders import RequestOrders
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.acme.routes.leftovers import Leftovers
from certwright.controllers.acme.solver_lookup import SolverLookup
from certwright.controllers.acme.solver_verification import SolverVerification
from certwright.controllers.cache.event_handlers import enqueues_order
from certwright.controllers.cache.references import Dependents
from certwright.controllers.cache.shard_members import sharing_of
from certwright.controllers.requests.members import Members
from certwright.controllers.shared import USER_AGENT, Shared
from certwright.issuers.contract import AcmeTools, GetSecret, IssuerView, SolverProblem
from certwright.kube.api.meta import ObjectKey
from certwright.resources.acme import Challenge, Order


class Acme:
    """The ACME half of a process, whose controllers share `shared`."""

    def __init__(self, shared: Shared) -> None:
        caches, options, now = shared.caches, shared.settings.acme, shared.clock.now
        self._shared = shared
        self.dependents: Dependents[ObjectKey] = Dependents()
        """Which Orders and Challenges have read which Secrets."""
        caches.orders.add_handler(self._forget_dependents)
        caches.challenges.add_handler(self._forget_dependents)
        self.traffic = Traffic()
        self._clients = AcmeClients(
            shared.toolbox, options, user_agent=USER_AGENT, observe=self.traffic.observe
        )
        self._resolver = IssuerResolver(
            shared.issuers,
            caches.secrets,
            self.dependents,
            registry=self._clients.registry,
            distrust=shared.queues.check_issuer,
            now=now,
        )
        self.ledgers = Ledgers(
            client=shared.toolbox.client,
            caches=caches,
            clock=shared.clock,
            find_issuer=shared.issuers.find,
            namespace=shared.settings.namespace or shared.secrets_of_cluster_issuers,
            chosen=options.limits,
            sharing=sharing_of(shared.mine, caches),
        )
        lookup = SolverLookup(shared, self.dependents)
        self.services = lookup.services if self._has_challenges else None
        """The Services that lead to challenges; None: this process creates no Ingresses or HTTPRoutes."""
        self.leftovers = self._leftovers(shared)  # removes what solvers have left
        self._solvers = SolverVerification(lookup, options, now)
        self.preflight = Preflight(lookup, options, partial(shared.queues.add, "orders"), now)
        self._find_means = lookup.means_of
        self.probe = partial(issuer_queries.probe, self._resolver)
        find_client = partial(issuer_queries.client_of, self._resolver, caches)
        self.renewals = RenewalOffice(find_client, partial(shared.queues.add, "certificates"), now=now)
        self._provenance = Provenance(caches)
        self._request_orders = RequestOrders(
            shared.toolbox.client,
            caches,
            shared.issuers.of_request,
            self._provenance,
            executor=shared.toolbox.executor,
            now=now,
        )
        self._gate = CircuitGate(
            shared.gate,
            self._check_solvers,
            self.ledgers.admit,
            self.ledgers.limit_of,
            caches.requests.cache.get,
            caches.orders.cache.get,
        )
        self.members = Members(
            caches,
            shared.issuers,
            shared.gate,
            kinds=table.signer_kinds(shared.enabled),
            now=now,
            forbids=CaaGate(shared.issuers, self._resolver, options.dns01_nameservers).forbids,
        )
        self.orders = self._order_reconciler(shared)
        self.challenges = self._challenge_reconciler(shared)

    async def close(self) -> None:
        """Close connections, and stop the self-checks."""
        await self.preflight.close()
        await self.challenges.close()
        await self.renewals.close()
        await self.ledgers.close()
        await self._clients.close()

    @property
    def idle(self) -> bool:
        """Whether no self-check runs, and no server is asked anything outside the reconciles."""
        return self.challenges.checks.idle and self.renewals.idle and self.preflight.idle

    def tools(self, secrets_in: str) -> AcmeTools:
        """What the ACME issuer uses; its Secrets lie in the namespace `secrets_in`."""
        return AcmeTools(
            registry=self._clients.registry,
            create_secret=creator_of(self._shared.toolbox.client, self._shared.caches.secrets, secrets_in),
            ensure_order=self._request_orders.ensure,
            account_limit=self.ledgers.accounts,
            verify_solvers=partial(self._verify_solvers, secrets_in) if self._has_challenges else None,
        )

    def _leftovers(self, shared: Shared) -> Leftovers | None:
        if self.services is None:
            return None
        return Leftovers(shared.toolbox.client, shared.clock, shared.caches.challenges, self.services)

    @property
    def _has_challenges(self) -> bool:
        return table.CHALLENGES in self._shared.enabled

    async def _verify_solvers(
        self, secrets_in: str, issuer: IssuerView, get_secret: GetSecret
    ) -> Sequence[SolverProblem]:
        return await self._solvers.problems(issuer, get_secret, secrets_in)

    async def _check_solvers(self, order: Order, issuer: ResolvedIssuer) -> Wait | None:
        return await self.preflight.admit(order, issuer) if self._has_challenges else None

    def _order_reconciler(self, shared: Shared) -> OrderReconciler:
        caches, toolbox = shared.caches, shared.toolbox
        tools = OrderTools(
            challenges=OrderChallenges(
                caches.challenges, toolbox.client, lambda order: caches.challenges_of(order.metadata)
            ),
            orders_at=caches.orders_at,
            superseded=partial(request_orders.superseded, caches, shared.clock.now),
            wake=partial(shared.queues.add, "orders"),
            has_issued=partial(order_reuse.has_issued, caches),
            is_proven=self._is_proven,
            problem_of=self._provenance.problem_of_order,
            resolve_issuer=lambda order: self._resolver.find(order.spec.issuer_ref, order.metadata),
            circuit_gate=self._gate,
            limited=self.ledgers.limited,
            distrust=shared.queues.check_issuer,
            downloaded=issuer_queries.EarlyRenewalInfo(self.renewals, caches.requests.cache.get).poll,
            members=self.members,
        )
        return OrderReconciler(caches.orders, toolbox, tools)

    def _challenge_reconciler(self, shared: Shared) -> ChallengeReconciler:
        tools = ChallengeTools(
            origin=ChallengeOrigin(self._provenance, self._resolver, self.orders.described),
            resolve_issuer=lambda challenge: self._resolver.find(
                challenge.spec.issuer_ref, challenge.metadata
            ),
            find_means=self._find_means,
            circuit_gate=self._gate,
            wake=partial(shared.queues.add, "challenges"),
            enqueue_order=self._enqueue_order(shared),
        )
        return ChallengeReconciler(shared.caches.challenges, shared.toolbox, tools, shared.settings.acme)

    def _enqueue_order(self, shared: Shared) -> Callable[[Challenge], None] | None:
        if table.ORDERS not in shared.enabled:
            return None
        enqueue = enqueues_order(shared.caches, partial(shared.queues.add, "orders"))
        return with_the_last(shared.caches, self._is_proven, enqueue)

    def _is_proven(self, challenge: Challenge) -> bool:
        return self.challenges.is_proven(challenge)

    def _forget_dependents(self, old: Order | Challenge | None, new: Order | Challenge | None) -> None:
        done = new if new is not None and new.status.is_final else old if new is None else None
        if done is not None:
            if isinstance(done, Order):
                self.orders.ended(done.metadata.key)
            self.dependents.keep_only(done.metadata.key, ())
            self.preflight.forget(done.metadata.key)
