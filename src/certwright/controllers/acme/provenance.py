"""Provenance of Orders and Challenges: an object is acted on only if it repeats an approved request.

The role `edit` may write Orders and Challenges, including `metadata.ownerReferences`, so an owner's name
proves nothing. An Order counts if the request that owns it, by UID, exists, is approved, and has the same
signing request, names and issuer. A Challenge counts if such an Order owns it, lists its URL, authorization
and token, and its solver is one of the issuer's. Everything else is refused: no server is asked, no solver
runs.

A refusal is a sentence for `status.reason`; it may end when the owner appears or is approved.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeGuard

from msgspec.structs import replace

from certwright.acme.protocol.jws import AccountKey
from certwright.controllers.acme import order_requests
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.identifiers import Name, is_ordered, names_of_identity, names_of_spec
from certwright.controllers.acme.order_challenges import TYPES, ShownFor
from certwright.controllers.cache.caches import Caches
from certwright.kube.api import conditions
from certwright.kube.api.meta import ObjectKey, ObjectMeta, OwnerReference, controller_of
from certwright.kube.util.caches import Lru
from certwright.pki.csr import CsrFacts, read_any_csr
from certwright.pki.errors import PkiError
from certwright.resources import names, reasons
from certwright.resources.acme import ACMEAuthorization, Challenge, ChallengeSpec, Order, OrderSpec
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.request import parse_signer_name
from certwright.resources.solver import Solver
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATE_SIGNING_REQUESTS, ORDERS

# RFC 8555 §8.1: a token "MUST NOT contain any characters outside the base64url alphabet". Solvers make file
# names and paths of it.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


# Each step of each Challenge asks about its Order, which may have a hundred names.
_REMEMBERED: Final = 256


class _Judged(NamedTuple):
    """A verdict on an Order, and its inputs: the Order's generation, its owner, the revisions of the owner
    and of the sets, of which the owner may name one."""

    generation: int
    owner: OwnerReference | None
    revision: Hashable
    problem: str
    ordered: frozenset[Name]


class Provenance:
    """Judges which Orders and Challenges may be acted on, by their owners in `caches`."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._judged: Lru[str, _Judged] = Lru(_REMEMBERED)
        self._orders: Lru[ObjectKey, tuple[int, Order]] = Lru(_REMEMBERED)

    def problem_of_order(self, order: Order) -> str:
        """Why the Order must not be acted on, as a sentence; empty where it may be."""
        return self._verdict(order).problem

    def _verdict(self, order: Order) -> _Judged:
        meta, owner, caches = order.metadata, controller_of(order.metadata), self._caches
        is_of_request = _is(owner, CERTIFICATE_REQUESTS.kind, CERTIFICATE_REQUESTS.group)
        revision: Hashable = None
        if owner is not None and is_of_request:
            key = ObjectKey(meta.namespace, owner.name)
            revision = caches.requests.cache.revision(key), caches.sets.changes
        elif owner is not None and caches.signing_requests is not None:
            revision = caches.signing_requests.cache.revision(ObjectKey("", owner.name))
        cached = self._judged.get(meta.uid)
        if cached is not None and cached[:3] == (meta.generation, owner, revision):
            return cached
        if owner is not None and is_of_request:
            problem = self._problem_of_request(order, owner)
        elif _is(owner, CERTIFICATE_SIGNING_REQUESTS.kind, CERTIFICATE_SIGNING_REQUESTS.group):
            problem = self._problem_of_signing_request(order, owner)
        else:
            problem = (
                "Refused: no CertificateRequest owns this Order (metadata.ownerReferences, controller: "
                "true), so nothing has been approved; create a Certificate or a CertificateRequest instead"
            )
        ordered = names_of_spec(order.spec)
        return self._judged.put(meta.uid, _Judged(meta.generation, owner, revision, problem, ordered))

    def problem_of_challenge(
        self, challenge: Challenge, solvers: Iterable[Solver], shown_for: ShownFor
    ) -> str:
        """Why the Challenge must not be acted on, as a sentence; empty where it may be. `solvers` are the
        issuer's."""
        order = self.order_of(challenge)
        if order is None:
            return (
                "Refused: no Order that exists owns this Challenge (metadata.ownerReferences, controller: "
                "true); the controller of Orders creates Challenges"
            )
        verdict = self._verdict(order)
        if verdict.problem:
            return f'Refused with Order "{order.metadata.name}": {verdict.problem.removeprefix("Refused: ")}'
        if problem := _difference(challenge.spec, order, verdict.ordered):
            return f'Refused: {problem} of Order "{order.metadata.name}", which owns this Challenge'
        return _unfit(challenge.spec, solvers, shown_for)

    def problem_of_clean_up(
        self, challenge: Challenge, solvers: Iterable[Solver], shown_for: ShownFor
    ) -> str:
        """As `problem_of_challenge`, for a Challenge that is being deleted: the Order may have gone first."""
        if self.order_of(challenge) is not None:
            return self.problem_of_challenge(challenge, solvers, shown_for)
        return _unfit(challenge.spec, solvers, shown_for)

    def order_of(self, challenge: Challenge) -> Order | None:
        """The Order that owns the Challenge, by UID; None if it does not exist."""
        owner = controller_of(challenge.metadata)
        if not _is(owner, ORDERS.kind, ORDERS.group):
            return None
        order = self._order_at(ObjectKey(challenge.metadata.namespace, owner.name))
        return order if order is not None and order.metadata.uid == owner.uid else None

    def _order_at(self, key: ObjectKey) -> Order | None:
        revision, cached = self._caches.orders.cache.revision(key), self._orders.get(key)
        if cached is not None and revision and cached[0] == revision:
            return cached[1]
        order = self._caches.orders.cache.get(key)
        if order is not None and revision:
            self._orders.put(key, (revision, order))
        else:
            self._orders.drop(key)
        return order

    def _problem_of_request(self, order: Order, owner: OwnerReference) -> str:
        request = self._caches.requests.cache.get(ObjectKey(order.metadata.namespace, owner.name))
        called = f'CertificateRequest "{owner.name}", which owns this Order,'
        if request is None or request.metadata.uid != owner.uid:
            return f"Refused: {called} does not exist"
        existing = request.status.conditions
        if not conditions.is_true(existing, reasons.APPROVED) or conditions.is_true(existing, reasons.DENIED):
            return f"Refused: {called} is not approved"
        issuer = request.spec.issuer_ref
        if issuer.is_set:
            if not self._caches.sets.has_member(issuer, order.metadata.namespace, order.spec.issuer_ref):
                return f'Refused: spec.issuerRef is not a member of {issuer.kind} "{issuer.name}"'
            issuer = order.spec.issuer_ref
        if differs := difference(order.spec, request.spec.request, issuer):
            return f"Refused: {differs} of {called.rstrip(',')}"
        return ""

    def _problem_of_signing_request(self, order: Order, owner: OwnerReference) -> str:
        informer = self._caches.signing_requests
        request = informer.cache.get(ObjectKey("", owner.name)) if informer is not None else None
        called = f'CertificateSigningRequest "{owner.name}", which owns this Order,'
        if request is None or request.metadata.uid != owner.uid:
            return f"Refused: {called} does not exist, or this process does not read them"
        if not request.status.has(reasons.APPROVED) or request.status.has(reasons.DENIED):
            return f"Refused: {called} is not approved"
        signer = parse_signer_name(request.spec.signer_name)
        if signer is None or signer.namespace not in ("", order.metadata.namespace):
            return f"Refused: {called} names another signer"
        issuer = IssuerReference(name=signer.name, kind=signer.kind)
        if differs := difference(order.spec, request.spec.request, issuer):
            return f"Refused: {differs} of {called.rstrip(',')}"
        return ""


AccountOf = Callable[[IssuerReference, ObjectMeta], Awaitable[tuple[ACMEIssuer, AccountKey] | None]]
"""See `IssuerResolver.account_of`."""

Described = Callable[[Order, str], ACMEAuthorization | None]
"""The authorization of an Order at that URL, as this process has read it from the CA; None: it has not."""


class ChallengeOrigin:
    """Compares a Challenge with its Order, its issuer, and the CA's own description."""

    def __init__(self, provenance: Provenance, account_of: AccountOf, described: Described) -> None:
        self._provenance = provenance
        self._account_of = account_of
        self._described = described

    def problem(self, challenge: Challenge, issuer: ResolvedIssuer) -> str:
        """Why the Challenge must not be acted on, as a sentence; empty where it may be."""
        shown_for = partial(order_requests.shown_for, issuer.client.key)
        return self._provenance.problem_of_challenge(challenge, issuer.spec.solvers, shown_for)

    async def problem_of_clean_up(self, challenge: Challenge) -> str:
        """Why a Challenge that is being deleted must not be cleaned up, as a sentence; empty where it may
        be."""
        account = await self._account_of(challenge.spec.issuer_ref, challenge.metadata)
        if account is None:
            return "its issuer is missing, is no ACME issuer, or has no account key"
        spec, key = account
        shown_for = partial(order_requests.shown_for, key)
        return self._provenance.problem_of_clean_up(challenge, spec.solvers, shown_for)

    def order_ended(self, challenge: Challenge) -> str:
        """The failure of the Challenge's Order, as a sentence; empty without a failure."""
        order = self._provenance.order_of(challenge)
        if order is None or not order.status.is_final or order.status.state == "valid":
            return ""
        return f'Order "{order.metadata.name}" has ended as {order.status.state}'

    def is_described(self, challenge: Challenge) -> bool:
        """Whether this process has read the challenge from the CA, for the Order that owns it."""
        order = self._provenance.order_of(challenge)
        if order is None:
            return False
        authorization = self._described(order, challenge.spec.authorization_url)
        return (
            authorization is not None
            and authorization.identifier == challenge.spec.dns_name
            and offers(authorization, challenge.spec)
        )


def is_of_another_account(annotations: Mapping[str, str], account: Mapping[str, str]) -> bool:
    """Whether an Order's annotations mark it as superseded, or name another server or account than the
    issuer's. A value that either side lacks is not compared."""
    if annotations.get(names.ACME_SUPERSEDED) == "true":
        return True
    for key in (names.ACME_SERVER, names.ACME_ACCOUNT):
        recorded, current = annotations.get(key), account.get(key)
        if recorded and current and recorded != current:
            return True
    return False


def difference(spec: OrderSpec, csr_pem: bytes, issuer: IssuerReference) -> str:
    """What of an Order does not repeat a request, as the beginning of a sentence; empty where all does."""
    if not spec.issuer_ref.same_issuer(issuer):
        return "spec.issuerRef is not that"
    try:
        asked = _read(csr_pem)
        if spec.request != csr_pem and _read(spec.request).der != asked.der:
            return "spec.request is not that"
    except PkiError:
        return "spec.request is not that"
    if names_of_spec(spec) != names_of_identity(asked, with_common_name=True):
        return "spec.dnsNames, spec.ipAddresses and spec.commonName are not those"
    return ""


def _read(request: bytes) -> CsrFacts:
    return read_any_csr(bytes(request))


def _difference(spec: ChallengeSpec, order: Order, ordered: frozenset[Name]) -> str:
    if not spec.issuer_ref.same_issuer(order.spec.issuer_ref):
        return "spec.issuerRef is not that"
    offered = next(
        (
            authorization
            for authorization in order.status.authorizations
            if authorization.url == spec.authorization_url
        ),
        None,
    )
    if offered is None:
        return "spec.authorizationURL is not among status.authorizations"
    if not is_ordered(offered, ordered):
        return "spec.dnsName is not among the names"
    if (offered.identifier, bool(offered.wildcard)) != (spec.dns_name, spec.wildcard):
        return "spec.dnsName and spec.wildcard are not those of the authorization"
    return (
        ""
        if offers(offered, spec)
        else "spec.url, spec.token and spec.type are not those of the authorization"
    )


def offers(authorization: ACMEAuthorization, spec: ChallengeSpec) -> bool:
    """Whether the server offers the challenge for the authorization."""
    return any(
        (challenge.url, challenge.token, TYPES.get(challenge.type)) == (spec.url, spec.token, spec.type)
        for challenge in authorization.challenges
    )


def _unfit(spec: ChallengeSpec, solvers: Iterable[Solver], shown_for: ShownFor) -> str:
    has_token = spec.type != "DNS-PERSIST-01"
    if has_token and not _TOKEN.fullmatch(spec.token):
        return "Refused: spec.token has characters that RFC 8555 does not allow in a token"
    if spec.key != shown_for(spec.type.lower(), spec.token):
        return "Refused: spec.key does not follow from spec.token and the issuer's account key"
    answered = _essence(spec.solver)
    if spec.solver.challenge_type != spec.type or all(_essence(solver) != answered for solver in solvers):
        return "Refused: spec.solver is not one of the issuer's spec.acme.solvers"
    return ""


def _essence(solver: Solver) -> Solver:
    """The solver without its selector, and without what annotations of the Certificate may change: name and
    classes of the Ingress, parents of the HTTPRoute."""
    page = solver.http01
    if page is not None and (ingress := page.ingress) is not None:
        page = replace(page, ingress=replace(ingress, name="", class_=None, ingress_class_name=None))
    if page is not None and (route := page.gateway_http_route) is not None:
        page = replace(page, gateway_http_route=replace(route, parent_refs=()))
    return replace(solver, selector=None, http01=page)


def _is(owner: OwnerReference | None, kind: str, group: str) -> TypeGuard[OwnerReference]:
    return owner is not None and owner.kind == kind and owner.api_version.partition("/")[0] == group
