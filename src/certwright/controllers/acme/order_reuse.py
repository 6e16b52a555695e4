"""Certificates of earlier Orders: a lost Secret costs no new order, and a renewal names its predecessor.

"An Order survives its success": while its certificate is fresh, a request for the same key and the same
content gets it again, without a request to any server. If the Certificate still has that certificate when it
makes the request, it wants another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from certwright.acme.protocol.exchange import Directory
from certwright.controllers.acme.provenance import is_of_another_account
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import owner_value
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.meta import ObjectKey, controller_of
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
from certwright.resources.table import CERTIFICATES

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
