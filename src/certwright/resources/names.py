"""Well-known names: groups, annotations, labels, finalizers, keys of a Secret.

Source: cert-manager `pkg/apis/certmanager/v1/types.go`, `pkg/apis/acme/v1/types.go`.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "cert-manager.io"
ACME_GROUP: Final = "acme.cert-manager.io"
SETS_GROUP: Final = "certwright.io"

# Labels.
FAO_LABEL: Final = "controller.cert-manager.io/fao"
"""`"true"` on every Secret that the controllers watch ("for the attention of")."""
NEXT_PRIVATE_KEY_LABEL: Final = "cert-manager.io/next-private-key"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
VERSION_LABEL: Final = "app.kubernetes.io/version"
MANAGER: Final = "cert-manager"

# Annotations on the target Secret and on requests.
CERTIFICATE_NAME: Final = "cert-manager.io/certificate-name"
ISSUER_NAME: Final = "cert-manager.io/issuer-name"
ISSUER_KIND: Final = "cert-manager.io/issuer-kind"
ISSUER_GROUP: Final = "cert-manager.io/issuer-group"
COMMON_NAME: Final = "cert-manager.io/common-name"
ALT_NAMES: Final = "cert-manager.io/alt-names"
IP_SANS: Final = "cert-manager.io/ip-sans"
URI_SANS: Final = "cert-manager.io/uri-sans"
EMAIL_SANS: Final = "cert-manager.io/email-sans"
SUBJECT_ORGANIZATIONS: Final = "cert-manager.io/subject-organizations"
SUBJECT_ORGANIZATIONAL_UNITS: Final = "cert-manager.io/subject-organizationalunits"
SUBJECT_COUNTRIES: Final = "cert-manager.io/subject-countries"
SUBJECT_PROVINCES: Final = "cert-manager.io/subject-provinces"
SUBJECT_LOCALITIES: Final = "cert-manager.io/subject-localities"
SUBJECT_STREET_ADDRESSES: Final = "cert-manager.io/subject-streetaddresses"
SUBJECT_POSTAL_CODES: Final = "cert-manager.io/subject-postalcodes"
SUBJECT_SERIAL_NUMBER: Final = "cert-manager.io/subject-serialnumber"
PRIVATE_KEY_SECRET_NAME: Final = "cert-manager.io/private-key-secret-name"  # noqa: S105 - a name, no password
CERTIFICATE_REVISION: Final = "cert-manager.io/certificate-revision"
REPLACES: Final = "certwright.io/replaces"
"""On a request: the identifier (RFC 9773 §4.1) of the certificate that it replaces."""
SPEC_GENERATION: Final = "certwright.io/spec-generation"
"""On a request: the generation of the Certificate that it was created from. One without it is not ours."""
ISSUER_SET_MEMBER: Final = "certwright.io/issuer-set-member"
"""On a request to an IssuerSet: the member that it was sent to. See `resources/issuer_set_member.py`."""
ACME_SERVER: Final = "certwright.io/acme-server"
ACME_ACCOUNT: Final = "certwright.io/acme-account"
"""On an Order: the directory URL of its ACME server, and the URL of the account. The account is also on a
Challenge whose record name depends on it (DNS-ACCOUNT-01)."""
ACME_SUPERSEDED: Final = "certwright.io/acme-superseded"
"""On an Order that ended because its issuer uses another server or account, or because the IssuerSet of its
request sends that to another member: `true`."""
MEMBER_NOT_BEFORE: Final = "certwright.io/member-not-before"
"""On a superseded Order of a request to an IssuerSet: the request is not sent to this member again before
this time (RFC 3339)."""
ACME_PROBLEM: Final = "certwright.io/acme-problem"
"""On an Order that failed, and on a Challenge that waits after an error: the type of the server's problem
document without its prefix (RFC 8555 §6.7)."""
ACME_ATTEMPTS: Final = "certwright.io/acme-attempts"
"""On an Order: the attempts of the last hour that the server has not accepted (RFC 3339, commas between)."""
NOT_BEFORE: Final = "certwright.io/not-before"
"""On an Order or Challenge: the server must not be sent it again before this time (`Retry-After`, RFC 3339).
On a failed CertificateRequest: an issuer of another group accepts the next one from this time on."""
RETRY: Final = "certwright.io/retry"
"""On a Certificate that waits: its retry record as JSON. See `resources/retry.py`."""
VENAFI_PICKUP_ID: Final = "venafi.cert-manager.io/pickup-id"
"""On a CertificateRequest: the ID of its order at a Certificate Manager server."""
STATE: Final = frozenset(
    {
        ISSUER_SET_MEMBER,
        ACME_SERVER,
        ACME_ACCOUNT,
        ACME_SUPERSEDED,
        MEMBER_NOT_BEFORE,
        ACME_PROBLEM,
        ACME_ATTEMPTS,
        NOT_BEFORE,
        RETRY,
        VENAFI_PICKUP_ID,
    }
)
"""State of one object; never copied to another."""
ACME_LIMITS_LABEL: Final = "certwright.io/acme-limits"
"""On a ConfigMap: it contains the rate limits of an ACME server, and their usage."""
ISSUE_TEMPORARY_CERTIFICATE: Final = "cert-manager.io/issue-temporary-certificate"
ALLOW_DIRECT_INJECTION: Final = "cert-manager.io/allow-direct-injection"
VENAFI_CUSTOM_FIELDS: Final = "venafi.cert-manager.io/custom-fields"

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
COPIED_ANNOTATION_PREFIXES: Final = ("*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/")
"""Annotations that requests copy from their Certificate: all (`*`) except those of the clients that apply it
(`-`)."""

# Annotations of issuers.
MINIMUM_BACKOFF: Final = "certwright.io/minimum-backoff"
"""A duration: the minimum backoff of a certificate of this issuer after a failure."""

CIRCUIT_BREAKER: Final = "certwright.io/circuit-breaker"
"""The circuit breaker of a failing issuer, as JSON; the controllers write it. See `resources/breaker.py`."""

# Finalizers.
ACME_FINALIZER: Final = "acme.cert-manager.io/finalizer"
ACME_FINALIZER_LEGACY: Final = "finalizer.acme.cert-manager.io"

# Keys of a Secret's data.
TLS_CERT_KEY: Final = "tls.crt"
TLS_PRIVATE_KEY_KEY: Final = "tls.key"
CA_CERT_KEY: Final = "ca.crt"
JKS_KEYSTORE_KEY: Final = "keystore.jks"
JKS_TRUSTSTORE_KEY: Final = "truststore.jks"
PKCS12_KEYSTORE_KEY: Final = "keystore.p12"
PKCS12_TRUSTSTORE_KEY: Final = "truststore.p12"
DER_KEY: Final = "key.der"
COMBINED_PEM_KEY: Final = "tls-combined.pem"

TLS_SECRET_TYPE: Final = "kubernetes.io/tls"  # noqa: S105 - a name, no password

SECRET_FIELD_MANAGER: Final = "cert-manager-certificates-issuing"  # noqa: S105 - a name, no password
"""The field manager of the target Secret (`metadata.managedFields`): cert-manager's, so that either
program can take over the Secrets of the other."""
