"""Wiring of the controllers: one row for each, with what it reconciles, what enqueues its keys, and how it is
built. The names of `--controllers`, of which some are steps of one controller here, are in `table.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from certwright.controllers import table
from certwright.controllers.breakers import BreakerReconciler
from certwright.controllers.cache import event_handlers as events
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.cainjector.handlers import wake_with_certificates
from certwright.controllers.cainjector.reconcile import CAInjector
from certwright.controllers.cainjector.targets import KINDS as CA_TARGETS
from certwright.controllers.cainjector.targets import Target
from certwright.controllers.certificates.parsed import Facts
from certwright.controllers.certificates.reconcile import CertificateReconciler
from certwright.controllers.certificates.steps import enabled_steps
from certwright.controllers.deliveries.cache import wake_deliveries
from certwright.controllers.deliveries.hooks import Hooks
from certwright.controllers.deliveries.reconcile import DeliveryReconciler, Tools
from certwright.controllers.issuers import IssuerReconciler
from certwright.controllers.parts import Parts, Row
from certwright.controllers.precedence import ChallengePrecedence, OrderPrecedence, Precedence
from certwright.controllers.probes import Probes
from certwright.controllers.requests.attempts import Attempts
from certwright.controllers.requests.certificate_requests import RequestReconciler
from certwright.controllers.requests.signing import Signing
from certwright.controllers.requests.signing_requests import SigningRequestReconciler, reference_review
from certwright.controllers.sets.status import SetReconciler
from certwright.controllers.shims import handlers as shim_handlers
from certwright.controllers.shims.reconcile import ShimReconciler
from certwright.kube.api.kinds import Kind
from certwright.kube.client.informer import Informer
from certwright.resources.ingress import ListenerSet
from certwright.resources.table import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ISSUER_SETS,
    CLUSTER_ISSUERS,
    ISSUER_SETS,
    ISSUERS,
)

# Challenges also wait for a CA, so they get this many times more workers. Orders do not, because many that
# begin together would then finish late, and all together.
_FOR_A_CA = 4
_FEW = 1


def _is_enabled(name: str) -> Callable[[Parts], bool]:
    return lambda parts: name in parts.enabled


def _certificates(parts: Parts) -> CertificateReconciler:
    return CertificateReconciler(
        enabled_steps(
            parts.enabled, parts.settings, parts.gate, parts.acme.renewals, parts.caches.has_failed_at
        ),
        parts.toolbox,
        caches=parts.caches,
        facts=Facts(),
        authorities=parts.authorities,
        suffix=parts.settings.suffix,
    )


def _certificate_handlers(parts: Parts, reconciler: CertificateReconciler, add: Add) -> None:
    # Before the key is enqueued.
    parts.caches.certificates.add_handler(parts.gate.certificate_changed)
    parts.caches.certificates.add_handler(parts.acme.renewals.certificate_changed)
    events.wake_certificates(parts.caches, add)
    events.wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)
    parts.gate.circuits.on_release(parts.queues.wake_issuance)


def _requests(parts: Parts) -> RequestReconciler:
    signing = Signing(
        parts.issuers.of_request,
        kinds=table.signer_kinds(parts.enabled),
        now=parts.toolbox.now,
        namespaced=parts.caches.cluster_issuers is None,
        gate=parts.gate,
    )
    return RequestReconciler(
        signing,
        parts.issuer_tools,
        approves=table.APPROVER in parts.enabled,
        requests=parts.caches.requests,
        secrets=parts.caches.secrets,
        secrets_of=parts.issuers.secrets_of,
        members=parts.members,
    )


def _request_handlers(parts: Parts, reconciler: RequestReconciler, add: Add) -> None:
    events.wake_requests(parts.caches, add)
    events.wake_with_member(parts.caches, add)
    events.wake_with_issuer(parts.caches, add, parts.caches.requests_for)
    events.wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _signing_requests(parts: Parts) -> SigningRequestReconciler:
    assert parts.caches.signing_requests is not None
    return SigningRequestReconciler(
        parts.issuers.of_signer,
        parts.issuer_tools,
        Attempts(parts.gate),
        kinds=table.signer_kinds(parts.enabled, table.CSR_SIGNERS),
        may_reference=reference_review(parts.toolbox.client),
        requests=parts.caches.signing_requests,
        secrets=parts.caches.secrets,
        secrets_in=lambda signer: signer.namespace or parts.secrets_of_cluster_issuers,
    )


def _signing_request_handlers(parts: Parts, reconciler: SigningRequestReconciler, add: Add) -> None:
    events.wake_own(parts.caches.signing_requests, add)
    events.wake_with_order(parts.caches, add, CERTIFICATE_SIGNING_REQUESTS)
    events.wake_with_issuer(parts.caches, add, parts.caches.signing_requests_for)
    events.wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _issuers(parts: Parts) -> IssuerReconciler[Any]:
    informer, tools = parts.caches.issuers, parts.issuer_tools
    return IssuerReconciler(
        ISSUERS, informer, tools, lambda issuer: issuer.metadata.namespace, parts.gate.checked
    )


def _issuer_handlers(parts: Parts, reconciler: IssuerReconciler[Any], add: Add) -> None:
    events.wake_issuers(parts.caches.issuers, add)
    events.wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _cluster_issuers(parts: Parts) -> IssuerReconciler[Any]:
    informer, tools = parts.caches.cluster_issuers, parts.issuer_tools
    assert informer is not None
    secrets_in = parts.secrets_of_cluster_issuers
    return IssuerReconciler(CLUSTER_ISSUERS, informer, tools, lambda _: secrets_in, parts.gate.checked)


def _cluster_issuer_handlers(parts: Parts, reconciler: IssuerReconciler[Any], add: Add) -> None:
    events.wake_issuers(parts.caches.cluster_issuers, add)
    events.wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _cluster_sets(parts: Parts) -> SetReconciler[Any]:
    assert parts.caches.sets.cluster is not None
    return SetReconciler(CLUSTER_ISSUER_SETS, parts.caches.sets.cluster, parts.members, parts.toolbox)


def _order_handlers(parts: Parts, _orders: object, add: Add) -> None:
    parts.acme.ledgers.start(add)
    events.wake_orders(parts.caches, add)
    events.wake_with_issuer(parts.caches, add, parts.caches.orders_for)
    events.wake_orders_with_member(parts.caches, add)
    events.wake_with_secrets(parts.caches.secrets, add, parts.acme.dependents)


def _challenge_handlers(parts: Parts, _challenges: object, add: Add) -> None:
    events.wake_challenges(parts.caches, add)
    events.wake_refused(parts.caches, add, parts.acme.challenges.refused)
    events.wake_with_issuer(parts.caches, add, parts.caches.challenges_for)
    events.wake_with_secrets(parts.caches.secrets, add, parts.acme.dependents)


def _order_precedence(parts: Parts) -> Precedence:
    first = OrderPrecedence(parts.caches, parts.urgency, parts.acme.challenges.is_proven)
    return Precedence(first.rank, first.flow)


def _challenge_precedence(parts: Parts) -> Precedence:
    first = ChallengePrecedence(parts.caches, parts.acme.challenges.is_seen)
    return Precedence(first.rank, first.flow)


def _shim(parts: Parts, informer: Informer[Any] | None) -> ShimReconciler[Any]:
    assert informer is not None
    return ShimReconciler(
        informer,
        parts.caches,
        parts.toolbox,
        options=parts.settings.shims,
        inherited=parts.ingress_like.inherited,
        lacks_issuer=parts.issuers.lacks,
    )


def _shim_handlers(parts: Parts, informer: Informer[Any] | None, add: Add) -> None:
    assert informer is not None
    shim_handlers.wake_own(informer, add)
    shim_handlers.wake_with_certificates(informer, parts.caches, add)


def _listener_set_handlers(parts: Parts, informer: Informer[ListenerSet] | None, add: Add) -> None:
    _shim_handlers(parts, informer, add)
    assert informer is not None
    shim_handlers.wake_with_parents(informer, parts.ingress_like, add)


def _ca_injector(kind: Kind[Target]) -> Row[CAInjector]:
    def build(parts: Parts) -> CAInjector:
        return CAInjector(
            parts.ca_targets[kind.plural],
            parts.caches,
            parts.toolbox,
            api_server_ca=parts.settings.api_server_ca,
            mine=parts.mine,
        )

    def add_handlers(parts: Parts, injector: CAInjector, add: Add) -> None:
        informer = parts.ca_targets[kind.plural]
        events.wake_own(informer, add)
        wake_with_certificates(informer, parts.caches, add)
        events.wake_with_secrets(parts.caches.secrets, add, injector.dependents)

    return Row(
        f"cainjector-{kind.plural}",
        f"CA bundles of {kind.kind}s",
        build,
        add_handlers,
        runs=lambda parts: kind.plural in parts.ca_targets,
        workers=lambda _: _FEW,
        # By the Certificate of the CA.
        is_divided=False,
    )


def _deliveries(parts: Parts) -> DeliveryReconciler:
    assert parts.deliveries is not None
    options = parts.settings.deliveries
    tools = Tools(Hooks(options, parts.clock).run)
    return DeliveryReconciler(parts.deliveries, parts.caches, parts.toolbox, options, tools)


def _delivery_handlers(parts: Parts, reconciler: DeliveryReconciler, add: Add) -> None:
    assert parts.deliveries is not None
    wake_deliveries(parts.deliveries, parts.caches, parts.settings.deliveries, add)
    events.wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _breakers(parts: Parts) -> BreakerReconciler:
    probes = Probes(parts.issuers, parts.issuer_tools, acme=parts.acme.probe)
    return BreakerReconciler(
        parts.gate,
        parts.caches,
        parts.toolbox,
        probes.probe,
        check=parts.queues.check_issuer_at,
        owns=parts.mine if parts.mine is not None else lambda _issuer: True,
    )


def _breaker_handlers(parts: Parts, breakers: BreakerReconciler, add: Add) -> None:
    parts.gate.records.on_change(add, breakers.save)
    for informer in (parts.caches.issuers, parts.caches.cluster_issuers):
        if informer is not None:
            informer.add_handler(parts.gate.records.issuer_changed)


ROWS: Final[tuple[Row[Any], ...]] = (
    Row(
        "certificates",
        "Certificates",
        _certificates,
        _certificate_handlers,
        precedence=lambda parts: parts.urgency.certificates,
        is_shared=True,
    ),
    Row(
        "authorities",
        "CAs of issuers",
        lambda parts: parts.authorities,
        lambda _parts, authorities, add: authorities.on_change(add),
        workers=lambda _: _FEW,
        # The CA is known Certificate by Certificate.
        is_divided=False,
        yields_when_idle=False,
    ),
    Row(
        "certificaterequests",
        "CertificateRequests",
        _requests,
        _request_handlers,
        precedence=lambda parts: parts.urgency.requests,
        is_shared=True,
    ),
    Row(
        "certificatesigningrequests",
        "CertificateSigningRequests",
        _signing_requests,
        _signing_request_handlers,
        runs=lambda parts: parts.caches.signing_requests is not None,
    ),
    Row("issuers", "Issuers", _issuers, _issuer_handlers, runs=_is_enabled(table.ISSUERS), is_shared=True),
    Row(
        "clusterissuers",
        "ClusterIssuers",
        _cluster_issuers,
        _cluster_issuer_handlers,
        runs=lambda parts: (
            table.CLUSTER_ISSUERS in parts.enabled and parts.caches.cluster_issuers is not None
        ),
    ),
    Row(
        "issuersets",
        "IssuerSets",
        lambda parts: SetReconciler(ISSUER_SETS, parts.caches.sets.namespaced, parts.members, parts.toolbox),
        lambda parts, _sets, add: events.wake_sets(parts.caches, add, parts.caches.sets.namespaced),
        runs=_is_enabled(table.ISSUER_SETS),
    ),
    Row(
        "clusterissuersets",
        "ClusterIssuerSets",
        _cluster_sets,
        lambda parts, _sets, add: events.wake_sets(parts.caches, add, parts.caches.sets.cluster),
        runs=lambda parts: (
            table.CLUSTER_ISSUER_SETS in parts.enabled and parts.caches.sets.cluster is not None
        ),
    ),
    Row(
        "orders",
        "Orders",
        lambda parts: parts.acme.orders,
        _order_handlers,
        runs=_is_enabled(table.ORDERS),
        precedence=_order_precedence,
        is_shared=True,
    ),
    Row(
        "challenges",
        "Challenges",
        lambda parts: parts.acme.challenges,
        _challenge_handlers,
        runs=_is_enabled(table.CHALLENGES),
        precedence=_challenge_precedence,
        is_shared=True,
        workers=lambda configured: _FOR_A_CA * configured,
        yields_when_idle=False,
    ),
    Row(
        "ingress-shim",
        "Ingresses",
        lambda parts: _shim(parts, parts.ingress_like.ingresses),
        lambda parts, _shim, add: _shim_handlers(parts, parts.ingress_like.ingresses, add),
        runs=lambda parts: parts.ingress_like.ingresses is not None,
        is_shared=True,
    ),
    Row(
        "gateway-shim",
        "Gateways",
        lambda parts: _shim(parts, parts.ingress_like.gateways),
        lambda parts, _shim, add: _shim_handlers(parts, parts.ingress_like.gateways, add),
        runs=lambda parts: table.GATEWAY_SHIM in parts.enabled and parts.settings.shims.gateways,
        is_shared=True,
    ),
    Row(
        "listenerset",
        "ListenerSets",
        lambda parts: _shim(parts, parts.ingress_like.listener_sets),
        lambda parts, _shim, add: _listener_set_handlers(parts, parts.ingress_like.listener_sets, add),
        runs=lambda parts: parts.ingress_like.listener_sets is not None,
        is_shared=True,
    ),
    Row(
        "xlistenerset",
        "XListenerSets",
        lambda parts: _shim(parts, parts.ingress_like.experimental_listener_sets),
        lambda parts, _shim, add: _listener_set_handlers(
            parts, parts.ingress_like.experimental_listener_sets, add
        ),
        runs=lambda parts: parts.ingress_like.experimental_listener_sets is not None,
    ),
    *map(_ca_injector, CA_TARGETS),
    Row(
        "deliveries",
        "Deliveries",
        _deliveries,
        _delivery_handlers,
        runs=lambda parts: parts.deliveries is not None,
        # The roots are of the machine, not of the shard.
        is_divided=False,
        is_shared=True,
        yields_when_idle=False,
    ),
    Row(
        "circuit-breakers",
        "issuers that fail",
        _breakers,
        _breaker_handlers,
        # Each replica records its own results; only probes are the owner's.
        is_divided=False,
        yields_when_idle=False,
    ),
)
"""All controllers, in the order in which they are built."""
