"""Which CA an issuer signs with at this moment, and who must hear of it when that becomes another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from certwright.controllers.caches import Caches, issuer_value
from certwright.pki import chain
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names
from certwright.resources.certificate import Certificate
from certwright.resources.core import Secret
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.meta import ObjectKey
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

_KEYS = (names.TLS_CERT_KEY, names.CA_CERT_KEY)


class Authorities:
    """Looks up the CAs of CA issuers in the local copies.

    The Secrets of ClusterIssuers lie in `cluster_resource_namespace`. Other kinds of issuers keep their CA to
    themselves; for them everything here is empty.
    """

    def __init__(self, caches: Caches, cluster_resource_namespace: str) -> None:
        self._caches = caches
        self._cluster_resource_namespace = cluster_resource_namespace

    def of(self, certificate: Certificate) -> tuple[CertificateFacts, ...]:
        """The CA certificates of the issuer that the Certificate's spec names, the one that signs first."""
        reference = certificate.spec.issuer_ref
        if not reference.is_ours:
            return ()
        namespace, issuer = certificate.metadata.namespace, self.issuer_of(certificate)
        if reference.kind_or_default == CLUSTER_ISSUERS.kind:
            namespace = self._cluster_resource_namespace
        if issuer is None or issuer.spec.ca is None:
            return ()
        secret = self._caches.secrets.cache.get(ObjectKey(namespace, issuer.spec.ca.secret_name))
        return chain.authority(*_pems(secret)) if secret is not None else ()

    def issuer_of(self, certificate: Certificate) -> Issuer | ClusterIssuer | None:
        """The issuer of ours that the Certificate's spec names, if it is there."""
        reference = certificate.spec.issuer_ref
        if not reference.is_ours:
            return None
        if reference.kind_or_default == ISSUERS.kind:
            key = ObjectKey(certificate.metadata.namespace, reference.name)
            return self._caches.issuers.cache.get(key)
        informer = self._caches.cluster_issuers
        return informer.cache.get(ObjectKey("", reference.name)) if informer is not None else None

    def on_change(self, add: Callable[[ObjectKey], None]) -> None:
        """From now on call `add` for each Certificate whose issuer has got another CA, be it in the same
        Secret or in another one, and for each that has failed when its issuer becomes another one."""
        self._caches.secrets.add_handler(lambda old, new: self._secret_changed(add, old, new))
        self._caches.issuers.add_handler(lambda old, new: self._issuer_changed(add, ISSUERS.kind, old, new))
        if self._caches.cluster_issuers is not None:
            kind = CLUSTER_ISSUERS.kind
            self._caches.cluster_issuers.add_handler(
                lambda old, new: self._issuer_changed(add, kind, old, new)
            )

    def _secret_changed(
        self, add: Callable[[ObjectKey], None], old: Secret | None, new: Secret | None
    ) -> None:
        # A CA that is gone for the moment (its Secret is being replaced) changes nothing yet.
        if new is None or (old is not None and _pems(old) == _pems(new)):
            return
        for issuer in self._fed_by(new.metadata.key):
            self._wake(add, issuer)

    def _fed_by(self, secret: ObjectKey) -> Iterator[str]:
        for issuer in self._caches.issuers_with(secret.name):
            if issuer.metadata.namespace == secret.namespace:
                yield issuer_value(ISSUERS.kind, secret.namespace, issuer.metadata.name)
        if secret.namespace == self._cluster_resource_namespace:
            for cluster_issuer in self._caches.cluster_issuers_with(secret.name):
                yield issuer_value(CLUSTER_ISSUERS.kind, "", cluster_issuer.metadata.name)

    def _issuer_changed(
        self,
        add: Callable[[ObjectKey], None],
        kind: str,
        old: Issuer | ClusterIssuer | None,
        new: Issuer | ClusterIssuer | None,
    ) -> None:
        if new is None or (old is not None and not _decides_otherwise(old, new)):
            return
        value = issuer_value(kind, new.metadata.namespace, new.metadata.name)
        if old is None or old.spec.ca != new.spec.ca:
            self._wake(add, value)
            return
        for certificate in self._caches.certificates_from(value):
            if certificate.status.last_failure_time is not None:
                add(certificate.metadata.key)

    def _wake(self, add: Callable[[ObjectKey], None], issuer: str) -> None:
        for certificate in self._caches.certificates_from(issuer):
            add(certificate.metadata.key)


def _decides_otherwise(old: Issuer | ClusterIssuer, new: Issuer | ClusterIssuer) -> bool:
    notes = (one.metadata.annotations.get(names.MINIMUM_BACKOFF) for one in (old, new))
    return old.metadata.generation != new.metadata.generation or len(set(notes)) > 1


def _pems(secret: Secret) -> tuple[bytes, bytes]:
    chain_pem, ca_pem = (secret.data.get(key, b"") for key in _KEYS)
    return chain_pem, ca_pem
