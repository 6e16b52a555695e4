"""CertificateRequest: one signing request to one issuer, and the issuer's answer.

Rules over these fields are in `request_rules.py`.

Source: cert-manager `pkg/apis/certmanager/v1/types_certificaterequest.go`; field texts are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import field

from certwright.kube.api.docs import doc
from certwright.kube.api.meta import Condition, ObjectMeta, Struct
from certwright.kube.util.durations import parse_duration
from certwright.resources.certificate import DEFAULT_DURATION, KEY_USAGES
from certwright.resources.issuer_ref import IssuerReference


class CertificateRequestSpec(Struct, frozen=True, kw_only=True):
    """What is asked for. Never changes once the request exists."""

    duration: Annotated[
        str | None, doc("Requested lifetime, as a Go duration; the issuer may grant less.")
    ] = None
    issuer_ref: Annotated[IssuerReference, doc("The issuer that signs.")]
    request: Annotated[bytes, doc("The signing request (PKCS#10) as PEM, base64-encoded.")]
    is_ca: Annotated[bool, doc("Whether a CA certificate is requested.")] = field(default=False, name="isCA")
    usages: Annotated[
        tuple[str, ...],
        doc(
            "Key usages and extended key usages; digital signature and key encipherment when left out, of "
            "ML-DSA keys digital signature.",
            items={"enum": KEY_USAGES},
        ),
    ] = ()
    username: Annotated[str, doc("The requester; filled in by the API server.")] = ""
    uid: Annotated[str, doc("UID of the requester; filled in by the API server.")] = ""
    groups: Annotated[tuple[str, ...], doc("Groups of the requester; filled in by the API server.")] = ()
    extra: Annotated[
        Mapping[str, tuple[str, ...]], doc("More about the requester; filled in by the API server.")
    ] = field(default_factory=dict)

    @property
    def requested_duration(self) -> timedelta:
        """The requested lifetime, 90 days by default. Raises `ValueError` for an invalid duration."""
        return parse_duration(self.duration) if self.duration is not None else DEFAULT_DURATION


class CertificateRequestStatus(Struct, frozen=True, kw_only=True):
    """The answer."""

    conditions: Annotated[
        tuple[Condition, ...],
        doc(
            "Approved or Denied: may it be signed? Ready: is it signed? InvalidRequest: it can "
            "never be signed. FailureCause: why it has failed."
        ),
    ] = ()
    certificate: Annotated[
        bytes, doc("The certificate as PEM with its chain, leaf first, base64-encoded.")
    ] = b""
    ca: Annotated[
        bytes, doc("The certificate of the CA at the top as PEM, base64-encoded, if it is known.")
    ] = b""
    failure_time: Annotated[datetime | None, doc("When the request failed for good.")] = None


class CertificateRequest(Struct, frozen=True, kw_only=True):
    """One signing request to one issuer. It is approved or denied first, then signed, and never reused."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CertificateRequestSpec, doc("The requested certificate; immutable.", needed=False)]
    status: Annotated[CertificateRequestStatus, doc("The answer; written by approver and issuer.")] = (
        CertificateRequestStatus()
    )
