"""The Order of a request: found, adopted from an earlier request, or created.

A request has one Order at a time. One that was given up (`ACME_SUPERSEDED`: the issuer uses another server,
account or profile, or the CA has lost the order) does not count: the next one is created immediately, for the
same request. A CertificateSigningRequest comes in
the form of a CertificateRequest (`requests/signing_requests.py`) and always gets an Order of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from certwright.acme.protocol.exchange import Directory
from certwright.controllers.acme.order_challenges import order_name
from certwright.controllers.acme.provenance import Provenance, is_of_another_account
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import BY_OWNER, owner_value
from certwright.controllers.requests.signing import FindIssuer
from certwright.issuers.contract import OrderChanged
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import AlreadyExists, Conflict
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import (
    CONTROLLER_REFERENCE,
    ObjectKey,
    ObjectMeta,
    OwnerReference,
    changed_by_admission,
    controller_of,
    is_controlled_by,
)
from certwright.kube.client.rest import Client
from certwright.kube.util.executor import Executor
from certwright.pki import renewal
from certwright.pki.certificates import CertificateFacts, certificate_id, read_answer, read_certificate
from certwright.pki.csr import CsrFacts, read_csr
from certwright.pki.errors import PkiError
from certwright.pki.verify import verify
from certwright.resources import names, reasons
from certwright.resources.acme import Order, OrderSpec
from certwright.resources.certificate import Certificate
from certwright.resources.request import CertificateRequest
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATE_SIGNING_REQUESTS,
    CERTIFICATES,
    ORDERS,
)

# Each change of the issuer's server or account, while one request waits, takes one name.
_MOST_NAMES: Final = 1000
_RECENTLY: Final = timedelta(days=1)


class RequestOrders:
    """`issuer_of` finds the issuer of a request."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        issuer_of: FindIssuer,
        provenance: Provenance,
        *,
        executor: Executor,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._caches = caches
        self._issuer_of = issuer_of
        self._provenance = provenance
        self._refill = Refill(
            orders_with=caches.orders_with,
            get_certificate=caches.certificates.cache.get,
            get_secret=caches.secrets.look,
            executor=executor,
            now=now,
        )

    async def ensure(self, request: CertificateRequest, spec: OrderSpec) -> Order:
        """See `EnsureOrder`. Raises also what writes to the API raise, and `Conflict` where no name is
        free."""
        meta = request.metadata
        account = self._account_of(request)
        if (existing := self._order_of(meta, spec, account)) is not None:
            return existing
        kind = CERTIFICATE_SIGNING_REQUESTS if self._is_of_kubernetes(meta) else CERTIFICATE_REQUESTS
        owner = controller_reference(kind, meta)
        if kind is CERTIFICATE_REQUESTS and (survivor := await self._refill.find(request, spec)) is not None:
            return await self._adopt(survivor, owner)
        await self._supersede(meta)
        for name in self._free_names(meta, spec):
            made = await self._create_order(request, name, owner, spec, account)
            if self._is_usable(made, meta, account):
                return made
        raise Conflict(f'Other Orders have all names for the Order of {kind.kind} "{meta.name}"')

    async def _supersede(self, request: ObjectMeta) -> None:
        """End the Orders that the request no longer wants, because the issuer's profile or duration has
        changed: their reconciler gives up what has this annotation."""
        for order in self._caches.orders_of(request):
            meta = order.metadata
            if not order.status.is_final and names.ACME_SUPERSEDED not in meta.annotations:
                patch = {"metadata": {"uid": meta.uid, "annotations": {names.ACME_SUPERSEDED: "true"}}}
                self._caches.orders.put(await self._client.patch(ORDERS, meta.name, meta.namespace, patch))

    def _is_of_kubernetes(self, request: ObjectMeta) -> bool:
        informer = self._caches.signing_requests
        signing_request = informer.cache.get(ObjectKey("", request.name)) if informer is not None else None
        return signing_request is not None and signing_request.metadata.uid == request.uid

    async def _create_order(
        self,
        request: CertificateRequest,
        name: str,
        owner: OwnerReference,
        spec: OrderSpec,
        account: Mapping[str, str],
    ) -> Order:
        meta = request.metadata
        order_meta = ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels=meta.labels,
            annotations={**_copied(meta.annotations), **account, names.ACME_ATTEMPTS: ""},
            owner_references=(owner,),
        )
        try:
            made = await self._client.create(ORDERS, Order(metadata=order_meta, spec=spec))
        except AlreadyExists:
            made = await self._client.get(ORDERS, name, meta.namespace)
        else:
            if not is_controlled_by(made.metadata, meta.uid):
                # It would be found by nothing, and another one made under the next name.
                await self._client.delete(ORDERS, name, meta.namespace, uid=made.metadata.uid)
                raise OrderChanged(changed_by_admission(f'Order "{name}"', (CONTROLLER_REFERENCE,)))
        self._caches.orders.put(made)
        return made

    def _account_of(self, request: CertificateRequest) -> dict[str, str]:
        """The annotations that name the server and the account of a new Order."""
        state = self._issuer_of(request)
        if state is None or state.view.spec.acme is None:
            return {}
        view, server = state.view, state.view.spec.acme.server
        if view.account is None or view.ready_at != view.generation:
            return {names.ACME_SERVER: server}
        return {names.ACME_SERVER: server, names.ACME_ACCOUNT: view.account.uri}

    def _is_usable(self, order: Order, request: ObjectMeta, account: Mapping[str, str]) -> bool:
        """Whether the Order is this request's, and did not end with the issuer's change of account."""
        if not is_controlled_by(order.metadata, request.uid) or self._provenance.problem_of_order(order):
            return False
        has_failed = order.status.is_final and order.status.state != "valid"
        return not (has_failed and is_of_another_account(order.metadata.annotations, account))

    def _free_names(self, request: ObjectMeta, spec: OrderSpec) -> Iterator[str]:
        """Names for a new Order: the first is cert-manager's, the others are for when an Order of a deleted
        request, or a superseded one, has it."""
        first = order_name(request.name, spec)
        second = f"{first}-{request.uid[:8]}"
        for name in (first, second, *(f"{second}-{number}" for number in range(2, _MOST_NAMES))):
            if ObjectKey(request.namespace, name) not in self._caches.orders.cache:
                yield name

    def _order_of(self, request: ObjectMeta, spec: OrderSpec, account: Mapping[str, str]) -> Order | None:
        """The Order of this very request: one with a name of ours; or one with another name, which
        cert-manager has begun, and which is continued."""
        now = order_name(request.name, spec)
        for order in self._caches.orders_of(request):
            ours, name = order_name(request.name, order.spec), order.metadata.name
            is_ours = name == ours or name.startswith(f"{ours}-")
            if (ours == now or not is_ours) and self._is_usable(order, request, account):
                return order
        return None

    async def _adopt(self, order: Order, owner: OwnerReference) -> Order:
        """Add the request with the Order's certificate as an owner; its first owner may be deleted."""
        meta = order.metadata
        if any(reference.uid == owner.uid for reference in meta.owner_references):
            return order
        added = msgspec.structs.replace(owner, controller=None, block_owner_deletion=None)
        references = [msgspec.to_builtins(reference) for reference in (*meta.owner_references, added)]
        patch = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "ownerReferences": references,
            }
        }
        changed = await self._client.patch(ORDERS, meta.name, meta.namespace, patch)
        self._caches.orders.put(changed)
        return changed


def superseded(caches: Caches, now: Callable[[], datetime], order: Order) -> int:
    """How many other Orders of the Order's request were given up in the last day."""
    owner, since = controller_of(order.metadata), now() - _RECENTLY
    siblings = caches.orders.cache.by_index(BY_OWNER, owner.uid) if owner is not None else ()
    return sum(
        sibling.metadata.annotations.get(names.ACME_SUPERSEDED) == "true"
        and sibling.metadata.uid != order.metadata.uid
        and (sibling.metadata.creation_timestamp or since) > since
        for sibling in siblings
    )


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    """The request's annotations, without those that only an Order has: a Certificate may carry any."""
    return {key: value for key, value in annotations.items() if key not in names.STATE}


OrdersWith = Callable[[str, OrderSpec], Sequence[Order]]
"""The Orders of a namespace that have got a certificate for the names of that spec."""


class Refill:
    """Asks no ACME server."""

    def __init__(
        self,
        *,
        orders_with: OrdersWith,
        get_certificate: Callable[[ObjectKey], Certificate | None],
        get_secret: Callable[[ObjectKey], Awaitable[Secret | None]],
        executor: Executor,
        now: Callable[[], datetime],
    ) -> None:
        self._orders_with = orders_with
        self._get_certificate = get_certificate
        self._get_secret = get_secret
        self._executor = executor
        self._now = now

    async def find(self, request: CertificateRequest, spec: OrderSpec) -> Order | None:
        """The Order whose certificate this request may have; of several, the one that expires last."""
        candidates = self._orders_with(request.metadata.namespace, spec)
        if not candidates:
            return None
        certificate = self._certificate_of(request)
        if certificate is not None and _is_forced(certificate):
            return None
        alike = [order for order in candidates if _is_alike(order.spec, spec)]
        current = await self._current_facts(certificate) if certificate is not None else None
        fresh = [pair for pair in _read(alike) if self._may_have(pair[1], certificate, current)]
        for order, _ in sorted(fresh, key=lambda pair: pair[1].not_after, reverse=True):
            if await self._is_sound(order):
                return order
        return None

    def _certificate_of(self, request: CertificateRequest) -> Certificate | None:
        owner = controller_of(request.metadata)
        if owner is None or owner.kind != CERTIFICATES.kind:
            return None
        certificate = self._get_certificate(ObjectKey(request.metadata.namespace, owner.name))
        return certificate if certificate is not None and certificate.metadata.uid == owner.uid else None

    def _may_have(
        self, facts: CertificateFacts, certificate: Certificate | None, current: CertificateFacts | None
    ) -> bool:
        spec = certificate.spec if certificate is not None else None
        moment = renewal.renewal_time(
            facts.not_before,
            facts.not_after,
            spec.renew_before_duration if spec is not None else None,
            spec.renew_before_percentage if spec is not None else None,
        )
        if self._now() >= moment:
            return False
        # A Certificate that has it and is issued nevertheless is being renewed, for whatever reason.
        return current != facts

    async def _is_sound(self, order: Order) -> bool:
        """Whether the chain has no fault: a wrong one that was refused would be returned for ever."""
        pem, now = order.status.certificate, self._now()

        def work() -> bool:
            try:
                result = verify(read_answer(pem), (), now)
            except PkiError:
                return False
            return not result.refusal and not result.faults

        return await self._executor.run(work, order.metadata.namespace)

    async def _current_facts(self, certificate: Certificate) -> CertificateFacts | None:
        key = ObjectKey(certificate.metadata.namespace, certificate.spec.secret_name)
        secret = await self._get_secret(key)
        pem = secret.data.get(names.TLS_CERT_KEY, b"") if secret is not None else b""
        try:
            return read_certificate(pem)
        except PkiError:
            return None


def has_issued(caches: Caches, order: Order, directory: Directory, account: str) -> bool:
    """Whether that account of the server issued the certificate that the Order replaces (RFC 9773 §5): by the
    Order that got it. For an imported or restored certificate, which has none, renewal information that the
    server has given for it shows that the server issued it."""
    owner = owner_value(order.metadata.namespace, order.metadata.annotations.get(names.CERTIFICATE_NAME, ""))
    for other, facts in _read(caches.orders_for_certificate(owner)):
        if certificate_id(facts) == order.spec.replaces:
            current = {names.ACME_SERVER: directory.url, names.ACME_ACCOUNT: account}
            is_here = directory.serves(other.status.url)
            return is_here and not is_of_another_account(other.metadata.annotations, current)
    certificate = caches.certificates.cache.get(ObjectKey(*owner.split("/")))
    acme = certificate.status.acme if certificate is not None else None
    ari = acme.ari if acme is not None else None
    return ari is not None and ari.suggested_window is not None and ari.account in ("", account)


def _is_forced(certificate: Certificate) -> bool:
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    manual = (reasons.MANUALLY_TRIGGERED, reasons.MANUAL_REQUEST_WAITS)
    return issuing is not None and issuing.reason in manual


def _is_alike(spec: OrderSpec, other: OrderSpec) -> bool:
    """Ignores the bytes of the signing requests, because they contain a signature, which differs each
    time."""
    same = msgspec.structs.replace(spec, request=b"", replaces="") == msgspec.structs.replace(
        other, request=b"", replaces=""
    )
    try:
        return same and _content(spec) == _content(other)
    except PkiError:
        return False


def _content(spec: OrderSpec) -> CsrFacts:
    return dataclasses.replace(read_csr(spec.request), der=b"")


def _read(orders: Iterable[Order]) -> Iterable[tuple[Order, CertificateFacts]]:
    for order in orders:
        if order.metadata.deletion_timestamp is not None or not order.status.certificate:
            continue
        try:
            yield order, read_certificate(order.status.certificate)
        except PkiError:
            continue
