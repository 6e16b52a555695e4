"""The CAs that issuers sign with now, and the Certificates to enqueue when such a CA changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from certwright.controllers.cache.caches import Caches, signer_reference
from certwright.controllers.cache.issuer_sets import issuer_value
from certwright.kube.api.meta import ObjectKey, Owned
from certwright.kube.runtime.controller import Result
from certwright.pki import chain
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.references import IssuerReference
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

Add = Callable[[ObjectKey], None]


class _Authority(NamedTuple):
    """The content of a CA's Secret, raw and parsed: the signing CA, then the CAs above it."""

    pems: tuple[bytes, bytes]
    certificates: tuple[CertificateFacts, ...]


_NONE = _Authority((b"", b""), ())


class Authorities:
    """Looks up the CAs of CA issuers.

    `wake` enqueues a Certificate. The Secrets of ClusterIssuers lie in `cluster_resource_namespace`. Other
    kinds of issuers do not reveal their CA; for them everything here is empty.
    """

    def __init__(self, caches: Caches, cluster_resource_namespace: str, wake: Add) -> None:
        self._caches = caches
        self._cluster_resource_namespace = cluster_resource_namespace
        self._wake = wake
        self._known: dict[ObjectKey, _Authority] = {}

    async def of(self, issuer: Issuer | ClusterIssuer) -> tuple[CertificateFacts, ...]:
        """The CA certificates of an issuer; the signing CA is first. Raises what a GET of its Secret
        raises."""
        if issuer.spec.ca is None:
            return ()
        namespace = issuer.metadata.namespace or self._cluster_resource_namespace
        return await self._read(ObjectKey(namespace, issuer.spec.ca.secret_name))

    def issuer_of(self, certificate: Certificate) -> Issuer | ClusterIssuer | None:
        """The issuer of our group that the Certificate's spec names, if it exists."""
        return self._find(certificate.spec.issuer_ref, certificate)

    def signer_of(self, certificate: Certificate) -> Issuer | ClusterIssuer | None:
        """The issuer that signed the Certificate: as `issuer_of`, or the member of the set that its spec
        names."""
        reference = signer_reference(self._caches, certificate)
        return self._find(reference, certificate) if reference is not None else None

    def _find(self, reference: IssuerReference, certificate: Certificate) -> Issuer | ClusterIssuer | None:
        if not reference.is_ours:
            return None
        is_cluster = reference.kind_or_default == CLUSTER_ISSUERS.kind
        informer = self._caches.issuers_of(reference.kind_or_default)
        key = ObjectKey("" if is_cluster else certificate.metadata.namespace, reference.name)
        return informer.cache.get(key) if informer is not None else None

    async def reconcile(self, secret: ObjectKey) -> Result:
        """If this Secret contains another CA now, enqueue the Certificates that were judged by the former CA.
        Raises what a GET raises."""
        if next(self._issuers_signing_with(secret), None) is None:
            self._known.pop(secret, None)
        elif secret in self._known:
            await self._read(secret)
        return Result()

    def on_change(self, enqueue: Add) -> None:
        """From now on call `enqueue` for Secrets to be reconciled. Enqueue each Certificate whose issuer
        takes its CA from another Secret, and each failed Certificate when its issuer changes."""

        def secret_changed(key: ObjectKey, _states: Sequence[Owned]) -> None:
            if key in self._known:
                enqueue(key)

        self._caches.secrets.add_handler(secret_changed)
        for informer in self._caches.issuer_informers:
            informer.add_handler(partial(self._issuer_changed, informer.kind.kind))

    async def _read(self, key: ObjectKey) -> tuple[CertificateFacts, ...]:
        secret = await self._caches.secrets.peek(key)
        known = self._known.get(key)
        if secret is None:
            # A CA that is missing for a moment (its Secret is being replaced) changes nothing yet.
            self._known[key] = _NONE
            return ()
        data = secret.data
        pems = (data.get(names.TLS_CERT_KEY, b""), data.get(names.CA_CERT_KEY, b""))
        if known is not None and known.pems == pems:
            return known.certificates
        authority = self._known[key] = _Authority(pems, chain.authority(*pems))
        if known is not None:
            for issuer in self._issuers_signing_with(key):
                self._enqueue_certificates_of(issuer)
        return authority.certificates

    def _issuers_signing_with(self, secret: ObjectKey) -> Iterator[str]:
        for issuer in self._caches.issuers_with(secret.name):
            if issuer.metadata.namespace == secret.namespace:
                yield issuer_value(ISSUERS.kind, secret.namespace, issuer.metadata.name)
        if secret.namespace == self._cluster_resource_namespace:
            for cluster_issuer in self._caches.cluster_issuers_with(secret.name):
                yield issuer_value(CLUSTER_ISSUERS.kind, "", cluster_issuer.metadata.name)

    def _issuer_changed(
        self, kind: str, old: Issuer | ClusterIssuer | None, new: Issuer | ClusterIssuer | None
    ) -> None:
        if new is None or (old is not None and not _decides_otherwise(old, new)):
            return
        value = issuer_value(kind, new.metadata.namespace, new.metadata.name)
        if old is None or old.spec.ca != new.spec.ca:
            self._enqueue_certificates_of(value)
            return
        for certificate in self._caches.certificates_from(value):
            if certificate.status.last_failure_time is not None:
                self._wake(certificate.metadata.key)

    def _enqueue_certificates_of(self, issuer: str) -> None:
        for certificate in self._caches.certificates_from(issuer):
            self._wake(certificate.metadata.key)


def _decides_otherwise(old: Issuer | ClusterIssuer, new: Issuer | ClusterIssuer) -> bool:
    notes = (issuer.metadata.annotations.get(names.MINIMUM_BACKOFF) for issuer in (old, new))
    return old.metadata.generation != new.metadata.generation or len(set(notes)) > 1
