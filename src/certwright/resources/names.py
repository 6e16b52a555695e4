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
"""`true` on the Secret with the private key of an issuance in progress."""
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
VERSION_LABEL: Final = "app.kubernetes.io/version"
MANAGER: Final = "cert-manager"

# Annotations on the target Secret and on requests.
CERTIFICATE_NAME: Final = "cert-manager.io/certificate-name"
"""On a Secret and a CertificateRequest: the name of their Certificate."""
ISSUER_NAME: Final = "cert-manager.io/issuer-name"
"""On a Secret: the name of the issuer of its certificate."""
ISSUER_KIND: Final = "cert-manager.io/issuer-kind"
"""On a Secret: the kind of the issuer of its certificate. On an Ingress or Gateway: that of its issuer."""
ISSUER_GROUP: Final = "cert-manager.io/issuer-group"
"""On a Secret: the API group of its issuer. On an Ingress or Gateway: that of its issuer."""
COMMON_NAME: Final = "cert-manager.io/common-name"
"""On a Secret: the certificate's common name. On an Ingress or Gateway: `spec.commonName` of its
Certificate."""
ALT_NAMES: Final = "cert-manager.io/alt-names"
"""On a Secret: the certificate's DNS names, with commas between. On an Ingress or Gateway: further
`spec.dnsNames`."""
IP_SANS: Final = "cert-manager.io/ip-sans"
"""On a Secret: the certificate's IP addresses. On an Ingress or Gateway: further `spec.ipAddresses`."""
URI_SANS: Final = "cert-manager.io/uri-sans"
"""On a Secret: the certificate's URIs. On an Ingress or Gateway: further `spec.uris`."""
EMAIL_SANS: Final = "cert-manager.io/email-sans"
"""On a Secret: the certificate's email addresses. On an Ingress or Gateway: further
`spec.emailAddresses`."""
SUBJECT_ORGANIZATIONS: Final = "cert-manager.io/subject-organizations"
"""On a Secret: the subject's O, as CSV. On an Ingress or Gateway: `spec.subject.organizations`."""
SUBJECT_ORGANIZATIONAL_UNITS: Final = "cert-manager.io/subject-organizationalunits"
"""On a Secret: the subject's OU, as CSV. On an Ingress or Gateway: `spec.subject.organizationalUnits`."""
SUBJECT_COUNTRIES: Final = "cert-manager.io/subject-countries"
"""On a Secret: the subject's C, as CSV. On an Ingress or Gateway: `spec.subject.countries`."""
SUBJECT_PROVINCES: Final = "cert-manager.io/subject-provinces"
"""On a Secret: the subject's ST, as CSV. On an Ingress or Gateway: `spec.subject.provinces`."""
SUBJECT_LOCALITIES: Final = "cert-manager.io/subject-localities"
"""On a Secret: the subject's L, as CSV. On an Ingress or Gateway: `spec.subject.localities`."""
SUBJECT_STREET_ADDRESSES: Final = "cert-manager.io/subject-streetaddresses"
"""On a Secret: the subject's street, as CSV. On an Ingress or Gateway: `spec.subject.streetAddresses`."""
SUBJECT_POSTAL_CODES: Final = "cert-manager.io/subject-postalcodes"
"""On a Secret: the subject's postal code, as CSV. On an Ingress or Gateway: `spec.subject.postalCodes`."""
SUBJECT_SERIAL_NUMBER: Final = "cert-manager.io/subject-serialnumber"
"""On a Secret: the subject's serial number. On an Ingress or Gateway: `spec.subject.serialNumber`."""
PRIVATE_KEY_SECRET_NAME: Final = "cert-manager.io/private-key-secret-name"  # noqa: S105 - a name, no password
"""On a CertificateRequest: the Secret with the key of the request, which a `selfSigned` issuer signs
with."""
CERTIFICATE_REVISION: Final = "cert-manager.io/certificate-revision"
"""On a CertificateRequest: which issuance of the Certificate it belongs to, counted from 1."""
REPLACES: Final = "certwright.io/replaces"
"""On a request: the identifier (RFC 9773 §4.1) of the certificate that it replaces."""
SPEC_GENERATION: Final = "certwright.io/spec-generation"
"""On a request: the generation of the Certificate that it was created from. One without it is not ours."""
ISSUER_SET_MEMBER: Final = "certwright.io/issuer-set-member"
"""On a request to an IssuerSet: the member that it was sent to. See `resources/issuer.py`."""
ACME_SERVER: Final = "certwright.io/acme-server"
"""On an Order: the directory URL of its ACME server."""
ACME_ACCOUNT: Final = "certwright.io/acme-account"
"""On an Order: the URL of its ACME account; also on a Challenge whose record name depends on the account
(DNS-ACCOUNT-01)."""
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
DELIVERY_ROOTS: Final = "certwright.io/delivery-roots"
"""On a Lease: the roots that a process offers to Deliveries, e.g. `nginx mail=team-a+team-b`, of which the
latter is for these namespaces only; also the label that such Leases have."""
NOT_BEFORE: Final = "certwright.io/not-before"
"""On an Order or Challenge: the server must not be sent it again before this time (`Retry-After`, RFC 3339).
On a failed CertificateRequest: an issuer of another group accepts the next one from this time on."""
RETRY: Final = "certwright.io/retry"
"""On a Certificate that waits: its retry record as JSON. See `resources/retry.py`."""
RENEWED_BY: Final = "certwright.io/renewed-by"
"""On a CertificateRequest: who has asked for it (`renew`), in a sentence."""
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
        RENEWED_BY,
        VENAFI_PICKUP_ID,
    }
)
"""State of one object; never copied to another."""
ACME_LIMITS_LABEL: Final = "certwright.io/acme-limits"
"""On a ConfigMap: it contains the rate limits of an ACME server, and their usage."""
ISSUE_TEMPORARY_CERTIFICATE: Final = "cert-manager.io/issue-temporary-certificate"
"""On a Certificate: `true` stores a temporary certificate until the real one is issued."""
ALLOW_DIRECT_INJECTION: Final = "cert-manager.io/allow-direct-injection"
"""On a Secret: `true` allows its `ca.crt` in the objects that name it in
`cert-manager.io/inject-ca-from-secret`."""
INJECT_CA_FROM: Final = "cert-manager.io/inject-ca-from"
"""On a webhook configuration, CustomResourceDefinition or APIService: the Certificate (`NAMESPACE/NAME`)
whose CA is injected."""
INJECT_CA_FROM_SECRET: Final = "cert-manager.io/inject-ca-from-secret"  # noqa: S105 - a name, no password
"""On the same objects: the Secret (`NAMESPACE/NAME`) whose `ca.crt` is injected."""
INJECT_API_SERVER_CA: Final = "cert-manager.io/inject-apiserver-ca"
"""On the same objects: `true` injects the CA of the API server."""
VENAFI_CUSTOM_FIELDS: Final = "venafi.cert-manager.io/custom-fields"
"""On a Certificate, CertificateRequest or issuer: custom fields for a Certificate Manager server, as
JSON."""

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
COPIED_ANNOTATION_PREFIXES: Final = ("*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/")
"""Annotations that requests copy from their Certificate: all (`*`) except those of the clients that apply it
(`-`)."""

# Annotations of issuers.
MINIMUM_BACKOFF: Final = "certwright.io/minimum-backoff"
"""A duration: the minimum backoff of a certificate of this issuer after a failure."""

CIRCUIT_BREAKER: Final = "certwright.io/circuit-breaker"
"""The circuit breaker of a failing issuer, as JSON; the controllers write it. See `resources/retry.py`."""

# Finalizers.
ACME_FINALIZER: Final = "acme.cert-manager.io/finalizer"
"""On a Challenge: it is deleted when its proof was removed."""
ACME_FINALIZER_LEGACY: Final = "finalizer.acme.cert-manager.io"
"""On a Challenge from an old cert-manager: as `acme.cert-manager.io/finalizer`."""

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
