"""ARI certificate identifier: names a certificate in requests for its renewal information.

Source: RFC 9773 §4.1.
"""

from __future__ import annotations

from certwright.kube.util.encoding import base64url
from certwright.pki.certificates import CertificateFacts


def certificate_id(certificate: CertificateFacts) -> str:
    """The issuer's key identifier and the serial number; empty if there is no authority key identifier."""
    if not certificate.authority_key_id:
        return ""
    serial = certificate.serial_number
    # As a DER INTEGER: one more byte if the first bit is set.
    encoded = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    return f"{base64url(certificate.authority_key_id)}.{base64url(encoded)}"
