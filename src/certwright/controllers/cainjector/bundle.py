"""CA bundles: a new CA is added, and those before it stay until they expire, so that nothing fails between
the rotation of a CA and that of the certificates it has signed. No I/O.

Source: cert-manager, feature `CAInjectorMerging`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.errors import BadCertificate

MOST_FORMER: Final = 20
"""The author of the Secret may change its CA as often as it likes, and the bundle is in an object of an
administrator, which must stay small enough to be written."""


class Bundle(NamedTuple):
    """CA certificates as PEM, and when the first of those that are kept expires. None: none is kept."""

    pem: bytes
    next_expiry: datetime | None


def merged(existing: bytes, current: Sequence[CertificateFacts], now: datetime) -> Bundle:
    """The bundle with the `current` CAs first, followed by the last `MOST_FORMER` of `existing` that have not
    expired.

    An `existing` bundle that cannot be read is replaced.
    """
    known = {ca.der for ca in current}
    kept = [ca for ca in _read(existing) if ca.der not in known and ca.not_after > now]
    # The last one is first: each merge puts the CA of its time before the others.
    kept = list({ca.der: ca for ca in kept}.values())[:MOST_FORMER]
    pem = b"".join(ca.pem for ca in (*{ca.der: ca for ca in current}.values(), *kept))
    return Bundle(pem, min((ca.not_after for ca in kept), default=None))


def _read(pem: bytes) -> Sequence[CertificateFacts]:
    try:
        return read_chain(pem) if pem.strip() else ()
    except BadCertificate:
        return ()
