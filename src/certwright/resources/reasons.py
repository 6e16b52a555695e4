"""Condition types and reasons that several packages use.

Source: cert-manager `pkg/apis/certmanager/v1/types_*.go`, `pkg/apis/acme/v1/types_order.go`,
`internal/controller/certificates/policies/constants.go`.
"""

from __future__ import annotations

from typing import Final

# Types of conditions.
READY: Final = "Ready"
"""On Certificates, requests and issuers: they can be used."""
ISSUING: Final = "Issuing"
"""On a Certificate: `True` while it is being issued; `False` with the reason if the last attempt failed."""
APPROVED: Final = "Approved"
"""On a CertificateRequest: an approver allows its signature."""
DENIED: Final = "Denied"
"""On a CertificateRequest: an approver forbids its signature."""
INVALID_REQUEST: Final = "InvalidRequest"
"""On a CertificateRequest: the CSR cannot be used."""
SECRET_ADOPTED: Final = "SecretAdopted"  # noqa: S105 - a name, no password; not in cert-manager
"""On a Certificate, beyond cert-manager: its Secret existed before and was adopted."""
EXPORTED: Final = "Exported"
"""On a Certificate, beyond cert-manager: the files of `--export` contain the certificate of its Secret."""
CERTIFICATE_VERIFIED: Final = "Verified"
"""On a Certificate, beyond cert-manager, and only as `False`: some clients refuse the certificate, or the
issuer has changed what was requested."""
CA_KEY_REPLACEMENT: Final = "CAKeyReplacement"
"""On a Certificate of a CA, beyond cert-manager, and only as `True`, from a tenth of its life before the
renewal: that replaces the key of the CA."""

# Reasons of an Issuer's Ready condition. Not of cert-manager.
SOLVERS_NOT_VERIFIED: Final = "ErrVerifySolvers"
"""The ACME account is ready, but none of the solvers can be used."""

# Reasons of a CertificateRequest's Ready condition.
PENDING: Final = "Pending"
"""The CertificateRequest waits for its approval or its issuer."""
FAILED: Final = "Failed"
"""The issuer rejected the CertificateRequest."""
ISSUED: Final = "Issued"
"""The CertificateRequest is signed."""

# Why a certificate is (re-)issued or not ready.
DOES_NOT_EXIST: Final = "DoesNotExist"
"""The Secret does not exist."""
MISSING_DATA: Final = "MissingData"
"""The Secret has no certificate or no key."""
INVALID_KEY_PAIR: Final = "InvalidKeyPair"
"""Key and certificate of the Secret cannot be read, or do not match."""
INVALID_CERTIFICATE: Final = "InvalidCertificate"
"""The certificate of the Secret cannot be read, or the issuer returned one that no client accepts."""
CERTIFICATE_NOT_VERIFIED: Final = "NotVerified"
"""Some clients refuse the certificate or its chain, or the issuer has changed what was requested."""
INVALID_CERTIFICATE_REQUEST: Final = "InvalidCertificateRequest"
"""The CSR of the current CertificateRequest cannot be read."""
SECRET_MISMATCH: Final = "SecretMismatch"  # noqa: S105 - a name, no password
"""The certificate of the Secret does not match the spec: names, key or usages differ."""
INCORRECT_ISSUER: Final = "IncorrectIssuer"
"""The certificate of the Secret is from another issuer than `spec.issuerRef`."""
INCORRECT_CERTIFICATE: Final = "IncorrectCertificate"
"""The Secret belongs to another Certificate."""
REQUEST_CHANGED: Final = "RequestChanged"
"""The spec has changed since the last issuance."""
RENEWING: Final = "Renewing"
"""The renewal time has come."""
WINDOW_ERROR: Final = "WindowError"
"""The renewal windows or the time zone cannot be used."""
EXPIRED: Final = "Expired"
"""The certificate has expired."""
NOT_YET_VALID: Final = "NotYetValid"
"""The certificate is not valid yet; the clock may have been wrong when it was issued."""
TEMPORARY_CERTIFICATE: Final = "TemporaryCertificate"
"""The Secret has a temporary certificate until the real one is issued."""
SECRET_OVERWRITTEN: Final = "SecretOverwritten"  # noqa: S105 - a name, no password
"""Another writer replaced the key or the certificate in the Secret repeatedly."""
SECRET_DELETED: Final = "SecretDeleted"  # noqa: S105 - a name, no password
"""The Secret was deleted repeatedly."""
RESERVED_SECRET: Final = "ReservedSecret"  # noqa: S105 - a name, no password
"""The Secret has a type that certwright never writes."""
FOREIGN_SECRET: Final = "ForeignSecret"  # noqa: S105 - a name, no password
"""The Secret existed before and was not made for this Certificate."""
REPLACES_ROOT_KEY: Final = "ReplacesRootKey"
"""The next renewal replaces the key of a self-signed CA: clients that have installed it must install the new
one."""
REPLACES_CA_KEY: Final = "ReplacesCAKey"
"""The next renewal replaces the key of a CA that another one has signed."""
MANUALLY_TRIGGERED: Final = "ManuallyTriggered"
"""A user requested the renewal, e.g. by `certwright renew`."""
MANUAL_REQUEST_WAITS: Final = "ManuallyTriggeredRequestWaits"
"""Not of cert-manager: as `ManuallyTriggered`, once the CertificateRequest waits."""

# States of an Order or a Challenge, and the final ones among them.
STATES: Final = ("valid", "ready", "pending", "processing", "invalid", "expired", "errored")
FINAL_STATES: Final = frozenset({"valid", "invalid", "expired", "errored"})
