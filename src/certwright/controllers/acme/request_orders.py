"""The Order of a request: found, adopted from an earlier request, or created.

A request has one Order at a time. A superseded Order (`ACME_SUPERSEDED`: the issuer uses another server,
account or profile, or the CA has lost the order) does not count: the next Order is created immediately, for
the same request. A CertificateSigningRequest is passed in the form of a CertificateRequest
(`requests/signing_requests.py`) and always gets an Order of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from certwright.acme.protocol.exchange import Directory
from certwright.controllers.acme.provenance import Provenance, is_of_another_account
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import BY_OWNER, owner_value
from certwright.controllers.requests.signing import FindIssuer
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import OrderChanged
from certwright.kube.api import conditions
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
from certwright.pki import renewal
from certwright.pki.certificates import CertificateFacts, certificate_id, read_answer, read_certificate
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.pki.verify import verify
from certwright.resources import names, reasons
from certwright.resources.acme import Order, OrderSpec, order_name
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
_FORCED: Final = (reasons.MANUALLY_TRIGGERED, reasons.MANUAL_REQUEST_WAITS)


class RequestOrders:
    """Finds, adopts or creates the Order of a request. `issuer_of` finds the issuer of a request."""

    def __init__(
        self,
        toolbox: Toolbox,
        caches: Caches,
        issuer_of: FindIssuer,
        provenance: Provenance,
    ) -> None:
        self._client = toolbox.client
        self._executor = toolbox.executor
        self._now = toolbox.now
        self._caches = caches
        self._issuer_of = issuer_of
        self._provenance = provenance

    async def ensure(self, request: CertificateRequest, spec: OrderSpec) -> Order:
        """See `EnsureOrder`. Raises also what writes to the API raise, and `Conflict` where no name is
        free."""
        meta, orders = request.metadata, self._caches.orders
        account = self._account_of(request)
        # The Order of this request: an Order with one of our names, or an Order of cert-manager with another
        # name, which is continued.
        first = order_name(meta.name, spec)
        for order in self._caches.orders_of(meta):
            ours, name = order_name(meta.name, order.spec), order.metadata.name
            is_ours = name == ours or name.startswith(f"{ours}-")
            if (ours == first or not is_ours) and self._is_usable(order, meta, account):
                return order

        informer = self._caches.signing_requests
        signing_request = informer.cache.get(ObjectKey("", meta.name)) if informer is not None else None
        is_of_kubernetes = signing_request is not None and signing_request.metadata.uid == meta.uid
        kind = CERTIFICATE_SIGNING_REQUESTS if is_of_kubernetes else CERTIFICATE_REQUESTS
        owner = controller_reference(kind, meta)
        if not is_of_kubernetes and (survivor := await self._reusable(request, spec)) is not None:
            return await self._adopt(survivor, owner)

        # The Orders that the request no longer wants, because the issuer's profile or duration has changed:
        # their reconciler gives up what has this annotation.
        for order in self._caches.orders_of(meta):
            if not order.status.is_final and names.ACME_SUPERSEDED not in order.metadata.annotations:
                key, uid = order.metadata.key, order.metadata.uid
                patch = {"metadata": {"uid": uid, "annotations": {names.ACME_SUPERSEDED: "true"}}}
                orders.put(await self._client.patch(ORDERS, key.name, key.namespace, patch))

        # The first name is cert-manager's; the others are used if an Order of a deleted request, or a
        # superseded Order, has it.
        second = f"{first}-{meta.uid[:8]}"
        for name in (first, second, *(f"{second}-{number}" for number in range(2, _MOST_NAMES))):
            if ObjectKey(meta.namespace, name) not in orders.cache:
                made = await self._create(request, name, owner, spec, account)
                if self._is_usable(made, meta, account):
                    return made
        raise Conflict(f'Other Orders have all names for the Order of {kind.kind} "{meta.name}"')

    async def _create(
        self,
        request: CertificateRequest,
        name: str,
        owner: OwnerReference,
        spec: OrderSpec,
        account: Mapping[str, str],
    ) -> Order:
        meta = request.metadata
        # A Certificate may carry any annotation, also those that only an Order has.
        annotations = {key: value for key, value in meta.annotations.items() if key not in names.STATE}
        order_meta = ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels=meta.labels,
            annotations={**annotations, **account, names.ACME_ATTEMPTS: ""},
            owner_references=(owner,),
        )
        try:
            made = await self._client.create(ORDERS, Order(metadata=order_meta, spec=spec))
        except AlreadyExists:
            made = await self._client.get(ORDERS, name, meta.namespace)
        else:
            if not is_controlled_by(made.metadata, meta.uid):
                # Without it the Order would never be found, and another would be made under the next name.
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

    async def _reusable(self, request: CertificateRequest, spec: OrderSpec) -> Order | None:
        """The earlier Order whose certificate this request may have; of several, the Order that expires last.

        "An Order survives its success": while its certificate is fresh, a request for the same key and
        content gets it again, without a request to any server. Not reused if the Certificate's Secret still
        holds that certificate: the request then asks for a new one.
        """
        meta, caches, now = request.metadata, self._caches, self._now()
        candidates = caches.orders_with(meta.namespace, spec)
        if not candidates:
            return None
        owner, certificate = controller_of(meta), None
        if owner is not None and owner.kind == CERTIFICATES.kind:
            certificate = caches.certificates.cache.get(ObjectKey(meta.namespace, owner.name))
            if certificate is not None and certificate.metadata.uid != owner.uid:
                certificate = None
        current: CertificateFacts | None = None
        if certificate is not None:
            issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
            if issuing is not None and issuing.reason in _FORCED:
                return None
            secret = await caches.secrets.peek(ObjectKey(meta.namespace, certificate.spec.secret_name))
            with suppress(PkiError):
                current = read_certificate(secret.data.get(names.TLS_CERT_KEY, b"") if secret else b"")
        wanted = certificate.spec if certificate is not None else None

        def may_have(facts: CertificateFacts) -> bool:
            moment = renewal.renewal_time(
                facts.not_before,
                facts.not_after,
                wanted.renew_before_duration if wanted is not None else None,
                wanted.renew_before_percentage if wanted is not None else None,
            )
            # A Certificate that has it and is issued nevertheless is being renewed, for whatever reason.
            return now < moment and current != facts

        def is_sound(pem: bytes) -> bool:
            """Whether the chain has no fault: a wrong one that was refused would be returned for ever."""
            try:
                result = verify(read_answer(pem), (), now)
            except PkiError:
                return False
            return not result.refusal and not result.faults

        alike = [order for order in candidates if _is_alike(order.spec, spec)]
        fresh = [pair for pair in _read(alike) if may_have(pair[1])]
        for order, _ in sorted(fresh, key=lambda pair: pair[1].not_after, reverse=True):
            pem = order.status.certificate
            if await self._executor.run(partial(is_sound, pem), order.metadata.namespace):
                return order
        return None


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


def has_issued(caches: Caches, order: Order, directory: Directory, account: str) -> bool:
    """Whether that account of the server issued the certificate that the Order replaces (RFC 9773 §5), by the
    Order that has the certificate. An imported or restored certificate has no Order; the server's renewal
    information for it proves the same."""
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


def _is_alike(spec: OrderSpec, other: OrderSpec) -> bool:
    """Ignores the bytes of the signing requests, because they contain a signature, which differs each
    time."""
    one, two = (msgspec.structs.replace(item, request=b"", replaces="") for item in (spec, other))
    if one != two:
        return False
    try:
        facts = [dataclasses.replace(read_csr(item.request), der=b"") for item in (spec, other)]
    except PkiError:
        return False
    return facts[0] == facts[1]


def _read(orders: Iterable[Order]) -> Iterable[tuple[Order, CertificateFacts]]:
    for order in orders:
        if order.metadata.deletion_timestamp is not None or not order.status.certificate:
            continue
        try:
            yield order, read_certificate(order.status.certificate)
        except PkiError:
            continue
