"""The desired `ca.crt` of the target Secret: the CAs that the user of the certificate should trust.

First stands the CA that the issuer returned with the certificate, as cert-manager writes it. While that
issuer's CA is being replaced, peers may already have certificates of the old CA or of the new one; so both
are included until the old one expires. docs/renewal.md explains it for users.
"""

from __future__ import annotations

from collections.abc import Iterable

from certwright.controllers.certificates import rules
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.pki import chain
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names

# A CA that is replaced every hour but lives for years must not make every Secret grow without end.
_MOST_KEPT = 8
_ANOTHERS = (rules.issuer_is_another, rules.certificate_is_another)


def at_issuance(snapshot: Snapshot, issued_ca: bytes) -> bytes:
    """The bytes of `ca.crt` once a certificate is stored for which the issuer returned the CA `issued_ca`;
    empty: no such entry.

    Existing CAs of the same issuer are kept behind it as long as they are valid. Applied again to its own
    result, it changes nothing.
    """
    known_ca = _stored_ca(snapshot)
    if not issued_ca or not known_ca or known_ca == issued_ca or not _is_of_same_issuer(snapshot):
        return issued_ca
    own = {ca.der for ca in chain.readable(issued_ca)}
    kept = [ca for ca in _valid(chain.readable(known_ca), snapshot) if ca.der not in own]
    return issued_ca + chain.pem_of(kept[:_MOST_KEPT])


def in_rest(snapshot: Snapshot) -> bytes:
    """The bytes of `ca.crt` as long as nothing is issued; empty: no such entry.

    They are the existing ones, and behind them the CA that the issuer signs with by now, so that new
    certificates of others are trusted before this one is renewed.
    """
    known_ca = _stored_ca(snapshot)
    if not known_ca or not snapshot.authority or not _is_of_same_issuer(snapshot):
        return known_ca
    top, existing = snapshot.authority[-1], chain.readable(known_ca)
    if not existing or any(ca.der == top.der for ca in existing) or top.not_after <= snapshot.now:
        return known_ca
    behind = [top, *_valid(existing[1:], snapshot)]
    return existing[0].pem + chain.pem_of(behind[:_MOST_KEPT])


def _stored_ca(snapshot: Snapshot) -> bytes:
    return snapshot.secret.data.get(names.CA_CERT_KEY, b"") if snapshot.secret else b""


def _is_of_same_issuer(snapshot: Snapshot) -> bool:
    """Whether the Secret's annotations name this Certificate, and the issuer that the spec names."""
    notes = snapshot.secret.metadata.annotations if snapshot.secret else {}
    return names.ISSUER_NAME in notes and rules.first(_ANOTHERS, snapshot) is None


def _valid(certificates: Iterable[CertificateFacts], snapshot: Snapshot) -> list[CertificateFacts]:
    return [ca for ca in certificates if ca.may_sign and ca.not_after > snapshot.now]
