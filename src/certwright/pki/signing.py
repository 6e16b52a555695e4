"""Certificate signing: by a CA, or by the request's own key; root renewal, and temporary certificates.

Source: RFC 5280 §4; cert-manager `pkg/util/pki/certificatetemplate.go` (what the request determines),
`temporarycertificate.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import AuthorityInformationAccessOID
from msgspec.structs import replace

from certwright.pki import names, sans, spki
from certwright.pki import usages as key_usages
from certwright.pki.certificates import CertificateFacts, extensions_of, read_certificate, value_of
from certwright.pki.csr import CsrFacts, CsrPlan, build_csr, read_csr
from certwright.pki.errors import BadCsr, BadName, CannotSign, border
from certwright.pki.keys import (
    Hash,
    KeyAlgorithm,
    KeyPlan,
    PrivateKey,
    generate,
    is_slow,
    public_key_der,
    signature_hash,
)

# RFC 5280 §4.1.2.2: "Conforming CAs MUST NOT use serialNumber values longer than 20 octets"; one bit less
# keeps the number positive.
_SERIAL_OCTETS = 20
_MARK: Final = "1234567890"
"""Serial number in the subject (not the certificate's own) of a temporary certificate."""
_CA_NAME: Final = "cert-manager.local"


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """URLs for a certificate: CRL distribution points, OCSP, and the CA's own certificate."""

    crl_distribution_points: tuple[str, ...] = ()
    ocsp_servers: tuple[str, ...] = ()
    issuing_certificate_urls: tuple[str, ...] = ()


NO_ADDRESSES = Addresses()
_LARGE_REQUEST = 16 * 1024
"""Bytes of a signing request, of some 500 names."""
_Extension = tuple[x509.ExtensionType, bool]


class _Signer(NamedTuple):
    """The issuer's name and the signing key."""

    name: x509.Name
    key: PrivateKey
    algorithm: Hash | None


def sign(
    csr_pem: bytes,
    *,
    ca_cert: CertificateFacts,
    ca_key: PrivateKey,
    duration: timedelta,
    is_ca: bool,
    usages: Iterable[str],
    now: datetime,
    addresses: Addresses = NO_ADDRESSES,
) -> bytes:
    """Sign a PEM certificate for the request with the CA's certificate and key.

    Subject, alternative names and name constraints come from the request; `usages` (wire names; empty: the
    default ones) and `is_ca` from the caller, and must match the request if that states them too.
    `notBefore` is `now` rounded down to a second: it is not backdated for slow clocks, because clients
    compute the requested lifetime from both dates, and cert-manager does not backdate it either. `notAfter`
    is `duration` later, but never after the CA's own: a certificate that outlives its CA fails nevertheless,
    only later and unexpectedly. No path length is set.

    Raises `BadCsr`, `BadUsage`, `BadName`, `BadKey`, `CannotSign`. Takes 200 µs with an ECDSA key, half of
    it to parse and verify the request.
    """
    begin = now.replace(microsecond=0)
    if not ca_cert.may_sign:
        raise CannotSign("the signing certificate is not one of a CA")
    if ca_cert.not_after <= begin:
        raise CannotSign(f"the CA certificate expired at {ca_cert.not_after:%Y-%m-%dT%H:%M:%SZ}")
    facts = checked(csr_pem, usages, is_ca=is_ca)
    spki.supported_plan(facts.spki)
    csr = facts.parsed
    end = min(_end(begin, duration), ca_cert.not_after)
    public_key = csr.public_key()
    extensions = _extensions(csr, public_key, _effective(facts, usages, is_ca=is_ca), addresses, is_ca=is_ca)
    extensions.append((_authority(ca_cert), False))
    signer = _Signer(ca_cert.parsed.subject, ca_key, signature_hash(ca_key))
    return _issue(csr, public_key, extensions, (begin, end), signer)


def takes_long(key: PrivateKey, csr_pem: bytes) -> bool:
    """Whether issuing takes a millisecond or more, and belongs to an executor: a slow key, or a request with
    hundreds of names."""
    return is_slow(key) or len(csr_pem) > _LARGE_REQUEST


def self_sign(
    csr_pem: bytes,
    *,
    key: PrivateKey,
    duration: timedelta,
    is_ca: bool,
    usages: Iterable[str],
    now: datetime,
    addresses: Addresses = NO_ADDRESSES,
) -> bytes:
    """Sign a PEM certificate for the request with the request's own key: its issuer is its subject.

    Everything else as in `sign`. Also raises `CannotSign` if `key` is not the request's.
    """
    facts = checked(csr_pem, usages, is_ca=is_ca)
    spki.supported_plan(facts.spki)
    if public_key_der(key) != facts.public_key_der:
        raise CannotSign("the request was not made with this private key")
    csr = facts.parsed
    begin = now.replace(microsecond=0)
    # RFC 5280 §4.2.1.1: "where a CA distributes its public key in the form of a "self-signed" certificate,
    # the authority key identifier MAY be omitted." So it is.
    public_key = csr.public_key()
    extensions = _extensions(csr, public_key, _effective(facts, usages, is_ca=is_ca), addresses, is_ca=is_ca)
    # The request's signature shows the requested hash (`spec.signatureAlgorithm`).
    asked = csr.signature_hash_algorithm
    signer = _Signer(csr.subject, key, (asked if isinstance(asked, Hash) else signature_hash(key)))
    return _issue(csr, public_key, extensions, (begin, _end(begin, duration)), signer)


def checked(csr_pem: bytes, usages: Iterable[str], *, is_ca: bool) -> CsrFacts:
    """Parse the request. Verifies its signature, that it has names, and that it does not contradict `usages`
    (wire names) and `is_ca`. Raises `BadCsr`, `BadUsage`, `BadName`."""
    csr = read_csr(csr_pem)
    if not csr.signature_valid:
        raise BadCsr("the signature of the signing request is wrong: it was not made with the key it names")
    if csr.is_ca is not None and csr.is_ca != is_ca:
        raise BadCsr(f"the signing request says isCA {_yes(csr.is_ca)}, but {_yes(is_ca)} was expected")
    if csr.usages is not None:
        expected = key_usages.canonical(_effective(csr, usages, is_ca=is_ca))
        if frozenset(csr.usages) != expected:
            asked, needed = _list(csr.usages), _list(sorted(expected))
            raise BadCsr(f"the signing request has the usages {asked}, but {needed} were expected")
    # RFC 5280 §4.2.1.10: "The name constraints extension […] MUST be used only in a CA certificate".
    if csr.name_constraints is not None and not is_ca:
        raise BadCsr("the signing request has name constraints, which only a CA certificate may have")
    parsed = csr.parsed
    sans.check(value_of(extensions_of(parsed), x509.SubjectAlternativeName))
    names.check(parsed.subject)
    return csr


def _effective(csr: CsrFacts, usages: Iterable[str], *, is_ca: bool) -> tuple[str, ...]:
    return key_usages.complete(usages, is_ca=is_ca, only_signs=csr.is_ml_dsa)


def _yes(value: bool) -> str:
    return "true" if value else "false"


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _end(begin: datetime, duration: timedelta) -> datetime:
    # A certificate's dates are in whole seconds.
    seconds = duration // timedelta(seconds=1)
    if seconds < 1:
        raise CannotSign("the requested duration is less than a second")
    try:
        return begin + timedelta(seconds=seconds)
    except OverflowError:
        raise CannotSign("the requested duration ends after the year 9999") from None


def _extensions(
    csr: x509.CertificateSigningRequest,
    public_key: CertificatePublicKeyTypes,
    usages: tuple[str, ...],
    addresses: Addresses,
    *,
    is_ca: bool,
) -> list[_Extension]:
    # RFC 5280 §4.2.1.9 requires BasicConstraints, critical, in CA certificates; like cert-manager we include
    # it in all, so that it is always explicit.
    extensions: list[_Extension] = [(x509.BasicConstraints(ca=is_ca, path_length=None), True)]
    key_usage, extended = key_usages.extensions(usages)
    extensions += [(key_usage, True)] if key_usage is not None else []
    extensions += [(extended, False)] if extended is not None else []
    # §4.2.1.2, method (1): "the 160-bit SHA-1 hash of the value of the BIT STRING subjectPublicKey".
    extensions.append((x509.SubjectKeyIdentifier.from_public_key(public_key), False))
    for extension in csr.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            # §4.1.2.6: critical if there is no other name, and §4.2.1.6: otherwise not critical.
            extensions.append((extension.value, not csr.subject.rdns))
        elif isinstance(extension.value, x509.NameConstraints):
            extensions.append((extension.value, extension.critical))
    return extensions + _address_extensions(addresses)


def _address_extensions(addresses: Addresses) -> list[_Extension]:
    extensions: list[_Extension] = []
    if points := addresses.crl_distribution_points:
        names = [x509.DistributionPoint([_url(url)], None, None, None) for url in points]
        extensions.append((x509.CRLDistributionPoints(names), False))
    oids = AuthorityInformationAccessOID
    access = [x509.AccessDescription(oids.OCSP, _url(url)) for url in addresses.ocsp_servers]
    access += [
        x509.AccessDescription(oids.CA_ISSUERS, _url(url)) for url in addresses.issuing_certificate_urls
    ]
    return [*extensions, (x509.AuthorityInformationAccess(access), False)] if access else extensions


def _url(text: str) -> x509.UniformResourceIdentifier:
    with border(BadName, f"{text!r} is not a URL in visible ASCII characters"):
        return x509.UniformResourceIdentifier(text)


def _authority(ca: CertificateFacts) -> x509.AuthorityKeyIdentifier:
    # RFC 5280 §4.2.1.1: it must be the CA's own subject key identifier, however that was computed.
    if ca.subject_key_id:
        return x509.AuthorityKeyIdentifier(ca.subject_key_id, None, None)
    digest = x509.SubjectKeyIdentifier.from_public_key(ca.parsed.public_key()).digest
    return x509.AuthorityKeyIdentifier(digest, None, None)


def _issue(
    csr: x509.CertificateSigningRequest,
    public_key: CertificatePublicKeyTypes,
    extensions: Iterable[_Extension],
    dates: tuple[datetime, datetime],
    signer: _Signer,
) -> bytes:
    with border(CannotSign, "the certificate cannot be encoded", detail=True):
        builder = x509.CertificateBuilder(
            issuer_name=signer.name,
            subject_name=csr.subject,
            public_key=public_key,
            # §4.1.2.2: "CAs MUST force the serialNumber to be a non-negative integer", of at most 20 octets;
            # this is a random one of 159 bits.
            serial_number=x509.random_serial_number(),
            not_valid_before=dates[0],
            not_valid_after=dates[1],
            extensions=[x509.Extension(value.oid, critical, value) for value, critical in extensions],
        )
        return builder.sign(signer.key, signer.algorithm).public_bytes(serialization.Encoding.PEM)


def is_root(certificate: CertificateFacts) -> bool:
    """Whether issuer and subject are equal."""
    return certificate.parsed.issuer == certificate.parsed.subject


def renewed_root(root: CertificateFacts, key: PrivateKey, *, begin: datetime, end: datetime) -> bytes:
    """The root as PEM for another period, with the same subject, key and extensions; `key` MUST be its own.
    Certificates signed by the root stay valid under both.

    Equal arguments give equal bytes for an ECDSA key, so that several servers with the key need not agree on
    one certificate.
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


def marked(plan: CsrPlan) -> CsrPlan:
    """The plan of the request for a temporary certificate."""
    if plan.literal_subject:
        return replace(plan, literal_subject=f"{plan.literal_subject},SERIALNUMBER={_MARK}")
    return replace(plan, subject=replace(plan.subject, serial_number=_MARK))


def sign_temporarily(
    csr_pem: bytes, *, duration: timedelta, is_ca: bool, usages: Iterable[str], now: datetime
) -> bytes:
    """A PEM certificate for a request of a `marked` plan, to serve until the issuer has signed.

    Its CA is created for it and discarded, so that no client can come to trust it. Raises as `sign`. Takes
    500 µs.
    """
    key = generate(KeyPlan(KeyAlgorithm.ECDSA))
    csr = build_csr(CsrPlan(common_name=_CA_NAME, is_ca=True), key)
    ca = self_sign(csr, key=key, duration=duration, is_ca=True, usages=(), now=now)
    return sign(
        csr_pem,
        ca_cert=read_certificate(ca),
        ca_key=key,
        duration=duration,
        is_ca=is_ca,
        usages=usages,
        now=now,
    )


def is_temporary(certificate: CertificateFacts) -> bool:
    """Whether `sign_temporarily` or cert-manager made it."""
    return certificate.subject.serial_number == _MARK and certificate.issuer_text == f"CN={_CA_NAME}"
