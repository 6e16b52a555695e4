"""Renew a root certificate with its own key: certificates that it has signed stay valid under both."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from certwright.pki.certificates import CertificateFacts
from certwright.pki.keys import PrivateKey, signature_hash

# RFC 5280 §4.1.2.2: "Conforming CAs MUST NOT use serialNumber values longer than 20 octets"; one bit less
# keeps the number positive.
_SERIAL_OCTETS = 20


def is_root(certificate: CertificateFacts) -> bool:
    """Whether its issuer is its subject."""
    return certificate.parsed.issuer == certificate.parsed.subject


def renewed(root: CertificateFacts, key: PrivateKey, *, begin: datetime, end: datetime) -> bytes:
    """The root as PEM for another period, with the same subject, key and extensions; `key` MUST be its own.

    Equal arguments give equal bytes if the key is an ECDSA key, so that several servers with the key need not
    agree on one certificate.
    """
    digest = sha256(root.der + f"{begin.timestamp():.0f} {end.timestamp():.0f}".encode()).digest()
    builder = x509.CertificateBuilder(
        issuer_name=root.parsed.issuer,
        subject_name=root.parsed.subject,
        public_key=root.parsed.public_key(),
        serial_number=int.from_bytes(digest[:_SERIAL_OCTETS]) >> 1 or 1,
        not_valid_before=begin,
        not_valid_after=end,
        extensions=list(root.parsed.extensions),
    )
    # RFC 6979: the signature of a deterministic ECDSA needs no random number.
    is_deterministic = True if isinstance(key, ec.EllipticCurvePrivateKey) else None
    certificate = builder.sign(key, signature_hash(key), ecdsa_deterministic=is_deterministic)
    return certificate.public_bytes(Encoding.PEM)
