"""The source of a CA that an annotation names: a Certificate, a Secret or the API server; and the bundle.

A new CA is added to a bundle, and former CAs stay until they expire, so that nothing fails between the
rotation of a CA and the renewal of the certificates that the CA has signed.

Source: cert-manager, feature `CAInjectorMerging`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cainjector.targets import Sources
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import Forbidden
from certwright.kube.api.meta import ObjectKey
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.errors import BadCertificate
from certwright.resources import names
from certwright.resources.certificate import Certificate

MOST_FORMER: Final = 20
"""The author of the Secret may change its CA as often as it likes, and the bundle is in an object of an
administrator, which must stay small enough to be written."""


CA_KEY = "ca.crt"
_T = TypeVar("_T")


class NoCA(Exception):
    """There is no CA; the text is one sentence with the annotation and the fix."""


class NoRight(NoCA):
    """The source cannot be read; no event reports when the right is granted."""


class Reads:
    """Reads Certificates and Secrets for one object, and records its Secrets, whose changes enqueue the
    object from then on. The methods raise what a GET raises."""

    def __init__(self, caches: Caches, dependents: Dependents[ObjectKey], whose: ObjectKey) -> None:
        self._caches, self._dependents, self._whose = caches, dependents, whose
        self.secrets: set[ObjectKey] = set()

    async def certificate(self, key: ObjectKey) -> Certificate | None:
        """The Certificate of that name."""
        return await self._caches.find_certificate(key)

    async def secret(self, key: ObjectKey) -> Secret | None:
        """The Secret of that name."""
        self._dependents.add(self._whose, key)
        self.secrets.add(key)
        return await self._caches.secrets.peek(key)


class CA(msgspec.Struct, frozen=True):
    """CA certificates, and the Certificate whose Secret they are from; None: not known."""

    certificates: Sequence[CertificateFacts]
    certificate: ObjectKey | None = None


async def find_ca(sources: Sources, reads: Reads, api_server_ca: bytes) -> CA:
    """The CA in the source that the annotations name. Raises `NoCA`, and what a GET raises."""
    if sources.secret:
        return await _of_secret(sources.secret, reads)
    if sources.certificate:
        return await _of_certificate(sources.certificate, reads)
    if not api_server_ca:
        raise NoCA(
            f"{names.INJECT_API_SERVER_CA}: the kubeconfig contains no CA of the API server; use "
            "inject-ca-from-secret instead"
        )
    return CA(_parse(api_server_ca, "the CA of the API server"))


async def _of_secret(value: str, reads: Reads) -> CA:
    annotation = names.INJECT_CA_FROM_SECRET
    key = _key(annotation, value)
    secret = await _readable(reads.secret(key), annotation, f"Secret {key}")
    if secret is None:
        raise NoCA(f"{annotation}: there is no Secret {key}; create it, or correct the annotation")
    if secret.metadata.annotations.get(names.ALLOW_DIRECT_INJECTION) != "true":
        raise NoCA(
            f"{annotation}: Secret {key} does not allow it; annotate it with "
            f'{names.ALLOW_DIRECT_INJECTION}: "true"'
        )
    name = secret.metadata.annotations.get(names.CERTIFICATE_NAME)
    owner = ObjectKey(key.namespace, name) if name else None
    return CA(_ca_of(secret, annotation), owner)


async def _of_certificate(value: str, reads: Reads) -> CA:
    annotation = names.INJECT_CA_FROM
    key = _key(annotation, value)
    certificate = await _readable(reads.certificate(key), annotation, f"Certificate {key}")
    if certificate is None:
        raise NoCA(f"{annotation}: there is no Certificate {key}; create it, or correct the annotation")
    where = ObjectKey(key.namespace, certificate.spec.secret_name)
    secret = await _readable(reads.secret(where), annotation, f"Secret {where}")
    if secret is None:
        raise NoCA(f"{annotation}: Certificate {key} has no Secret yet; it is waited for")
    owner = secret.metadata.annotations.get(names.CERTIFICATE_NAME)
    if owner != key.name:
        raise NoCA(
            f"{annotation}: Secret {where} belongs to Certificate {owner or '(none)'}, not to {key.name}; "
            "give each Certificate a Secret of its own"
        )
    return CA(_ca_of(secret, annotation), key)


async def _readable(answer: Awaitable[_T], annotation: str, what: str) -> _T:
    try:
        return await answer
    except Forbidden as error:
        raise NoRight(
            f"{annotation}: {what} cannot be read: {error}; grant certwright the right to"
        ) from error


def _key(annotation: str, value: str) -> ObjectKey:
    namespace, slash, name = value.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise NoCA(f"{annotation}: {value!r} is not NAMESPACE/NAME; write, e.g., default/ca")
    return ObjectKey(namespace, name)


def _ca_of(secret: Secret, annotation: str) -> Sequence[CertificateFacts]:
    pem = secret.data.get(CA_KEY, b"")
    if not pem.strip():
        raise NoCA(f"{annotation}: Secret {secret.metadata.key} has no {CA_KEY}; its issuer returned no CA")
    return _parse(pem, f"{annotation}: {CA_KEY} of Secret {secret.metadata.key}")


def _parse(pem: bytes, what: str) -> Sequence[CertificateFacts]:
    try:
        return read_chain(pem)
    except BadCertificate as error:
        raise NoCA(f"{what} cannot be read: {error}; store CA certificates as PEM there") from error


class Bundle(NamedTuple):
    """CA certificates as PEM, and when the first of those that are kept expires. None: none is kept."""

    pem: bytes
    next_expiry: datetime | None


def merged(existing: bytes, current: Sequence[CertificateFacts], now: datetime) -> Bundle:
    """The CAs of `existing` in their order, without expired CAs and all but the last `MOST_FORMER` former
    CAs; then the CAs that only `current` has. The order is cert-manager's, because bundles are compared byte
    by byte. An `existing` bundle that cannot be parsed is replaced."""
    wanted = {ca.der: ca for ca in current}
    present = {ca.der: ca for ca in _read(existing) if ca.der in wanted or ca.not_after > now}
    former = [ca for ca in present.values() if ca.der not in wanted]
    for ca in former[:-MOST_FORMER]:
        del present[ca.der]
    pem = b"".join(ca.pem for ca in (present | wanted).values())
    return Bundle(pem, min((ca.not_after for ca in former[-MOST_FORMER:]), default=None))


def _read(pem: bytes) -> Sequence[CertificateFacts]:
    try:
        return read_chain(pem) if pem.strip() else ()
    except BadCertificate:
        return ()
