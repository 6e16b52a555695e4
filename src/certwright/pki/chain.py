"""Chains: put certificates in order, and split what a server presents from what a client trusts.

Source: RFC 8446 §4.4.2 (order, and leaving the root out); for what counts as the CA, cert-manager
`pkg/util/pki/parse_certificate_chain.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cryptography.exceptions import InvalidSignature

from certwright.pki.certificates import MAX_CHAIN, REMEMBERED, CertificateFacts, known_chain, read_chain
from certwright.pki.errors import BadCertificate, BadChain, border


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an issuer hands back: the chain, leaf first (`tls.crt`), and the CA (`ca.crt`, may be empty)."""

    chain_pem: bytes
    ca_pem: bytes


def is_issued_by(child: CertificateFacts, parent: CertificateFacts) -> bool:
    """Whether `parent` may sign certificates, is named as the issuer of `child`, and did sign it."""
    if not parent.may_sign:
        return False
    try:
        with border(BadCertificate, "the signature cannot be verified"):
            try:
                child.parsed.verify_directly_issued_by(parent.parsed)
            except InvalidSignature:
                return False
    except BadCertificate:
        # Another name, another kind of key, or an algorithm that nobody should use any more.
        return False
    return True


def is_root(certificate: CertificateFacts) -> bool:
    """Whether it is a CA certificate signed by itself."""
    return is_issued_by(certificate, certificate)


def in_order(certificates: Iterable[CertificateFacts]) -> tuple[CertificateFacts, ...]:
    """The certificates leaf first, each signed by the next; doubles are dropped.

    Raises `BadChain` where they are not exactly one chain, and where there are none.
    """
    unique = list({certificate.der: certificate for certificate in certificates}.values())
    if not unique:
        raise BadChain("there is no certificate")
    if len(unique) > MAX_CHAIN:
        raise BadChain(f"a chain of {len(unique)} certificates is too long (limit {MAX_CHAIN})")
    parents = {child.der: _parent(child, unique) for child in unique}
    above = {parent.der for parent in parents.values() if parent is not None}
    leaves = [certificate for certificate in unique if certificate.der not in above]
    chain = _climb(leaves[0], parents) if leaves else []
    if len(chain) != len(unique):
        raise BadChain("the certificates are not one chain: each must have signed the one before it")
    return tuple(chain)


def _parent(child: CertificateFacts, among: Sequence[CertificateFacts]) -> CertificateFacts | None:
    return next((other for other in among if other is not child and is_issued_by(child, other)), None)


def _climb(leaf: CertificateFacts, parents: dict[bytes, CertificateFacts | None]) -> list[CertificateFacts]:
    chain: list[CertificateFacts] = []
    seen: set[bytes] = set()
    current: CertificateFacts | None = leaf
    # Two CAs that signed each other would otherwise lead round for ever.
    while current is not None and current.der not in seen:
        chain.append(current)
        seen.add(current.der)
        current = parents[current.der]
    return chain


def extended(
    chain: Sequence[CertificateFacts], known: Iterable[CertificateFacts]
) -> tuple[CertificateFacts, ...]:
    """`chain` (in order) continued upwards with certificates of `known` that belong there; others are left
    out. Used where a Secret keeps the root apart in `ca.crt`."""
    grown = list(chain)
    candidates = {certificate.der: certificate for certificate in known}
    for certificate in chain:
        candidates.pop(certificate.der, None)
    while candidates and len(grown) < MAX_CHAIN and not is_root(grown[-1]):
        parent = _parent(grown[-1], list(candidates.values()))
        if parent is None:
            break
        grown.append(candidates.pop(parent.der))
    return tuple(grown)


def split(chain: Sequence[CertificateFacts]) -> Bundle:
    """Divide a chain in order into what is served and the CA.

    The CA is the topmost certificate: the root, or the highest one known. The served chain leaves the root
    out (RFC 8446 §4.4.2: "a certificate that specifies a trust anchor MAY be omitted from the chain"),
    except where the root is all there is. A single certificate that is no root has no known CA.
    """
    top = chain[-1]
    root = is_root(top)
    served = chain[:-1] if root and len(chain) > 1 else chain
    return Bundle(pem_of(served), top.pem if root or len(chain) > 1 else b"")


def bundle(certificates: Iterable[CertificateFacts]) -> Bundle:
    """Certificates in any order as chain and CA. Raises `BadChain`."""
    return split(in_order(certificates))


def pem_of(certificates: Iterable[CertificateFacts]) -> bytes:
    """The certificates as one PEM text, in their order."""
    return b"".join(certificate.pem for certificate in certificates)


@lru_cache(maxsize=REMEMBERED)
def end_of(chain_pem: bytes, ca_pem: bytes) -> datetime | None:
    """When the first certificate of `chain_pem` can no longer be verified with what follows it there and with
    the CAs of `ca_pem`: at its own end or at that of one above it, whichever comes first.

    CAs that have not signed anything in the chain do not count; of several that have, the last to expire
    does. None where there is no certificate; `chain_pem` MUST be one that could be read.
    """
    if not chain_pem:
        return None
    chain, bundle = known_chain(chain_pem), readable(ca_pem)
    end = chain[0].not_after
    if all(above.not_after >= end for above in (*chain[1:], *bundle)):
        # The common case, without verifying a single signature.
        return end
    top = chain[-1]
    anchors = [ca.not_after for ca in bundle if ca.der == top.der or is_issued_by(top, ca)]
    return min(*(one.not_after for one in chain), max(anchors, default=end))


@lru_cache(maxsize=256)
def authority(chain_pem: bytes, ca_pem: bytes) -> tuple[CertificateFacts, ...]:
    """A CA's own certificate and those above it as far as they are known (the last one is what it hands out
    as `ca.crt`), from the `tls.crt` and `ca.crt` of its Secret; empty where they cannot be read."""
    try:
        return extended(in_order(read_chain(chain_pem)), readable(ca_pem))
    except BadCertificate:
        return ()


def readable(pem: bytes) -> tuple[CertificateFacts, ...]:
    """The certificates of a PEM text in their order; none where it cannot be read."""
    try:
        return read_chain(pem) if pem else ()
    except BadCertificate:
        return ()
