"""Certificate chains: order certificates, and separate the served chain from the trusted CA.

Source: RFC 8446 §4.4.2 (order, and omission of the root); for the choice of the CA, cert-manager
`pkg/util/pki/parse_certificate_chain.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from certwright.pki import der, limits
from certwright.pki.certificates import MAX_CHAIN, REMEMBERED, CertificateFacts, known_chain, read_chain
from certwright.pki.errors import BadCertificate, BadChain, border

_MOST_ANCHORS: Final = 8
"""CA certificates of one name in a bundle: former, current and next, self-signed and cross-signed."""


class Bundle(msgspec.Struct, frozen=True):
    """An issuer's result: the chain, leaf first (`tls.crt`), and the CA (`ca.crt`, may be empty)."""

    chain_pem: bytes
    ca_pem: bytes


def is_issued_by(child: CertificateFacts, parent: CertificateFacts) -> bool:
    """Whether `parent` may sign certificates, is named as the issuer of `child`, and did sign it."""
    return parent.may_sign and is_signed_by(child, parent)


def is_signed_by(child: CertificateFacts, parent: CertificateFacts) -> bool:
    """Whether `parent` is named as the issuer of `child`, and its key did sign it."""
    verdict = _verdict(child.fingerprint, parent.fingerprint)
    if verdict.is_signed is None:
        verdict.is_signed = _is_signed_by(child, parent)
    return verdict.is_signed


@dataclass(slots=True)
class _Verdict:
    """Cached validity of a signature; None: not verified yet."""

    is_signed: bool | None = None


@lru_cache(maxsize=8192)
def _verdict(child: bytes, parent: bytes) -> _Verdict:
    """By fingerprints: a change of something beside the two certificates repeats no verification."""
    del child, parent
    return _Verdict()


def _is_signed_by(child: CertificateFacts, parent: CertificateFacts) -> bool:
    try:
        with border(BadCertificate, "the signature cannot be verified"):
            try:
                _verify_signature(child.parsed, parent.parsed)
            except InvalidSignature:
                return False
    except BadCertificate:
        # Another name, another type of key, or an obsolete algorithm.
        return False
    return True


def _verify_signature(child: x509.Certificate, parent: x509.Certificate) -> None:
    """Raises `InvalidSignature`, and what `cryptography` raises for another name or algorithm."""
    if child.issuer != parent.subject or child.issuer.public_bytes() == parent.subject.public_bytes():
        child.verify_directly_issued_by(parent)
        return
    # The same name in another encoding (e.g. PrintableString and UTF8String), which some CAs write and
    # OpenSSL accepts (RFC 5280 §7.1).
    key, signature, signed = parent.public_key(), child.signature, child.tbs_certificate_bytes
    algorithm = child.signature_algorithm_parameters
    match key:
        case rsa.RSAPublicKey() if isinstance(algorithm, padding.PKCS1v15 | padding.PSS):
            assert child.signature_hash_algorithm is not None
            key.verify(signature, signed, algorithm, child.signature_hash_algorithm)
        case ec.EllipticCurvePublicKey() if isinstance(algorithm, ec.ECDSA):
            key.verify(signature, signed, algorithm)
        case _:
            child.verify_directly_issued_by(parent)


def is_root(certificate: CertificateFacts) -> bool:
    """Whether it is a self-signed CA certificate."""
    return is_issued_by(certificate, certificate)


def in_order(certificates: Iterable[CertificateFacts]) -> tuple[CertificateFacts, ...]:
    """Sort certificates leaf first, each signed by the next; duplicates are dropped.

    Raises `BadChain` unless they form exactly one chain.
    """
    unique = list({certificate.der: certificate for certificate in certificates}.values())
    if not unique:
        raise BadChain("there is no certificate")
    if len(unique) > MAX_CHAIN:
        raise BadChain(f"a chain of {len(unique)} certificates is too long (limit {MAX_CHAIN})")
    candidates = _Candidates(unique)
    parents = {child.der: candidates.parent_of(child) for child in unique}
    above = {parent.der for parent in parents.values() if parent is not None}
    leaves = [certificate for certificate in unique if certificate.der not in above]
    chain = _climb(leaves[0], parents) if leaves else []
    if len(chain) != len(unique):
        raise BadChain("the certificates are not one chain: each must have signed the one before it")
    return tuple(chain)


class _Candidates:
    """Certificates among which issuers are found, by name and key identifier first.

    No more signatures are verified than twice the number of certificates: a verification may take
    milliseconds, and certificates that all have one name would otherwise need the square of their number.
    """

    def __init__(self, certificates: Sequence[CertificateFacts]) -> None:
        self._by_name: dict[bytes, list[CertificateFacts]] = {}
        for certificate in certificates:
            self._by_name.setdefault(_names(certificate)[1], []).append(certificate)
        self._left = 2 * len(certificates)

    def parent_of(self, child: CertificateFacts) -> CertificateFacts | None:
        """The certificate that signed `child`, other than itself; None if there is none or the limit is
        reached."""
        named = self._by_name.get(_names(child)[0], [])
        # RFC 5280 §4.2.1.1: the key identifier tells several keys of one name apart.
        for other in sorted(named, key=lambda other: other.subject_key_id != child.authority_key_id):
            if other.der == child.der or not other.may_sign:
                continue
            if self._left <= 0:
                return None
            self._left -= 1
            if is_issued_by(child, other):
                return other
        return None


def _names(certificate: CertificateFacts) -> tuple[bytes, bytes]:
    """Issuer and subject as they are encoded (RFC 5280 §4.1)."""
    fields = der.read(der.read(der.read(certificate.der)[0].content)[0].content)
    # An explicit version, serialNumber, signature, issuer, validity, subject.
    first = 1 if fields[0].tag == der.CONTEXT_0 else 0
    return fields[first + 2].encoded, fields[first + 4].encoded


def _climb(leaf: CertificateFacts, parents: dict[bytes, CertificateFacts | None]) -> list[CertificateFacts]:
    chain: list[CertificateFacts] = []
    seen: set[bytes] = set()
    current: CertificateFacts | None = leaf
    # Two CAs that signed each other would otherwise cause an endless loop.
    while current is not None and current.der not in seen:
        chain.append(current)
        seen.add(current.der)
        current = parents[current.der]
    return chain


def extended(
    chain: Sequence[CertificateFacts], known: Iterable[CertificateFacts]
) -> tuple[CertificateFacts, ...]:
    """Extend `chain` (in order) upwards with matching certificates of `known`; others are ignored. Used if a
    Secret has the root only in `ca.crt`."""
    grown = list(chain)
    known_ders = {certificate.der for certificate in chain}
    candidates = _Candidates([certificate for certificate in known if certificate.der not in known_ders])
    while len(grown) < MAX_CHAIN and not is_root(grown[-1]):
        parent = candidates.parent_of(grown[-1])
        if parent is None or parent.der in known_ders:
            break
        grown.append(parent)
        known_ders.add(parent.der)
    return tuple(grown)


def split(chain: Sequence[CertificateFacts]) -> Bundle:
    """Divide an ordered chain into the served part and the CA.

    The CA is the topmost certificate: the root, or the highest known one. The served chain omits the root
    (RFC 8446 §4.4.2: "a certificate that specifies a trust anchor MAY be omitted from the chain"),
    unless there is only the root. A single certificate that is not a root has no known CA.
    """
    top = chain[-1]
    root = is_root(top)
    served = chain[:-1] if root and len(chain) > 1 else chain
    return Bundle(pem_of(served), top.pem if root or len(chain) > 1 else b"")


def bundle(certificates: Iterable[CertificateFacts]) -> Bundle:
    """Chain and CA of certificates in any order. Raises `BadChain`."""
    return split(in_order(certificates))


def pem_of(certificates: Iterable[CertificateFacts]) -> bytes:
    """The certificates as one PEM text, in their order."""
    return b"".join(certificate.pem for certificate in certificates)


def end_of(chain_pem: bytes, ca_pem: bytes) -> datetime | None:
    """When the first certificate of `chain_pem` can no longer be verified with the rest of the chain and the
    CAs of `ca_pem`: at its own expiry or at that of a CA above it, whichever is first.

    CAs that signed nothing in the chain do not count; of several that did, the last to expire does. None
    without a certificate; `chain_pem` MUST be readable.
    """
    return _end_of(chain_pem, _limited(ca_pem)) if chain_pem else None


def _limited(pem: bytes) -> bytes:
    """Nothing for a text that `readable` reads nothing of, so that no cache has it as a key."""
    return pem if len(pem) <= limits.MAX_TEXT_BYTES else b""


@lru_cache(maxsize=REMEMBERED)
def _end_of(chain_pem: bytes, ca_pem: bytes) -> datetime | None:
    chain, bundle = known_chain(chain_pem), readable(ca_pem)
    end = chain[0].not_after
    if all(above.not_after >= end for above in (*chain[1:], *bundle)):
        # The common case, without any signature verification.
        return end
    top = chain[-1]
    same_name = [ca for ca in bundle if ca.der != top.der and _names(ca)[1] == _names(top)[0]][:_MOST_ANCHORS]
    anchors = [top.not_after] if any(ca.der == top.der for ca in bundle) else []
    anchors += [ca.not_after for ca in same_name if is_issued_by(top, ca)]
    return min(*(certificate.not_after for certificate in chain), max(anchors, default=end))


def authority(chain_pem: bytes, ca_pem: bytes) -> tuple[CertificateFacts, ...]:
    """A CA's certificate and the known CAs above it (the last one becomes `ca.crt`), from the `tls.crt` and
    `ca.crt` of its Secret; empty if they are unreadable."""
    return _authority(_limited(chain_pem), _limited(ca_pem))


@lru_cache(maxsize=256)
def _authority(chain_pem: bytes, ca_pem: bytes) -> tuple[CertificateFacts, ...]:
    try:
        return extended(in_order(read_chain(chain_pem)), readable(ca_pem))
    except BadCertificate:
        return ()


def readable(pem: bytes) -> tuple[CertificateFacts, ...]:
    """The certificates of a PEM text in their order; none if it is unreadable."""
    try:
        return read_chain(pem) if pem else ()
    except BadCertificate:
        return ()
