"""The `ca` issuer: signs with a CA's certificate and key from a Secret.

Source: cert-manager `pkg/issuer/ca` (reasons and messages of the condition) and
`pkg/controller/certificaterequests/ca` (of the request).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
from cryptography import x509

from certwright.issuers.contract import (
    NOT_ALLOWED,
    Checked,
    Failed,
    IssuerView,
    Outcome,
    Pending,
    Signed,
    SigningRequest,
    Tools,
)
from certwright.issuers.contract import post_quantum_refusal as refusal
from certwright.kube.util.caches import Lru
from certwright.pki import chain
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.errors import BadCsr, BadKey, BadName, BadUsage, PkiError
from certwright.pki.keys import PrivateKey, load_private_key, public_key_der
from certwright.pki.signing import Addresses, sign, takes_long
from certwright.resources.causes import Cause
from certwright.resources.issuer import CAIssuer
from certwright.resources.names import CA_CERT_KEY, TLS_CERT_KEY, TLS_PRIVATE_KEY_KEY
from certwright.resources.operator_policy import NO_POST_QUANTUM

VERIFIED = "KeyPairVerified"
_VERIFIED_MESSAGE = "Signing CA verified"
_PREFIX = "Error getting keypair for CA issuer: "
_GET = "ErrGetKeyPair"
_INVALID = "ErrInvalidKeyPair"
_MISSING = "SecretMissing"
_INVALID_DATA = "SecretInvalidData"
_SIGNING_ERROR = "SigningError"

# A parsed pair takes some 10 kB.
_KEPT_PAIRS = 256


@dataclass(frozen=True, slots=True)
class SigningPair:
    """A CA that can sign: certificate and key, and the CA's PEM for each issued certificate."""

    certificate: CertificateFacts
    key: PrivateKey = field(repr=False)
    served: bytes
    """PEM of the CA certificates that follow a leaf in `tls.crt`; empty if the CA is a root."""
    ca_pem: bytes
    """PEM of the topmost known certificate."""


_CONTRADICTION = "change spec.usages or spec.isCA to what the signing request says"

_NOT_CERTIFIED = "make a signing request with a key and names that the spec of a Certificate may have"


class UnusablePair(msgspec.Struct, frozen=True):
    """Why there is no pair: the reasons for the issuer's condition and for the request's, and a sentence."""

    check_reason: str
    sign_reason: str
    message: str


class CA:
    """Signs with the pair in the Secret `spec.ca.secretName`.

    Beyond cert-manager: an expired CA certificate makes the issuer not ready; a `ca.crt` in the Secret
    extends the chain upwards, so that certificates of an intermediate CA come with its root.

    Parsed pairs, and why there is none, are cached by issuer and content of the Secret.
    """

    def __init__(self) -> None:
        self._pairs: Lru[str, tuple[bytes, SigningPair | UnusablePair]] = Lru(_KEPT_PAIRS)

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
        """Ready if the Secret contains the valid pair of a CA. Checks again when the CA expires."""
        name = _spec(issuer).secret_name
        now = tools.now()
        pair = await self._usable(issuer, await tools.get_secret(name), tools, issuer.namespace)
        if isinstance(pair, UnusablePair):
            return Checked(
                ready=False,
                reason=pair.check_reason,
                message=_PREFIX + pair.message,
                secrets=(name,),
                lacks_secret=pair.sign_reason == _MISSING,
            )
        left = pair.certificate.not_after - now
        return Checked(
            ready=True, reason=VERIFIED, message=_VERIFIED_MESSAGE, secrets=(name,), retry_after=left
        )

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        """Sign with the pair; pending without one, because the Secret may be created or fixed."""
        spec = _spec(issuer)
        now = tools.now()
        namespace = signing.request.metadata.namespace
        pair = await self._usable(issuer, await tools.get_secret(spec.secret_name), tools, namespace)
        if isinstance(pair, UnusablePair):
            where = f"{issuer.namespace}/{spec.secret_name}" if issuer.namespace else spec.secret_name
            message = f"Failed to parse signing CA keypair from secret {where}: {pair.message}"
            if pair.sign_reason == _MISSING:
                message = f"Referenced secret {where} not found"
            return Pending(pair.sign_reason, message, secrets=(spec.secret_name,))
        request = signing.request.spec
        if (refused := refusal(request.request, tools)) is not None:
            return refused

        def work() -> bytes:
            addresses = Addresses(
                crl_distribution_points=spec.crl_distribution_points,
                ocsp_servers=spec.ocsp_servers,
                issuing_certificate_urls=spec.issuing_certificate_urls,
            )
            duration: timedelta = request.requested_duration
            return sign(
                request.request,
                ca_cert=pair.certificate,
                ca_key=pair.key,
                duration=duration,
                is_ca=request.is_ca,
                usages=request.usages,
                now=now,
                addresses=addresses,
            )

        try:
            # An ECDSA signature takes 200 µs, not much more than handing it to a thread.
            is_slow = takes_long(pair.key, request.request)
            leaf = await tools.executor.run(work, namespace) if is_slow else work()
        except (BadCsr, BadUsage) as error:
            text = f"Error signing certificate: {error}"
            return Failed(_SIGNING_ERROR, text, cause=Cause.INVALID_REQUEST, advice=_CONTRADICTION)
        except (BadKey, BadName) as error:
            text = f"Error signing certificate: {error}"
            return Failed(_SIGNING_ERROR, text, cause=Cause.INVALID_REQUEST, advice=_NOT_CERTIFIED)
        except (PkiError, ValueError) as error:
            return Failed(_SIGNING_ERROR, f"Error signing certificate: {error}")
        return Signed(leaf + pair.served, pair.ca_pem)

    async def _usable(
        self, issuer: IssuerView, data: Mapping[str, bytes] | None, tools: Tools, namespace: str
    ) -> SigningPair | UnusablePair:
        name = _spec(issuer).secret_name
        if data is None:
            return UnusablePair(_GET, _MISSING, f'secret "{name}" not found')
        digest = _digest(name, data)
        cached = self._pairs.get(issuer.uid)
        if cached is not None and cached[0] == digest:
            pair = cached[1]
        else:
            # The chain may have dozens of signatures to verify.
            pair = await tools.executor.run(lambda: _parse(name, data), namespace)
            self._pairs.put(issuer.uid, (digest, pair))
        if isinstance(pair, UnusablePair):
            return pair
        if pair.certificate.is_ml_dsa and not tools.post_quantum:
            return UnusablePair(NOT_ALLOWED, NOT_ALLOWED, f'the CA key in secret "{name}": {NO_POST_QUANTUM}')
        if pair.certificate.not_after <= tools.now():
            expired = f"{pair.certificate.not_after:%Y-%m-%dT%H:%M:%SZ}"
            text = f'the CA certificate in secret "{name}" expired at {expired}'
            return UnusablePair(_INVALID, _INVALID_DATA, text)
        return pair


def _spec(issuer: IssuerView) -> CAIssuer:
    assert issuer.spec.ca is not None, "table.kind_of chose this implementation because of it"
    return issuer.spec.ca


def _digest(name: str, data: Mapping[str, bytes]) -> bytes:
    digest = hashlib.sha256(name.encode())
    for key in (TLS_CERT_KEY, TLS_PRIVATE_KEY_KEY, CA_CERT_KEY):
        value = data.get(key, b"")
        digest.update(len(value).to_bytes(8, "big"))
        digest.update(value)
    return digest.digest()


def _parse(name: str, data: Mapping[str, bytes]) -> SigningPair | UnusablePair:
    for entry in (TLS_CERT_KEY, TLS_PRIVATE_KEY_KEY):
        if not data.get(entry):
            return UnusablePair(_GET, _INVALID_DATA, f'no data for "{entry}" in secret "{name}"')
    try:
        certificates = read_chain(data[TLS_CERT_KEY])
    except PkiError as error:
        return UnusablePair(_GET, _INVALID_DATA, f'"{TLS_CERT_KEY}" in secret "{name}": {error}')
    try:
        key = load_private_key(data[TLS_PRIVATE_KEY_KEY])
    except PkiError as error:
        return UnusablePair(_GET, _INVALID_DATA, f'"{TLS_PRIVATE_KEY_KEY}" in secret "{name}": {error}')
    public = public_key_der(key)
    own = next((certificate for certificate in certificates if certificate.public_key_der == public), None)
    if own is None:
        text = f'"{TLS_PRIVATE_KEY_KEY}" in secret "{name}" is not the key of the certificate beside it'
        return UnusablePair(_INVALID, _INVALID_DATA, text)
    if own.parsed.version is x509.Version.v1:
        text = "certificate is not a CA: it is of X.509 version 1, which cannot say so, and clients refuse it"
        return UnusablePair(_INVALID, _INVALID_DATA, text)
    if not own.may_sign:
        return UnusablePair(_INVALID, _INVALID_DATA, "certificate is not a CA")
    path = chain.extended((own,), certificates)
    members = {(certificate.subject_text, certificate.spki) for certificate in path}
    if any((certificate.subject_text, certificate.spki) not in members for certificate in certificates):
        text = "the certificates are not one chain: each must have signed the one before it"
        return UnusablePair(_GET, _INVALID_DATA, f'"{TLS_CERT_KEY}" in secret "{name}": {text}')
    # cert-manager ignores ca.crt; an unreadable one is no reason to refuse the pair.
    certificates = chain.extended(path, chain.readable(data.get(CA_CERT_KEY, b"")))
    top = certificates[-1]
    served = certificates[:-1] if chain.is_root(top) else certificates
    return SigningPair(certificates[0], key, chain.pem_of(served), top.pem)
