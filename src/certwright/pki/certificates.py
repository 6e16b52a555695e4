"""Certificates: read them, one or a chain of them, and state what they say.

Source: RFC 5280, RFC 7468 (PEM).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from certwright.pki import names
from certwright.pki.errors import BadCertificate, border
from certwright.pki.facts import Extensions, Identity, extensions_of, identity_of, usages_of, value_of

MAX_CHAIN = 50
"""More certificates than that in one PEM are refused: no chain is so long, and each costs time."""

# Some 2 kB each: enough for all that are being issued at one time, or looked at again and again.
REMEMBERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts(Identity):
    """What a certificate says.

    Dates are aware, in UTC, in whole seconds. `usages` are wire names in the order of `usages.USAGES`, empty
    where the certificate does not restrict its use. `is_ca` is the bit of BasicConstraints. `may_sign` says
    whether it may sign certificates at all (`is_ca`, and `cert sign` where it has key usages).
    """

    not_before: datetime
    not_after: datetime
    serial_number: int
    usages: tuple[str, ...]
    is_ca: bool
    may_sign: bool
    subject_key_id: bytes
    der: bytes = field(repr=False)

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate as `cryptography` knows it, for what is not stated here; parsed anew each time
        (3 µs), since a parsed one keeps three times the memory of these facts."""
        return x509.load_der_x509_certificate(self.der)

    @property
    def subject_text(self) -> str:
        """The whole subject as RFC 4514 text."""
        return names.text_of(self.parsed.subject)

    @property
    def issuer_text(self) -> str:
        """The whole name of the issuer as RFC 4514 text."""
        with border(BadCertificate, "the issuer's name in the certificate cannot be read", detail=True):
            return names.text_of(self.parsed.issuer)

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.parsed.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> bytes:
        """The SHA-256 of its DER form."""
        return self.parsed.fingerprint(hashes.SHA256())


def read_chain(pem: bytes) -> tuple[CertificateFacts, ...]:
    """Read all certificates of a PEM text in their order; there is at least one.

    Text between the blocks is ignored. Raises `BadCertificate`. Takes 30 µs per certificate the first time;
    the same bytes again cost next to nothing.
    """
    return _read(bytes(pem))


def read_certificate(pem: bytes) -> CertificateFacts:
    """Read the first certificate of a PEM text. Raises `BadCertificate` where any of them cannot be read."""
    return _read(bytes(pem))[0]


@lru_cache(maxsize=REMEMBERED)
def _read(pem: bytes) -> tuple[CertificateFacts, ...]:
    with border(BadCertificate, "not a certificate that can be read (expected is PEM)", detail=True):
        found = x509.load_pem_x509_certificates(pem)
        if len(found) > MAX_CHAIN:
            raise BadCertificate(f"{len(found)} certificates in one PEM are too many (limit {MAX_CHAIN})")
        # Those above the leaf are the same for all that one CA issues.
        return tuple(_facts_above(one) if number else facts_of(one) for number, one in enumerate(found))


@lru_cache(maxsize=REMEMBERED // 16)
def _facts_above(parsed: x509.Certificate) -> CertificateFacts:
    return facts_of(parsed)


def facts_of(parsed: x509.Certificate) -> CertificateFacts:
    """What a parsed certificate says. Raises `BadCertificate`."""
    with border(BadCertificate, "the certificate cannot be read", detail=True):
        found = extensions_of(parsed)
        usages, is_ca = usages_of(found), _is_ca(found)
        key_id = value_of(found, x509.SubjectKeyIdentifier)
        return CertificateFacts(
            **identity_of(parsed, found),
            not_before=parsed.not_valid_before_utc,
            not_after=parsed.not_valid_after_utc,
            serial_number=parsed.serial_number,
            usages=usages or (),
            is_ca=is_ca,
            may_sign=_may_sign(parsed, found, is_ca=is_ca),
            subject_key_id=key_id.digest if key_id is not None else b"",
            der=parsed.public_bytes(serialization.Encoding.DER),
        )


def _is_ca(found: Extensions) -> bool:
    basic = value_of(found, x509.BasicConstraints)
    return basic is not None and basic.ca


def _may_sign(parsed: x509.Certificate, found: Extensions, *, is_ca: bool) -> bool:
    # Certificates of version 1 have no extensions that could say so; old roots are of that version.
    if parsed.version is x509.Version.v1:
        return True
    key_usage = value_of(found, x509.KeyUsage)
    # RFC 5280 §4.2.1.9: "If the cA boolean is not asserted, then the keyCertSign bit in the key usage
    # extension MUST NOT be asserted." And §4.2.1.3: without the extension the key is not restricted.
    return is_ca and (key_usage is None or key_usage.key_cert_sign)
