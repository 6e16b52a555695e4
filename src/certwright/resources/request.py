"""CertificateRequest, one signing request to one issuer, and the issuer's answer; and
CertificateSigningRequest, Kubernetes' own request kind, as far as a signer needs it.

Source: cert-manager `pkg/apis/certmanager/v1/types_certificaterequest.go`; for the second kind the Kubernetes
API reference, and for its annotations cert-manager's `pkg/apis/experimental/v1alpha1/types.go`. Field texts
are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final, NamedTuple

from msgspec import field

from certwright.kube.api.meta import Condition, ObjectMeta, Struct, doc
from certwright.kube.util.durations import parse_duration
from certwright.resources.certificate import DEFAULT_DURATION, KEY_USAGES
from certwright.resources.names import GROUP, PRIVATE_KEY_SECRET_NAME, VENAFI_CUSTOM_FIELDS, VENAFI_PICKUP_ID
from certwright.resources.reasons import DENIED, FAILED
from certwright.resources.references import IssuerReference


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


REQUEST_DURATION: Final = "experimental.cert-manager.io/request-duration"
"""On a CertificateSigningRequest: the duration of the certificate, e.g. `2160h`."""
REQUEST_IS_CA: Final = "experimental.cert-manager.io/request-is-ca"
"""On a CertificateSigningRequest: `true` requests a CA certificate."""
PRIVATE_KEY_SECRET: Final = "experimental.cert-manager.io/private-key-secret-name"  # noqa: S105 - a name
"""On a CertificateSigningRequest: the Secret with its key, which a `selfSigned` issuer signs with."""
CUSTOM_FIELDS: Final = "venafi.experimental.cert-manager.io/custom-fields"
"""On a CertificateSigningRequest: as `venafi.cert-manager.io/custom-fields`."""
PICKUP_ID: Final = "venafi.experimental.cert-manager.io/pickup-id"
"""On a CertificateSigningRequest: as `venafi.cert-manager.io/pickup-id`."""
ISSUER_ANNOTATIONS: Final[Mapping[str, str]] = {
    PRIVATE_KEY_SECRET: PRIVATE_KEY_SECRET_NAME,
    CUSTOM_FIELDS: VENAFI_CUSTOM_FIELDS,
    PICKUP_ID: VENAFI_PICKUP_ID,
}
"""The annotations that issuers read and write, and their names on a CertificateRequest."""


class SigningCondition(Struct, frozen=True):
    """One of Approved, Denied and Failed. Times that are left out are filled in by the API server."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class CertificateSigningRequestSpec(Struct, frozen=True, kw_only=True):
    """What is asked for, and by whom. Never changes. `expiration_seconds` is the lifetime asked for."""

    request: bytes = b""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: tuple[str, ...] = ()
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class CertificateSigningRequestStatus(Struct, frozen=True, kw_only=True):
    """The answer. `certificate` is a PEM chain, leaf first; once written it never changes."""

    conditions: tuple[SigningCondition, ...] = ()
    certificate: bytes = b""

    def has(self, kind: str) -> bool:
        """Whether the condition of that type exists (its status can only be True)."""
        return any(condition.type == kind for condition in self.conditions)


class CertificateSigningRequest(Struct, frozen=True, kw_only=True):
    """One signing request to one signer; of the whole cluster, not of a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()


class Signer(NamedTuple):
    """An issuer, parsed from a signer name. A ClusterIssuer has no namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """The issuer's name in messages."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def parse_signer_name(signer_name: str) -> Signer | None:
    """Parse `issuers.cert-manager.io/<namespace>.<name>` or `clusterissuers.cert-manager.io/<name>`; None for
    all other names."""
    resource, _, rest = signer_name.partition("/")
    if resource == f"clusterissuers.{GROUP}" and rest:
        return Signer("ClusterIssuer", "", rest)
    # A namespace contains no dots, so the first one ends it.
    namespace, _, name = rest.partition(".")
    if resource == f"issuers.{GROUP}" and namespace and name:
        return Signer("Issuer", namespace, name)
    return None


def is_open(request: CertificateSigningRequest) -> bool:
    """Whether the request is still pending."""
    status = request.status
    return not (status.certificate or status.has(DENIED) or status.has(FAILED))
