"""Certificate signing requests: build and parse.

Source: RFC 2986 (PKCS#10), RFC 5280 §4.2 (extensions), cert-manager `pkg/util/pki/csr.go` (the content).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certwright.pki import limits, names, sans, spki, usages
from certwright.pki.certificates import Identity, extensions_of, identity_of, usages_of, value_of
from certwright.pki.errors import BadCsr, BadName, border
from certwright.pki.keys import KeyPlan, PrivateKey, plan_of, request_hash
from certwright.pki.names import Subject
from certwright.pki.pem import blocks
from certwright.pki.sans import AltNames, NameConstraints, OtherName

# The first words are cert-manager's.
_EXPECTED = "error decoding certificate request PEM block: it cannot be read (expected is PEM)"

MAX_BYTES = 64 * 1024
"""Of DER: some 3,000 names. The certificate and those of its CAs fit into `certificates.MAX_CHAIN_BYTES`."""


class CsrPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a signing request to build.

    `literal_subject` (RFC 4514) excludes `subject` and `common_name`. `usages` are wire names; empty means
    the default usages; they go into the request only with `encode_usages`. `is_ca` adds `cert sign`.
    `signature_algorithm` is empty (fits the key) or a value of `spec.signatureAlgorithm`.
    """

    subject: Subject = names.NO_SUBJECT
    common_name: str = ""
    literal_subject: str = ""
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    email_addresses: tuple[str, ...] = ()
    other_names: tuple[OtherName, ...] = ()
    is_ca: bool = False
    usages: tuple[str, ...] = ()
    encode_usages: bool = True
    name_constraints: NameConstraints | None = None
    signature_algorithm: str = ""

    @property
    def alt_names(self) -> AltNames:
        """The alternative names, as given."""
        return AltNames(
            dns_names=self.dns_names,
            ip_addresses=self.ip_addresses,
            uris=self.uris,
            email_addresses=self.email_addresses,
            other_names=self.other_names,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CsrFacts(Identity):
    """The content of a signing request.

    `usages` are wire names in the order of `usages.USAGES`, None if the request has no such extension;
    `is_ca` likewise. A request whose `signature_valid` is False MUST NOT be signed, because the requester
    does not have the private key.
    """

    usages: tuple[str, ...] | None
    is_ca: bool | None
    der: bytes = field(repr=False)

    @property
    def parsed(self) -> x509.CertificateSigningRequest:
        """The `cryptography` object, for everything else; parsed again each time (2 µs), because it takes
        more memory than these facts."""
        return x509.load_der_x509_csr(self.der)

    @property
    def signature_valid(self) -> bool:
        """Whether the request was signed with its own key; verified on first use (70 µs), unless this process
        has built the request."""
        signature = _signature(self.der)
        if signature.is_valid is None:
            signature.is_valid = self.parsed.is_signature_valid
        return signature.is_valid

    @property
    def subject_text(self) -> str:
        """The whole subject as RFC 4514 text."""
        return names.text_of(self.parsed.subject)


def build_csr(plan: CsrPlan, key: PrivateKey) -> bytes:
    """Build a PEM request for `plan`, signed with `key`. Raises `BadName`, `BadUsage`, `BadKey`."""
    # Before the names are encoded, which takes milliseconds for each thousand.
    listed = (plan.dns_names, plan.ip_addresses, plan.uris, plan.email_addresses)
    _check_size(sum(len(name) for kind in listed for name in kind))
    subject = names.subject_name(plan.subject, plan.common_name, plan.literal_subject)
    extensions = _extensions(plan, subject, plan_of(key))
    x509_extensions = [x509.Extension(value.oid, critical, value) for value, critical in extensions]
    builder = x509.CertificateSigningRequestBuilder(subject, x509_extensions)
    algorithm = request_hash(key, plan.signature_algorithm)
    with border(BadName, "the request cannot be encoded", detail=True):
        pem = builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)
    der = _block(pem)
    _check_size(len(der))
    # Verifying our own signature takes longer than signing.
    _signature(der).is_valid = True
    return pem


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise BadName(f"the request would have {size} bytes, and may have {MAX_BYTES}; ask for fewer names")


def _extensions(
    plan: CsrPlan, subject: x509.Name, key: KeyPlan | None
) -> list[tuple[x509.ExtensionType, bool]]:
    extensions: list[tuple[x509.ExtensionType, bool]] = []
    if plan.is_ca:
        # RFC 5280 §4.2.1.9: "Conforming CAs […] MUST mark the extension as critical in such certificates."
        extensions.append((x509.BasicConstraints(ca=True, path_length=None), True))
    alternative = sans.extension(plan.alt_names)
    if alternative is not None:
        # RFC 5280 §4.1.2.6: "If subject naming information is present only in the subjectAltName extension
        # […], then the subject name MUST be an empty sequence and the subjectAltName extension MUST be
        # critical."
        extensions.append((alternative, not subject.rdns))
    if plan.encode_usages:
        only_signs = key is not None and key.is_ml_dsa
        effective = usages.complete(plan.usages, is_ca=plan.is_ca, only_signs=only_signs)
        key_usage, extended = usages.extensions(effective)
        # RFC 5280 §4.2.1.3: "When present, conforming CAs SHOULD mark this extension as critical."
        extensions += [(key_usage, True)] if key_usage else []
        extensions += [(extended, False)] if extended else []
    if plan.name_constraints is not None:
        constraints = sans.constraints_extension(plan.name_constraints)
        extensions.append((constraints, plan.name_constraints.critical))
    return extensions


def read_csr(pem: bytes) -> CsrFacts:
    """Parse a PEM request. Its signature is verified only by `signature_valid`.

    Raises `BadCsr`. Takes 60 µs the first time; the same bytes are cached.
    """
    facts = _read(_block(bytes(pem)))
    with border(BadCsr, _EXPECTED, detail=True):
        spki.check(facts.spki)
    return facts


def read_any_csr(request: bytes) -> CsrFacts:
    """Parse a PEM or DER request: Orders may contain either. Raises `BadCsr`."""
    if len(request) > MAX_BYTES or request.lstrip().startswith(b"-----BEGIN"):
        return read_csr(request)
    try:
        pem = x509.load_der_x509_csr(request).public_bytes(serialization.Encoding.PEM)
    except ValueError:
        pem = request
    return read_csr(pem)


def known_csr(der: bytes) -> CsrFacts:
    """Parse a DER request whose public key is known to be valid: parsing that too would double the time.
    Raises `BadCsr`."""
    return _read(der)


@dataclass(slots=True)
class _Signature:
    """Cached validity of the signature of a request; None: not verified yet."""

    is_valid: bool | None = None


@lru_cache(maxsize=1024)
def _signature(der: bytes) -> _Signature:
    del der
    return _Signature()


@lru_cache(maxsize=1024)
def _block(pem: bytes) -> bytes:
    if len(pem) > limits.MAX_TEXT_BYTES:
        raise BadCsr(f"the certificate request has more than {limits.MAX_TEXT_BYTES} bytes")
    match blocks(pem):
        case [(b"CERTIFICATE REQUEST", der)]:
            return der
    with border(BadCsr, _EXPECTED, detail=True):
        return x509.load_pem_x509_csr(pem).public_bytes(serialization.Encoding.DER)


# Some 2 kB each: enough for all requests that are being signed at one time.
@lru_cache(maxsize=1024)
def _read(der: bytes) -> CsrFacts:
    if len(der) > MAX_BYTES:
        raise BadCsr(f"the certificate request has {len(der)} bytes, and may have {MAX_BYTES}")
    with border(BadCsr, _EXPECTED, detail=True):
        parsed = x509.load_der_x509_csr(der)
        key = spki.of_request(der)
        limits.check_public_key(key)
        extensions = extensions_of(parsed)
        basic = value_of(extensions, x509.BasicConstraints)
        return CsrFacts(
            **identity_of(parsed, extensions),
            spki=key,
            usages=usages_of(extensions),
            is_ca=basic.ca if basic is not None else None,
            der=der,
        )
