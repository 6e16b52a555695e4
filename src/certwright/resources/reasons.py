"""Condition types and reasons that several packages use.

Source: cert-manager `pkg/apis/certmanager/v1/types_*.go`, `pkg/apis/acme/v1/types_order.go`,
`internal/controller/certificates/policies/constants.go`.
"""

from __future__ import annotations

from typing import Final

# Types of conditions.
READY: Final = "Ready"
ISSUING: Final = "Issuing"
APPROVED: Final = "Approved"
DENIED: Final = "Denied"
INVALID_REQUEST: Final = "InvalidRequest"
SECRET_ADOPTED: Final = "SecretAdopted"  # noqa: S105 - a name, no password; not in cert-manager

# Reasons of an Issuer's Ready condition. Not of cert-manager.
SOLVERS_NOT_VERIFIED: Final = "ErrVerifySolvers"
"""The ACME account is ready, but none of the solvers can be used."""

# Reasons of a CertificateRequest's Ready condition.
PENDING: Final = "Pending"
FAILED: Final = "Failed"
ISSUED: Final = "Issued"

# Why a certificate is (re-)issued or not ready.
DOES_NOT_EXIST: Final = "DoesNotExist"
MISSING_DATA: Final = "MissingData"
INVALID_KEY_PAIR: Final = "InvalidKeyPair"
INVALID_CERTIFICATE: Final = "InvalidCertificate"
INVALID_CERTIFICATE_REQUEST: Final = "InvalidCertificateRequest"
SECRET_MISMATCH: Final = "SecretMismatch"  # noqa: S105 - a name, no password
INCORRECT_ISSUER: Final = "IncorrectIssuer"
INCORRECT_CERTIFICATE: Final = "IncorrectCertificate"
REQUEST_CHANGED: Final = "RequestChanged"
RENEWING: Final = "Renewing"
WINDOW_ERROR: Final = "WindowError"
EXPIRED: Final = "Expired"
NOT_YET_VALID: Final = "NotYetValid"
TEMPORARY_CERTIFICATE: Final = "TemporaryCertificate"
SECRET_OVERWRITTEN: Final = "SecretOverwritten"  # noqa: S105 - a name, no password
SECRET_DELETED: Final = "SecretDeleted"  # noqa: S105 - a name, no password
RESERVED_SECRET: Final = "ReservedSecret"  # noqa: S105 - a name, no password
FOREIGN_SECRET: Final = "ForeignSecret"  # noqa: S105 - a name, no password
MANUALLY_TRIGGERED: Final = "ManuallyTriggered"
MANUAL_REQUEST_WAITS: Final = "ManuallyTriggeredRequestWaits"
"""Not of cert-manager: as `ManuallyTriggered`, once the CertificateRequest waits."""

# States of an Order or a Challenge, and the final ones among them.
STATES: Final = ("valid", "ready", "pending", "processing", "invalid", "expired", "errored")
FINAL_STATES: Final = frozenset({"valid", "invalid", "expired", "errored"})
