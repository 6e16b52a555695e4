"""The identifier under which an ACME server tells when a certificate is to be renewed.

Source: RFC 9773 §4.1.
"""

from __future__ import annotations

from certwright.kube.util.encoding import base64url
from certwright.pki.certificates import CertificateFacts


def certificate_id(certificate: CertificateFacts) -> str:
    """The key identifier of its issuer and its serial number; empty where it names no key of its issuer."""
    if not certificate.authority_key_id:
        return ""
    serial = certificate.serial_number
    # As DER writes an INTEGER: one more byte where the first bit is set.
    encoded = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    return f"{base64url(certificate.authority_key_id)}.{base64url(encoded)}"
