"""Temporary certificates: served until the issuer has signed.

Each is signed by a CA that is created for it and discarded, so that no client can come to trust it. A serial
number in the subject (not the certificate's own) marks it.

Source: cert-manager `pkg/util/pki/temporarycertificate.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyAlgorithm, KeyPlan, generate
from certwright.pki.signing import self_sign, sign

_MARK: Final = "1234567890"
_CA_NAME: Final = "cert-manager.local"


def marked(plan: CsrPlan) -> CsrPlan:
    """The plan of the request for a temporary certificate."""
    if plan.literal_subject:
        return replace(plan, literal_subject=f"{plan.literal_subject},SERIALNUMBER={_MARK}")
    return replace(plan, subject=replace(plan.subject, serial_number=_MARK))


def sign_temporarily(
    csr_pem: bytes, *, duration: timedelta, is_ca: bool, usages: Iterable[str], now: datetime
) -> bytes:
    """A PEM certificate for a request of a `marked` plan. Raises as `signing.sign`. Takes 500 µs."""
    key = generate(KeyPlan(KeyAlgorithm.ECDSA))
    csr = build_csr(CsrPlan(common_name=_CA_NAME, is_ca=True), key)
    ca = self_sign(csr, key=key, duration=duration, is_ca=True, usages=(), now=now)
    return sign(
        csr_pem,
        ca_cert=read_certificate(ca),
        ca_key=key,
        duration=duration,
        is_ca=is_ca,
        usages=usages,
        now=now,
    )


def is_temporary(certificate: CertificateFacts) -> bool:
    """Whether `sign_temporarily` or cert-manager made it."""
    return certificate.subject.serial_number == _MARK and certificate.issuer_text == f"CN={_CA_NAME}"
