"""Wiring of the controllers: one row for each, with what it reconciles, what enqueues its keys, and how it is
built. The names of `--controllers`, of which some are steps of one controller here, are in `table.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from certwright.controllers import table
from certwright.controllers.acme.challenges import ChallengeReconciler
from certwright.controllers.acme.orders import OrderReconciler
from certwright.controllers.acme.priorities import ChallengePrecedence, OrderPrecedence
from certwright.controllers.authorities import Authorities
from certwright.controllers.breakers import BreakerReconciler
from certwright.controllers.cache.caches import secret_value
from certwright.controllers.cache.event_handlers import (
    Add,
    add_owner,
    add_owner_of_request,
    key_of,
    sharing,
    wake_challenges,
    wake_orders,
    wake_orders_with_member,
    wake_refused,
    wake_requests,
    wake_sets,
    wake_with_issuer,
    wake_with_member,
    wake_with_secrets,
)
from certwright.controllers.cache.own_writes import is_own_write
from certwright.controllers.certificates.contention import Fights
from certwright.controllers.certificates.issuing import Issuing
from certwright.controllers.certificates.keys import Keys
from certwright.controllers.certificates.parsed import Facts
from certwright.controllers.certificates.readiness import Readiness
from certwright.controllers.certificates.reconcile import CertificateReconciler, Steps
from certwright.controllers.certificates.renewal_info import RenewalInformation
from certwright.controllers.certificates.requests import Requests
from certwright.controllers.certificates.revisions import Revisions
from certwright.controllers.certificates.secret_sync import Upkeep
from certwright.controllers.certificates.trigger import Trigger
from certwright.controllers.issuers import IssuerReconciler
from certwright.controllers.parts import Parts, Row
from certwright.controllers.probes import Probes
from certwright.controllers.queues import Precedence
from certwright.controllers.requests.certificate_requests import RequestReconciler
from certwright.controllers.requests.signing import Signing
from certwright.controllers.requests.signing_requests import SigningRequestReconciler, reference_review
from certwright.controllers.sets.status import SetReconciler
from certwright.kube.api.core import Secret
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.issuer_set import ClusterIssuerSet, IssuerSet
from certwright.resources.table import (
    CERTIFICATES,
    CLUSTER_ISSUER_SETS,
    CLUSTER_ISSUERS,
    ISSUER_SETS,
    ISSUERS,
)

S = TypeVar("S")
# A certificate that does not exist yet is as urgent as one that expires after this time.
_A_DAY_S = 86_400.0
# Challenges also wait for a CA, so they get this many times more workers. Orders do not, because many that
# begin together would then finish late, and all together.
_FOR_A_CA = 4
_FEW = 1


def _is_enabled(name: str) -> Callable[[Parts], bool]:
    return lambda parts: name in parts.enabled


def _certificates(parts: Parts) -> CertificateReconciler:
    facts = Facts()
    fights, trigger = Fights(parts.settings.limits), Trigger(parts.settings.limits, parts.gate)
    keys, requests = Keys(parts.policy), Requests(parts.settings.copied_annotation_prefixes)
    issuing = Issuing(parts.settings.limits, owns_secrets=parts.settings.certificate_owner_references)
    upkeep = Upkeep(owns_secrets=parts.settings.certificate_owner_references)
    readiness, revisions = Readiness(), Revisions()
    renewal_info = RenewalInformation(parts.acme.renewals)
    on = parts.enabled
    steps = Steps(
        deciders=_enabled(
            on,
            (table.TRIGGER, fights),
            (table.TRIGGER, trigger),
            (table.KEYS, keys),
            (table.ISSUING, issuing),
            (table.ISSUING, upkeep),
            (table.READINESS, renewal_info),
            (table.READINESS, readiness),
        ),
        actors=_enabled(
            on,
            (table.KEYS, keys),
            (table.REQUESTS, requests),
            (table.ISSUING, issuing),
            (table.ISSUING, upkeep),
            (table.REVISIONS, revisions),
            (table.READINESS, renewal_info),
        ),
        wakers=_enabled(
            on,
            (table.TRIGGER, trigger),
            (table.ISSUING, issuing),
            (table.ISSUING, upkeep),
            (table.READINESS, renewal_info),
            (table.READINESS, readiness),
        ),
    )
    return CertificateReconciler(
        steps,
        parts.toolbox,
        caches=parts.caches,
        facts=facts,
        authorities=parts.authorities,
        suffix=parts.settings.suffix,
    )


def _enabled(names: frozenset[str], *steps: tuple[str, S]) -> list[S]:
    return [step for name, step in steps if name in names]


def _by_expiry(parts: Parts) -> Precedence:
    """When more keys are due than can run, those whose certificate expires first go first."""

    def expiry(key: ObjectKey) -> float:
        return parts.caches.ends_at(key) or parts.toolbox.now().timestamp() + _A_DAY_S

    return Precedence(expiry)


def _certificate_handlers(parts: Parts, reconciler: CertificateReconciler, enqueue: Add) -> None:
    caches = parts.caches

    def add(key: ObjectKey) -> None:
        if not is_own_write(CERTIFICATES, key):
            enqueue(key)

    def certificate_changed(old: Certificate | None, new: Certificate | None) -> None:
        add(key_of(old, new))
        if old is not None and new is None:
            parts.acme.renewals.forget(old.metadata.uid)
        if old is None or new is None or old.spec.secret_name != new.spec.secret_name:
            # Others with the same secretName may win or lose their right to it.
            for one in (old, new):
                for rival in sharing(caches, one):
                    add(rival)

    def secret_changed(secret: ObjectKey, states: Sequence[Secret]) -> None:
        for key in caches.certificate_keys_for(secret_value(*secret)):
            add(key)
        add_owner(add, *states)

    caches.certificates.add_handler(parts.gate.certificate_changed)
    caches.certificates.add_handler(certificate_changed)
    caches.requests.add_handler(partial(add_owner_of_request, add))
    caches.secrets.add_handler(secret_changed)
    wake_with_secrets(caches.secrets, enqueue, reconciler.dependents)
    parts.gate.on_release(parts.queues.wake_issuance)


def _authority_handlers(_parts: Parts, authorities: Authorities, add: Add) -> None:
    authorities.on_change(add)


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
    wake_requests(parts.caches, add)
    wake_with_member(parts.caches, add)
    wake_with_issuer(parts.caches, add, parts.caches.requests_for)
    wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _signing_requests(parts: Parts) -> SigningRequestReconciler:
    assert parts.caches.signing_requests is not None
    return SigningRequestReconciler(
        parts.issuers.of_signer,
        parts.issuer_tools,
        kinds=table.signer_kinds(parts.enabled, table.CSR_SIGNERS),
        may_reference=reference_review(parts.toolbox.client),
        requests=parts.caches.signing_requests,
        secrets=parts.caches.secrets,
        secrets_in=lambda signer: signer.namespace or parts.secrets_of_cluster_issuers,
    )


def _signing_request_handlers(parts: Parts, reconciler: SigningRequestReconciler, add: Add) -> None:
    assert parts.caches.signing_requests is not None
    parts.caches.signing_requests.add_handler(lambda old, new: add(key_of(old, new)))
    wake_with_issuer(parts.caches, add, parts.caches.signing_requests_for)
    wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _issuers(parts: Parts) -> IssuerReconciler[Issuer]:
    return IssuerReconciler(
        ISSUERS,
        parts.issuer_tools,
        informer=parts.caches.issuers,
        secrets=parts.caches.secrets,
        secrets_in=lambda issuer: issuer.metadata.namespace,
        policy=parts.policy,
    )


def _issuer_handlers(parts: Parts, reconciler: IssuerReconciler[Issuer], add: Add) -> None:
    parts.caches.issuers.add_handler(lambda old, new: add(key_of(old, new)))
    wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _cluster_informer(parts: Parts) -> Informer[ClusterIssuer]:
    assert parts.caches.cluster_issuers is not None
    return parts.caches.cluster_issuers


def _cluster_issuers(parts: Parts) -> IssuerReconciler[ClusterIssuer]:
    return IssuerReconciler(
        CLUSTER_ISSUERS,
        parts.issuer_tools,
        informer=_cluster_informer(parts),
        secrets=parts.caches.secrets,
        secrets_in=lambda _issuer: parts.secrets_of_cluster_issuers,
        policy=parts.policy,
    )


def _cluster_issuer_handlers(parts: Parts, reconciler: IssuerReconciler[ClusterIssuer], add: Add) -> None:
    _cluster_informer(parts).add_handler(lambda old, new: add(key_of(old, new)))
    wake_with_secrets(parts.caches.secrets, add, reconciler.dependents)


def _sets(parts: Parts) -> SetReconciler[IssuerSet]:
    return SetReconciler(ISSUER_SETS, parts.caches.sets.namespaced, parts.members, parts.toolbox)


def _set_handlers(parts: Parts, _reconciler: SetReconciler[IssuerSet], add: Add) -> None:
    wake_sets(parts.caches, add, parts.caches.sets.namespaced)


def _cluster_sets(parts: Parts) -> SetReconciler[ClusterIssuerSet]:
    assert parts.caches.sets.cluster is not None
    return SetReconciler(CLUSTER_ISSUER_SETS, parts.caches.sets.cluster, parts.members, parts.toolbox)


def _cluster_set_handlers(parts: Parts, _reconciler: SetReconciler[ClusterIssuerSet], add: Add) -> None:
    assert parts.caches.sets.cluster is not None
    wake_sets(parts.caches, add, parts.caches.sets.cluster)


def _order_handlers(parts: Parts, _orders: OrderReconciler, add: Add) -> None:
    parts.acme.ledgers.start(add)
    wake_orders(parts.caches, add)
    wake_with_issuer(parts.caches, add, parts.caches.orders_for)
    wake_orders_with_member(parts.caches, add)
    wake_with_secrets(parts.caches.secrets, add, parts.acme.dependents)


def _challenge_handlers(parts: Parts, challenges: ChallengeReconciler, add: Add) -> None:
    wake_challenges(parts.caches, add)
    wake_refused(parts.caches, add, challenges.refused)
    wake_with_issuer(parts.caches, add, parts.caches.challenges_for)
    wake_with_secrets(parts.caches.secrets, add, parts.acme.dependents)


def _order_precedence(parts: Parts) -> Precedence:
    first = OrderPrecedence(parts.caches, parts.acme.challenges.is_proven)
    return Precedence(first.rank, first.flow)


def _challenge_precedence(parts: Parts) -> Precedence:
    first = ChallengePrecedence(parts.caches, parts.acme.challenges.is_seen)
    return Precedence(first.rank, first.flow)


def _breakers(parts: Parts) -> BreakerReconciler:
    probes = Probes(parts.issuers, parts.caches.secrets, parts.issuer_tools, acme=parts.acme.probe)
    return BreakerReconciler(
        parts.gate,
        parts.caches,
        parts.toolbox.client,
        probes.probe,
        owns=parts.mine if parts.mine is not None else lambda _issuer: True,
        now=parts.toolbox.now,
    )


def _breaker_handlers(parts: Parts, breakers: BreakerReconciler, add: Add) -> None:
    parts.gate.on_change(add, breakers.save)
    parts.caches.issuers.add_handler(parts.gate.issuer_changed)
    if parts.caches.cluster_issuers is not None:
        parts.caches.cluster_issuers.add_handler(parts.gate.issuer_changed)


ROWS: Final[tuple[Row[Any], ...]] = (
    Row("certificates", "Certificates", _certificates, _certificate_handlers, precedence=_by_expiry),
    Row(
        "authorities",
        "CAs of issuers",
        lambda parts: parts.authorities,
        _authority_handlers,
        workers=lambda _: _FEW,
        # The CA is known Certificate by Certificate.
        is_divided=False,
        yields_when_idle=False,
    ),
    Row("certificaterequests", "CertificateRequests", _requests, _request_handlers),
    Row(
        "certificatesigningrequests",
        "CertificateSigningRequests",
        _signing_requests,
        _signing_request_handlers,
        runs=lambda parts: parts.caches.signing_requests is not None,
    ),
    Row("issuers", "Issuers", _issuers, _issuer_handlers, runs=_is_enabled(table.ISSUERS)),
    Row(
        "clusterissuers",
        "ClusterIssuers",
        _cluster_issuers,
        _cluster_issuer_handlers,
        runs=lambda parts: (
            table.CLUSTER_ISSUERS in parts.enabled and parts.caches.cluster_issuers is not None
        ),
    ),
    Row("issuersets", "IssuerSets", _sets, _set_handlers, runs=_is_enabled(table.ISSUER_SETS)),
    Row(
        "clusterissuersets",
        "ClusterIssuerSets",
        _cluster_sets,
        _cluster_set_handlers,
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
    ),
    Row(
        "challenges",
        "Challenges",
        lambda parts: parts.acme.challenges,
        _challenge_handlers,
        runs=_is_enabled(table.CHALLENGES),
        precedence=_challenge_precedence,
        workers=lambda configured: _FOR_A_CA * configured,
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
