"""Certificate parsing: one certificate or a chain, as facts; the part of the facts that requests have, too.

Source: RFC 5280 §4.1 and §4.2, RFC 7468 (PEM); RFC 9773 §4.1 (identifiers for renewal information).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ObjectIdentifier

from certwright.kube.util.encoding import base64url, one_line
from certwright.pki import limits, names, sans, spki, usages
from certwright.pki.errors import BadCertificate, border
from certwright.pki.names import Subject
from certwright.pki.pem import blocks
from certwright.pki.sans import NameConstraints, OtherName

E = TypeVar("E", bound=x509.ExtensionType)
Extensions = Mapping[ObjectIdentifier, x509.Extension[x509.ExtensionType]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Names and public key.

    DNS names are A-labels, IP addresses in canonical form. `spki` is the public key as encoded. Several
    values of one subject field are in the order of their encoding (X.690 §11.6), whatever order they were
    written in.
    """

    subject: Subject
    common_name: str
    dns_names: tuple[str, ...]
    ip_addresses: tuple[str, ...]
    uris: tuple[str, ...]
    email_addresses: tuple[str, ...]
    other_names: tuple[OtherName, ...]
    name_constraints: NameConstraints | None
    spki: bytes = field(repr=False)

    @property
    def public_key_der(self) -> bytes:
        """The SubjectPublicKeyInfo: compare it with `keys.public_key_der`."""
        return spki.canonical(self.spki)

    @property
    def is_ml_dsa(self) -> bool:
        """Whether the public key is one of ML-DSA."""
        return spki.is_ml_dsa(self.spki)


def identity_of(
    parsed: x509.Certificate | x509.CertificateSigningRequest, extensions: Extensions
) -> dict[str, Any]:
    """The fields of `Identity` except the public key. Raises whatever `cryptography` raises: call it inside
    a `border`."""
    subject, common_name = names.read_subject(parsed.subject)
    constraints = extensions.get(x509.NameConstraints.oid)
    alternative = sans.read(value_of(extensions, x509.SubjectAlternativeName))
    return {
        "subject": subject,
        "common_name": common_name,
        "dns_names": alternative.dns_names,
        "ip_addresses": alternative.ip_addresses,
        "uris": alternative.uris,
        "email_addresses": alternative.email_addresses,
        "other_names": alternative.other_names,
        "name_constraints": sans.read_constraints(constraints.value, critical=constraints.critical)
        if constraints is not None and isinstance(constraints.value, x509.NameConstraints)
        else None,
    }


def extensions_of(parsed: x509.Certificate | x509.CertificateSigningRequest) -> Extensions:
    """The extensions by their OID; a duplicate is an error (RFC 5280 §4.2)."""
    return {extension.oid: extension for extension in parsed.extensions}


def value_of(extensions: Extensions, kind: type[E]) -> E | None:
    """The value of the extension of that type, if it exists."""
    extension = extensions.get(kind.oid)
    return extension.value if extension is not None and isinstance(extension.value, kind) else None


def usages_of(extensions: Extensions) -> tuple[str, ...] | None:
    """Key usages and extended key usages by their wire names; None if both extensions are missing."""
    key_usage, extended = value_of(extensions, x509.KeyUsage), value_of(extensions, x509.ExtendedKeyUsage)
    if key_usage is None and extended is None:
        return None
    return usages.names_of(key_usage, extended)


_LABEL = b"CERTIFICATE"

MAX_CHAIN = 50
"""More certificates in one PEM are refused: no chain is so long, and each costs time."""

MAX_CHAIN_BYTES = 100 * 1024
"""Of DER. Reading more takes tens of milliseconds, and OpenSSL refuses it from a peer by default
(`SSL_MAX_CERT_LIST_DEFAULT`)."""

# Some 2 kB each: enough for all certificates that are being issued at one time or are parsed repeatedly.
REMEMBERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts(Identity):
    """The content of a certificate.

    Dates are aware, in UTC, in whole seconds. `serial_number` is the issuer's, `authority_key_id` the
    identifier of its issuer's key, empty if missing. Rarely needed properties are parsed on first
    use.
    """

    not_before: datetime
    not_after: datetime
    serial_number: int
    authority_key_id: bytes
    der: bytes = field(repr=False)

    @property
    def usages(self) -> tuple[str, ...]:
        """Wire names in the order of `usages.USAGES`; empty if the certificate does not restrict its
        usage."""
        return _powers(self.der).usages

    @property
    def is_ca(self) -> bool:
        """The CA bit of BasicConstraints."""
        return _powers(self.der).is_ca

    @property
    def may_sign(self) -> bool:
        """Whether it may sign certificates at all (`is_ca`, and `cert sign` if it has key usages)."""
        return _powers(self.der).may_sign

    @property
    def subject_key_id(self) -> bytes:
        """The subject key identifier, empty if missing."""
        return _powers(self.der).subject_key_id

    @property
    def parsed(self) -> x509.Certificate:
        """The `cryptography` object, for everything else; parsed again each time (3 µs), because it takes
        three times the memory of these facts."""
        return x509.load_der_x509_certificate(self.der)

    @property
    def subject_text(self) -> str:
        """The whole subject as RFC 4514 text."""
        return names.text_of(self.parsed.subject)

    @property
    def issuer_text(self) -> str:
        """The whole issuer name as RFC 4514 text."""
        with border(BadCertificate, "the issuer's name in the certificate cannot be read", detail=True):
            return names.text_of(self.parsed.issuer)

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.parsed.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> bytes:
        """The SHA-256 of its DER."""
        return self.parsed.fingerprint(hashes.SHA256())


def read_chain(pem: bytes) -> tuple[CertificateFacts, ...]:
    """Parse all certificates of a PEM text in their order; at least one.

    Text between the blocks is ignored. Raises `BadCertificate`. Takes 70 µs per certificate the first time;
    the same bytes are cached.
    """
    return _checked(bytes(pem))


def read_answer(pem: bytes) -> tuple[CertificateFacts, ...]:
    """Parse what an issuer returned: certificates in their order, each once, and nothing else.

    Text between the blocks is ignored. Raises `BadCertificate` for any other block and for an incomplete one.
    Source: RFC 8555 §11.4, "if the string "-----BEGIN" is ever followed by anything other than "CERTIFICATE"
    […], then the client MUST reject the file": a private key beside the chain would replace that of the
    subscriber in programs that read both from one file.
    """
    parts = bytes(pem).split(b"-----BEGIN")[1:]
    for part in parts:
        label, _, rest = part.partition(b"-----")
        if label != b" CERTIFICATE":
            shown = one_line(label.strip().decode(errors="replace"))[:40]
            raise BadCertificate(f'it contains a block "{shown}", and only certificates are accepted')
        if b"-----END CERTIFICATE-----" not in rest:
            raise BadCertificate("its last certificate is incomplete")
    chain = read_chain(pem)
    if len(chain) != len(parts):
        raise BadCertificate("one of its certificates cannot be read")
    return tuple({certificate.der: certificate for certificate in chain}.values())


def rewritten(pem: bytes) -> bytes:
    """What is stored of an issuer's answer: the PEM text of its certificates, made from their DER. An answer
    that `read_answer` refuses is unchanged."""
    encoded = blocks(pem)
    if encoded and {label for label, _ in encoded} == {_LABEL} and len(set(encoded)) == len(encoded):
        # Certificates as RFC 7468 §3 has them: nothing to parse.
        return pem
    try:
        return b"".join(certificate.pem for certificate in read_answer(pem))
    except BadCertificate:
        return pem


def read_certificate(pem: bytes) -> CertificateFacts:
    """Parse the first certificate of a PEM text. Raises `BadCertificate` if any of them is unreadable."""
    return read_chain(pem)[0]


def read_der(der: bytes) -> CertificateFacts:
    """Parse one certificate in DER. Raises `BadCertificate`."""
    if len(der) > MAX_CHAIN_BYTES:
        raise BadCertificate(f"a certificate of {len(der)} bytes is too large (limit {MAX_CHAIN_BYTES})")
    with border(BadCertificate, "not a certificate that can be read (expected is DER)", detail=True):
        facts = _facts(bytes(der))
    _check_keys([facts])
    return facts


def known_chain(pem: bytes) -> tuple[CertificateFacts, ...]:
    """As `read_chain`, for a first certificate whose public key is known to be valid: parsing that too would
    double the time."""
    chain = _read(bytes(pem))
    _check_keys(chain[1:])
    return chain


def known_certificate(pem: bytes) -> CertificateFacts:
    """The first of a `known_chain`."""
    return known_chain(pem)[0]


@lru_cache(maxsize=REMEMBERED)
def _checked(pem: bytes) -> tuple[CertificateFacts, ...]:
    chain = _read(pem)
    _check_keys(chain)
    return chain


def _check_keys(certificates: Iterable[CertificateFacts]) -> None:
    with border(BadCertificate, "the certificate cannot be read", detail=True):
        for certificate in certificates:
            spki.check(certificate.spki)


@lru_cache(maxsize=REMEMBERED)
def _read(pem: bytes) -> tuple[CertificateFacts, ...]:
    with border(BadCertificate, "not a certificate that can be read (expected is PEM)", detail=True):
        encoded = [der for label, der in blocks(pem) if label == _LABEL] or [
            certificate.public_bytes(serialization.Encoding.DER)
            for certificate in x509.load_pem_x509_certificates(pem)
        ]
        if len(encoded) > MAX_CHAIN:
            raise BadCertificate(f"{len(encoded)} certificates in one PEM are too many (limit {MAX_CHAIN})")
        if (size := sum(map(len, encoded))) > MAX_CHAIN_BYTES:
            raise BadCertificate(
                f"certificates of {size} bytes in one PEM are too large (limit {MAX_CHAIN_BYTES})"
            )
        if len(pem) > limits.MAX_TEXT_BYTES:
            raise BadCertificate(f"the PEM has more than {limits.MAX_TEXT_BYTES} bytes")
        # CA certificates are the same for all certificates that one CA issues.
        return tuple(_facts_above(der) if number else _facts(der) for number, der in enumerate(encoded))


@lru_cache(maxsize=REMEMBERED // 16)
def _facts_above(der: bytes) -> CertificateFacts:
    return _facts(der)


def _facts(der: bytes) -> CertificateFacts:
    parsed = x509.load_der_x509_certificate(der)
    with border(BadCertificate, "the certificate cannot be read", detail=True):
        key = spki.of_certificate(der)
        limits.check_public_key(key)
        extensions = extensions_of(parsed)
        authority = value_of(extensions, x509.AuthorityKeyIdentifier)
        return CertificateFacts(
            **identity_of(parsed, extensions),
            spki=key,
            not_before=parsed.not_valid_before_utc,
            not_after=parsed.not_valid_after_utc,
            serial_number=parsed.serial_number,
            authority_key_id=(authority.key_identifier or b"") if authority is not None else b"",
            der=der,
        )


class _Powers(NamedTuple):
    """The permissions of a certificate's key."""

    usages: tuple[str, ...]
    is_ca: bool
    may_sign: bool
    subject_key_id: bytes


@lru_cache(maxsize=REMEMBERED)
def _powers(der: bytes) -> _Powers:
    with border(BadCertificate, "the certificate cannot be read", detail=True):
        parsed = x509.load_der_x509_certificate(der)
        extensions = extensions_of(parsed)
        key_id, key_usage = (
            value_of(extensions, x509.SubjectKeyIdentifier),
            value_of(extensions, x509.KeyUsage),
        )
        basic = value_of(extensions, x509.BasicConstraints)
        is_ca = basic is not None and basic.ca
        # RFC 5280 §4.2.1.9: "If the cA boolean is not asserted, then the keyCertSign bit in the key usage
        # extension MUST NOT be asserted." And §4.2.1.3: without the extension the key is not restricted.
        may_sign = is_ca and (key_usage is None or key_usage.key_cert_sign)
        return _Powers(
            usages=usages_of(extensions) or (),
            is_ca=is_ca,
            # Version 1 certificates have no extensions for this; old roots are of that version.
            may_sign=may_sign or parsed.version is x509.Version.v1,
            subject_key_id=key_id.digest if key_id is not None else b"",
        )


def certificate_id(certificate: CertificateFacts) -> str:
    """The issuer's key identifier and the serial number; empty if there is no authority key identifier."""
    if not certificate.authority_key_id:
        return ""
    serial = certificate.serial_number
    # As a DER INTEGER: one more byte if the first bit is set.
    encoded = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    return f"{base64url(certificate.authority_key_id)}.{base64url(encoded)}"
