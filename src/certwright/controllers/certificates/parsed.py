"""Parsed PEM, read once: keys, certificates and requests as facts that can be compared.

Each rule reads the same bytes in each round and at each wake-up; so the last results are cached by the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from certwright.controllers.cache.transforms import NeedsFullSecret, UnsignedRequest, WithheldKey
from certwright.kube.util.caches import Lru
from certwright.kube.util.executor import Executor
from certwright.pki import keys, spki
from certwright.pki.certificates import CertificateFacts, known_certificate, read_certificate
from certwright.pki.csr import CsrFacts, known_csr, read_csr
from certwright.pki.errors import PkiError
from certwright.pki.verify import Verification, is_quick, verify_answer
from certwright.resources.certificate import CertificateSpec
from certwright.resources.references import IssuerReference

# About 4 kB each: enough for some hundred certificates that are being issued at the same time.
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A private key. `public` is its SubjectPublicKeyInfo: equal bytes, equal keys. `private` is None where
    the key itself is stripped."""

    private: keys.PrivateKey | None = field(repr=False)
    public: bytes
    plan: keys.KeyPlan | None
    """The kind of key; None for one that no spec can ask for."""

    @classmethod
    def of(cls, key: keys.PrivateKey) -> KeyFacts:
        """The facts of that key."""
        return cls(key, keys.public_key_der(key), keys.plan_of(key))

    @property
    def key(self) -> keys.PrivateKey:
        """The key itself. Raises `NeedsFullSecret` where it is stripped."""
        if self.private is None:
            raise NeedsFullSecret
        return self.private

    @property
    def is_slow(self) -> bool:
        """Whether signing with it takes a millisecond or more."""
        return keys.is_slow(self.key)


class Compared(NamedTuple):
    """A comparison of a request with a spec: the request's other fields, the spec, and the fields that
    differ. The request's author, which the API server fills in, makes no difference."""

    issuer: IssuerReference
    duration: str | None
    is_ca: bool
    usages: tuple[str, ...]
    spec: CertificateSpec
    is_ours: bool
    differing: tuple[str, ...]


class NeedsVerification(Exception):
    """A long issued chain is needed whose verification is not known: verify it outside of the event loop, and
    retry."""

    def __init__(self, chain_pem: bytes, ca_pem: bytes) -> None:
        super().__init__("the chain is not verified yet")
        self.chain_pem = chain_pem
        self.ca_pem = ca_pem


class Facts:
    """A parser of PEM with a cache. Nothing raises: for what cannot be read, the result is a sentence that
    says why.

    `pki` itself caches certificates and requests. `compared` has the last results about requests, by their
    signing requests.
    """

    def __init__(self) -> None:
        # By the digest of the PEM: a Secret of a megabyte must not stay in memory for each of its changes.
        self._keys: Lru[bytes, KeyFacts | str] = Lru(_REMEMBERED)
        self.compared: Lru[bytes, Compared] = Lru(_REMEMBERED)
        self._verified: Lru[tuple[bytes, ...], Verification | str] = Lru(_REMEMBERED)
        self._no_certificate = _read_certificate(b"")

    def key(self, pem: bytes) -> KeyFacts | str:
        """The private key in `pem`, or why there is none."""
        if isinstance(pem, WithheldKey):
            # The public key of the certificate beside a stripped key.
            try:
                certificate = known_certificate(pem.chain_pem)
                return KeyFacts(None, certificate.public_key_der, spki.plan_of(certificate.spki))
            except PkiError as error:
                raise NeedsFullSecret from error
        digest = sha256(pem).digest()
        if (cached := self._keys.get(digest)) is not None:
            return cached
        try:
            return self._keys.put(digest, KeyFacts.of(keys.load_private_key(pem)))
        except PkiError as error:
            return self._keys.put(digest, str(error))

    def certificate(self, pem: bytes, key_pem: bytes = b"") -> CertificateFacts | str:
        """The first certificate in `pem`, or why there is none. `key_pem` is what is cached for its key."""
        if isinstance(key_pem, WithheldKey) and key_pem.chain_pem == pem:
            return _read_certificate(pem, known_certificate)
        # Called repeatedly until the first one exists.
        return _read_certificate(pem) if pem else self._no_certificate

    def verification(self, chain_pem: bytes, ca_pem: bytes, now: datetime) -> Verification | str:
        """The verification of an issuer's answer, or why the answer cannot be parsed. Raises
        `NeedsVerification` if that takes long."""
        if (known := self._verified.get(_digests(chain_pem, ca_pem))) is not None:
            return known
        if not is_quick(chain_pem, ca_pem):
            raise NeedsVerification(chain_pem, ca_pem)
        return self._verified.put(_digests(chain_pem, ca_pem), _verify(chain_pem, ca_pem, now))

    async def verify(self, needed: NeedsVerification, now: datetime, executor: Executor, flow: str) -> None:
        """Verify a long chain, so that `verification` has the result. `flow` is the namespace."""
        result = await executor.run(lambda: _verify(needed.chain_pem, needed.ca_pem, now), flow)
        self._verified.put(_digests(needed.chain_pem, needed.ca_pem), result)

    def csr(self, pem: bytes) -> CsrFacts | None:
        """The signing request in `pem`, or None where there is none."""
        try:
            return known_csr(pem.der) if isinstance(pem, UnsignedRequest) else read_csr(pem)
        except PkiError:
            return None

    def forget_key(self, pem: bytes) -> None:
        """Evict the private key in `pem` from the cache."""
        self._keys.drop(sha256(pem).digest())

    def encode(self, key: KeyFacts, encoding: str) -> bytes:
        """The key as PEM (`PKCS1` or `PKCS8`); it need not be parsed when it is read back."""
        pem = keys.encode_private_key(key.key, encoding)
        self._keys.put(sha256(pem).digest(), key)
        return pem


def _digests(*texts: bytes) -> tuple[bytes, ...]:
    return tuple(sha256(text).digest() for text in texts)


def _verify(chain_pem: bytes, ca_pem: bytes, now: datetime) -> Verification | str:
    try:
        return verify_answer(chain_pem, ca_pem, now)
    except PkiError as error:
        return str(error)


def _read_certificate(
    pem: bytes, read: Callable[[bytes], CertificateFacts] = read_certificate
) -> CertificateFacts | str:
    try:
        return read(pem)
    except PkiError as error:
        return str(error)
