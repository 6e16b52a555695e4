"""Certificate parsing: one certificate or a chain, as facts.

Source: RFC 5280, RFC 7468 (PEM).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from certwright.kube.util.encoding import one_line
from certwright.pki import limits, names, spki
from certwright.pki.errors import BadCertificate, BadKey, border
from certwright.pki.facts import Extensions, Identity, extensions_of, identity_of, usages_of, value_of
from certwright.pki.pem import blocks

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
    return _checked(bytes(pem))[0]


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
    try:
        for certificate in certificates:
            spki.check(certificate.spki)
    except BadKey as error:
        raise BadCertificate(f"the certificate cannot be read: {error}") from None


@lru_cache(maxsize=REMEMBERED)
def _read(pem: bytes) -> tuple[CertificateFacts, ...]:
    with border(BadCertificate, "not a certificate that can be read (expected is PEM)", detail=True):
        encoded = [der for label, der in blocks(pem) if label == _LABEL] or _blocks_between_text(pem)
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


def _blocks_between_text(pem: bytes) -> list[bytes]:
    return [
        certificate.public_bytes(serialization.Encoding.DER)
        for certificate in x509.load_pem_x509_certificates(pem)
    ]


@lru_cache(maxsize=REMEMBERED // 16)
def _facts_above(der: bytes) -> CertificateFacts:
    return _facts(der)


def _facts(der: bytes) -> CertificateFacts:
    parsed = x509.load_der_x509_certificate(der)
    with border(BadCertificate, "the certificate cannot be read", detail=True):
        key = spki.of_certificate(der)
        _check_limits(key)
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


def _check_limits(key: bytes) -> None:
    try:
        limits.check_public_key(key)
    except BadKey as error:
        raise BadCertificate(f"the certificate cannot be read: {error}") from None


class _Powers(NamedTuple):
    """What a certificate permits its key to do."""

    usages: tuple[str, ...]
    is_ca: bool
    may_sign: bool
    subject_key_id: bytes


@lru_cache(maxsize=REMEMBERED)
def _powers(der: bytes) -> _Powers:
    with border(BadCertificate, "the certificate cannot be read", detail=True):
        parsed = x509.load_der_x509_certificate(der)
        extensions = extensions_of(parsed)
        is_ca, key_id = _is_ca(extensions), value_of(extensions, x509.SubjectKeyIdentifier)
        return _Powers(
            usages=usages_of(extensions) or (),
            is_ca=is_ca,
            may_sign=_may_sign(parsed, extensions, is_ca=is_ca),
            subject_key_id=key_id.digest if key_id is not None else b"",
        )


def _is_ca(extensions: Extensions) -> bool:
    basic = value_of(extensions, x509.BasicConstraints)
    return basic is not None and basic.ca


def _may_sign(parsed: x509.Certificate, extensions: Extensions, *, is_ca: bool) -> bool:
    # Version 1 certificates have no extensions for this; old roots are of that version.
    if parsed.version is x509.Version.v1:
        return True
    key_usage = value_of(extensions, x509.KeyUsage)
    # RFC 5280 §4.2.1.9: "If the cA boolean is not asserted, then the keyCertSign bit in the key usage
    # extension MUST NOT be asserted." And §4.2.1.3: without the extension the key is not restricted.
    return is_ca and (key_usage is None or key_usage.key_cert_sign)
