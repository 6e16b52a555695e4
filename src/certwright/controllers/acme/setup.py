"""Build the controllers of Orders and Challenges, and what ACME issuers use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from certwright.acme.protocol.errors import AcmeError
from certwright.controllers.acme import order_client
from certwright.controllers.acme.ari_poller import RenewalOffice
from certwright.controllers.acme.challenge_plan import ShownFor
from certwright.controllers.acme.challenges import ChallengeReconciler
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.client_metrics import Traffic
from certwright.controllers.acme.clients import AcmeClients
from certwright.controllers.acme.issuer_resolution import Ways
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.orders import OrderReconciler
from certwright.controllers.acme.provenance import Provenance, offers
from certwright.controllers.acme.rate_limits import Ledgers
from certwright.controllers.acme.request_orders import RequestOrders
from certwright.controllers.acme.ways import Wait, Way
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.references import Dependents
from certwright.controllers.cache.shard_members import Sharing
from certwright.controllers.issuers import SecretReader
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.requests.members import Members
from certwright.controllers.retry.gate import IssuerGate
from certwright.controllers.servers import Servers
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import AcmeTools, CreateSecret, IssuerView
from certwright.kube.api.core import Secret, SecretMeta
from certwright.kube.api.core_kinds import SECRETS
from certwright.kube.api.errors import AlreadyExists
from certwright.kube.api.meta import ObjectKey, ObjectMeta, controller_of
from certwright.kube.runtime.commit import StatusWriter
from certwright.kube.util.clock import Clock
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.resources import names
from certwright.resources.certificate import Certificate
from certwright.resources.challenge import Challenge
from certwright.resources.issuer_ref import IssuerReference, reference_to
from certwright.resources.order import Order
from certwright.resources.request import CertificateRequest

if TYPE_CHECKING:
    # Loaded with the first ACME issuer, or the first Challenge.
    from certwright.acme.protocol.client import AcmeClient
    from certwright.acme.protocol.jws import AccountKey
    from certwright.controllers.acme.caa_check import CaaCheck
    from certwright.controllers.acme.solver_factory import Means, Surroundings

# How long an existing certificate waits for its server's renewal information.
_PATIENCE_S = 1.0
_PROBE_TAKES_S = 10.0


class Acme:
    """What ACME issuers use, and the two reconcilers. `distrust` has an issuer judged again; what is to be
    remembered of CAs is stored in `namespace`."""

    _orders: OrderReconciler | None = None
    _challenges: ChallengeReconciler | None = None
    _office: RenewalOffice | None = None

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        caches: Caches,
        clock: Clock,
        options: AcmeOptions,
        issuers: KnownIssuers,
        distrust: Callable[[IssuerView], None],
        gate: IssuerGate,
        user_agent: str,
        namespace: str,
        sharing: Sharing,
        servers: Servers,
    ) -> None:
        self._gate = gate
        self._servers = servers
        self.dependents: Dependents[ObjectKey] = Dependents()
        caches.orders.add_handler(self._let_go_of_secrets)
        caches.challenges.add_handler(self._let_go_of_secrets)
        self._client = toolbox.client
        self._caches = caches
        self._clock = clock
        self._recorder = toolbox.recorder
        self._options = options
        self._issuers = issuers
        self._distrust = distrust
        self.traffic = Traffic()
        self._clients = AcmeClients(
            user_agent=user_agent,
            now=clock.now,
            observe=self.traffic.observe,
            make_transport=options.make_transport,
            executor=toolbox.executor,
            rules=options.policy.servers,
        )
        self._ways = Ways(
            issuers,
            caches.secrets,
            self.dependents,
            registry=self._clients.registry,
            distrust=distrust,
            now=clock.now,
        )
        self.ledgers = Ledgers(
            client=toolbox.client,
            caches=caches,
            clock=clock,
            find_issuer=issuers.find,
            namespace=namespace,
            chosen=options.limits,
            sharing=sharing,
        )
        self._provenance = Provenance(caches)
        self._request_orders = RequestOrders(
            toolbox.client, caches, issuers.of_request, self._provenance, now=clock.now
        )
        self.wake_order: Callable[[Challenge], None] | None = None
        """Enqueues the Order of a Challenge; set before `challenges`, where Orders are reconciled."""

    async def close(self) -> None:
        """Close connections, and stop the self-checks."""
        if self._challenges is not None:
            await self._challenges.close()
        if self._office is not None:
            await self._office.close()
        await self.ledgers.close()
        await self._clients.close()

    @property
    def idle(self) -> bool:
        """Whether no self-check runs, and no server is asked anything outside the reconciles."""
        looks = self._challenges is not None and not self._challenges.checks.idle
        return not looks and (self._office is None or self._office.idle)

    def tools(self, secrets_in: str) -> AcmeTools:
        """What the ACME issuer uses; its Secrets lie in the namespace `secrets_in`."""
        return AcmeTools(
            registry=self._clients.registry,
            create_secret=self._creating(secrets_in),
            ensure_order=self._request_orders.ensure,
            account_limit=self.ledgers.accounts,
        )

    def _circuit_gate(self) -> CircuitGate:
        caches = self._caches
        return CircuitGate(self._gate, self.ledgers.admit, caches.requests.cache.get, caches.orders.cache.get)

    def orders(self, members: Members) -> OrderReconciler:
        """The reconciler of Orders; `members` chooses the issuers of those that are for sets."""
        caches = self._caches
        self._orders = OrderReconciler(
            orders=caches.orders,
            challenges=caches.challenges,
            challenges_of=lambda order: caches.challenges_of(order.metadata),
            is_known=lambda url: bool(caches.orders_at(url)),
            is_proven=self.is_proven,
            problem_of=self._provenance.problem_of_order,
            resolve_issuer=self._way_of_order,
            circuit_gate=self._circuit_gate(),
            limited=self.ledgers.limited,
            distrust=self._distrust,
            downloaded=self._hear_of_renewal,
            members=members,
            status=StatusWriter(self._client, caches.orders),
            client=self._client,
            recorder=self._recorder,
            now=self._clock.now,
            began_at=self._clock.now(),
        )
        return self._orders

    def challenges(self, wake: Callable[[ObjectKey], None]) -> ChallengeReconciler:
        """The reconciler of Challenges; `wake` enqueues one."""
        self._challenges = ChallengeReconciler(
            challenges=self._caches.challenges,
            problem_of=self._problem_of_challenge,
            problem_of_clean_up=self._problem_of_clean_up,
            is_described=self._is_described,
            order_ended=self._order_ended,
            resolve_issuer=self._way_of_challenge,
            find_means=self._means_of,
            circuit_gate=self._circuit_gate(),
            wake=wake,
            status=StatusWriter(self._client, self._caches.challenges),
            client=self._client,
            recorder=self._recorder,
            now=self._clock.now,
            enqueue_order=self._with_the_last(self.wake_order) if self.wake_order is not None else None,
            most=self._options.max_concurrent_challenges,
            looks=self._options.looks_at_once,
            check_period=self._options.dns01_check_period,
        )
        return self._challenges

    def _with_the_last(self, enqueue_order: Callable[[Challenge], None]) -> Callable[[Challenge], None]:
        """As `enqueue_order`, but not while other names keep the Order waiting: of a hundred names it would
        read through all hundred at each. An Order that shows a reason is enqueued for each."""

        def tell(challenge: Challenge) -> None:
            owner = controller_of(challenge.metadata)
            key = ObjectKey(challenge.metadata.namespace, owner.name) if owner is not None else None
            order = self._caches.orders.cache.get(key) if key is not None else None
            if order is None or order.status.reason or not self._has_open_names(order):
                enqueue_order(challenge)

        return tell

    def _has_open_names(self, order: Order) -> bool:
        # The youngest are mostly the last to be proven.
        return any(map(self._is_open, reversed(self._caches.challenges_of(order.metadata))))

    def _is_open(self, challenge: Challenge) -> bool:
        """Whether the challenge will enqueue its Order some time: it has not ended, and is not being
        deleted."""
        is_over = challenge.status.is_final or challenge.metadata.deletion_timestamp is not None
        return not is_over and not self.is_proven(challenge)

    def is_proven(self, challenge: Challenge) -> bool:
        """Whether the CA has called the challenge valid, though its status may not say so yet."""
        if self._challenges is None:
            return challenge.status.state == "valid"
        return self._challenges.is_proven(challenge)

    def is_seen(self, key: ObjectKey) -> bool:
        """Whether a self-check of that Challenge has succeeded."""
        return self._challenges is not None and self._challenges.is_seen(key)

    def forget_renewal(self, uid: str) -> None:
        """Drop the renewal information of a Certificate that was deleted."""
        if self._office is not None:
            self._office.forget(uid)

    def renewal_office(self, wake: Callable[[ObjectKey], None]) -> RenewalOffice:
        """The ARI poller; `wake` enqueues a Certificate."""
        self._office = RenewalOffice(self._client_of_certificate, wake, now=self._clock.now)
        return self._office

    async def probe(self, issuer: ObjectKey) -> str:
        """GET the directory of an ACME issuer. Returns why that failed, in a sentence; empty: it was
        answered."""
        way = await self._ways.find(
            reference_to(issuer), ObjectMeta(namespace=issuer.namespace, name=issuer.name)
        )
        if isinstance(way, Wait):
            return way.why
        try:
            async with asyncio.timeout(_PROBE_TAKES_S):
                await way.client.directory(fresh=True)
        except TimeoutError:
            return f"{way.client.directory_url} did not answer within {_PROBE_TAKES_S:g} s"
        except AcmeError as error:
            return str(error)
        return ""

    async def _client_of_certificate(self, certificate: Certificate) -> AcmeClient | None:
        way = await self._ways.find(certificate.spec.issuer_ref, certificate.metadata)
        return None if isinstance(way, Wait) else way.client

    async def _hear_of_renewal(self, order: Order, way: Way, facts: CertificateFacts) -> None:
        """Asked before the certificate is stored, the answer goes into the Certificate's own last write."""
        owner = controller_of(order.metadata)
        if self._office is None or owner is None or way.spec.renewal_information_source == "None":
            return
        request = self._caches.requests.cache.get(ObjectKey(order.metadata.namespace, owner.name))
        certificate = controller_of(request.metadata) if request is not None else None
        if certificate is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._office.hear(way.client, certificate.uid, facts)

    async def _way_of_order(self, order: Order) -> Way | Wait:
        return await self._ways.find(order.spec.issuer_ref, order.metadata)

    async def _way_of_challenge(self, challenge: Challenge) -> Way | Wait:
        return await self._ways.find(challenge.spec.issuer_ref, challenge.metadata)

    def _problem_of_challenge(self, challenge: Challenge, way: Way) -> str:
        return self._provenance.problem_of_challenge(challenge, way.spec.solvers, _shown_with(way.client.key))

    async def _problem_of_clean_up(self, challenge: Challenge) -> str:
        account = await self._ways.account_of(challenge.spec.issuer_ref, challenge.metadata)
        if account is None:
            return "its issuer is missing, is no ACME issuer, or has no account key"
        spec, key = account
        return self._provenance.problem_of_clean_up(challenge, spec.solvers, _shown_with(key))

    def _order_ended(self, challenge: Challenge) -> str:
        order = self._provenance.order_of(challenge)
        if order is None or not order.status.is_final or order.status.state == "valid":
            return ""
        return f'Order "{order.metadata.name}" has ended as {order.status.state}'

    def _is_described(self, challenge: Challenge) -> bool:
        """Whether this process has read the challenge from the CA, for the Order that owns it."""
        order = self._provenance.order_of(challenge)
        if order is None or self._orders is None:
            return False
        found = self._orders.described(order, challenge.spec.authorization_url)
        return (
            found is not None
            and found.identifier == challenge.spec.dns_name
            and offers(found, challenge.spec)
        )

    async def _means_of(self, challenge: Challenge) -> Means:
        from certwright.controllers.acme import solver_factory  # loaded with the first Challenge

        namespace = self._issuers.secrets_of(challenge.spec.issuer_ref, challenge.metadata.namespace)
        get_secret = self._reader(challenge.metadata.key).within(namespace)
        return await solver_factory.means_of(challenge, self._surroundings, get_secret, namespace)

    async def forbids(self, member: IssuerReference, request: CertificateRequest) -> str:
        """See `Forbids`: checks the CAA records of the request's names, if the member is an ACME issuer."""
        issuer = self._issuers.object_of(member, request.metadata.namespace)
        if issuer is None or issuer.spec.acme is None:
            return ""
        way = await self._ways.find(member, request.metadata)
        try:
            csr = read_csr(request.spec.request)
        except PkiError:
            # Signing reports it.
            return ""
        return "" if isinstance(way, Wait) else await self._caa_check.problem(way, csr.dns_names)

    @cached_property
    def _caa_check(self) -> CaaCheck:
        from certwright.controllers.acme import caa_check  # see the module

        return caa_check.check_at(self._options.dns01_nameservers)

    @cached_property
    def _surroundings(self) -> Surroundings:
        from certwright.controllers.acme import surroundings  # loaded with the first Challenge

        return surroundings.surroundings_of(self._options, self._client, self._servers, self._clock.now)

    def _let_go_of_secrets(self, old: Order | Challenge | None, new: Order | Challenge | None) -> None:
        done = new if new is not None and new.status.is_final else old if new is None else None
        if done is not None:
            self.dependents.keep_only(done.metadata.key, ())

    def _reader(self, whose: ObjectKey) -> SecretReader:
        return SecretReader(self._caches.secrets, self.dependents, whose)

    def _creating(self, namespace: str) -> CreateSecret:
        async def create_secret(name: str, data: Mapping[str, bytes]) -> Mapping[str, bytes]:
            labels = {names.FAO_LABEL: "true", names.MANAGED_BY_LABEL: names.MANAGER}
            meta = SecretMeta(name=name, namespace=namespace, labels=labels)
            try:
                made = await self._client.create(SECRETS, Secret(metadata=meta, type="Opaque", data=data))
            except AlreadyExists:
                made = await self._client.get(SECRETS, name, namespace)
            self._caches.secrets.put(made)
            return made.data

        return create_secret


def _shown_with(key: AccountKey) -> ShownFor:
    return partial(order_client.shown_for, key)
