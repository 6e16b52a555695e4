"""The `selfSigned` issuer: each certificate is signed with its own key.

Source: cert-manager `pkg/controller/certificaterequests/selfsigned` (reasons and messages).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from certwright.issuers.contract import (
    Checked,
    Failed,
    IssuerView,
    Outcome,
    Pending,
    Remark,
    Signed,
    SigningRequest,
    Tools,
)
from certwright.issuers.contract import post_quantum_refusal as refusal
from certwright.pki.csr import read_csr
from certwright.pki.errors import BadKey, CannotSign, PkiError
from certwright.pki.keys import PrivateKey, load_private_key, public_key_der
from certwright.pki.signing import Addresses, self_sign, takes_long
from certwright.resources.names import PRIVATE_KEY_SECRET_NAME, TLS_PRIVATE_KEY_KEY
from certwright.resources.request import CertificateRequest

_READY = "IsReady"
_EMPTY_NAME = Remark(
    "BadConfig",
    "The certificate has an empty subject and therefore, being self-signed, an empty issuer, which RFC 5280 "
    "§4.1.2.4 forbids; strict clients may refuse it. Set spec.commonName or spec.subject.",
)


class SelfSigned(msgspec.Struct, frozen=True):
    """Signs with the key in the Secret that the request's annotation names, in the request's namespace."""

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:  # noqa: ARG002 - the protocol's
        """Always ready, because it depends on nothing."""
        return Checked(ready=True, reason=_READY, message="")

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        """Sign; pending while the Secret with the key is missing or contains no readable key."""
        request = signing.request
        name = request.metadata.annotations.get(PRIVATE_KEY_SECRET_NAME, "")
        if not name:
            text = f'Annotation "{PRIVATE_KEY_SECRET_NAME}" missing or reference empty'
            return Failed("MissingAnnotation", text)
        key = _key(await signing.get_secret(name), name, request.metadata.namespace)
        if isinstance(key, Pending):
            return key
        if (failed := _mismatch(request, key)) is not None:
            return failed
        if (refused := refusal(request.spec.request, tools)) is not None:
            return refused
        spec, now = issuer.spec.self_signed, tools.now()
        assert spec is not None, "table.kind_of chose this implementation because of it"

        def work() -> bytes:
            return self_sign(
                request.spec.request,
                key=key,
                duration=request.spec.requested_duration,
                is_ca=request.spec.is_ca,
                usages=request.spec.usages,
                now=now,
                addresses=Addresses(crl_distribution_points=spec.crl_distribution_points),
            )

        try:
            # An ECDSA signature takes 200 µs, not much more than handing it to a thread.
            namespace = request.metadata.namespace
            is_slow = takes_long(key, request.spec.request)
            pem = await tools.executor.run(work, namespace) if is_slow else work()
        except CannotSign as error:
            return Failed("ErrorSigning", f"Error signing certificate: {error}")
        except (PkiError, ValueError) as error:
            return Failed("ErrorGenerating", f"Error generating certificate template: {error}")
        # The certificate is its own CA, whether or not it may sign others.
        return Signed(
            pem, pem, warnings=() if read_csr(request.spec.request).subject_text else (_EMPTY_NAME,)
        )


def _key(data: Mapping[str, bytes] | None, name: str, namespace: str) -> PrivateKey | Pending:
    if data is None:
        return Pending("MissingSecret", f"Referenced secret {namespace}/{name} not found", secrets=(name,))
    text = f'Failed to get key "{name}" referenced in annotation "{PRIVATE_KEY_SECRET_NAME}": '
    pem = data.get(TLS_PRIVATE_KEY_KEY)
    if not pem:
        missing = f'no data for "{TLS_PRIVATE_KEY_KEY}" in secret {namespace}/{name}'
        return Pending("ErrorParsingKey", text + missing, secrets=(name,))
    try:
        return load_private_key(pem)
    except BadKey as error:
        return Pending("ErrorParsingKey", text + str(error), secrets=(name,))


def _mismatch(request: CertificateRequest, key: PrivateKey) -> Failed | None:
    try:
        csr = read_csr(request.spec.request)
    except PkiError as error:
        return Failed("ErrorGenerating", f"Error generating certificate template: {error}")
    if csr.public_key_der == public_key_der(key):
        return None
    return Failed(
        "ErrorKeyMatch", "Error generating certificate template: CSR not signed by referenced private key"
    )
