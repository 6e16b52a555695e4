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
    """The CAs of `existing` in their order, without those that have expired and all but the last
    `MOST_FORMER` former ones; then the `current` ones that it lacks. cert-manager's order, which is compared
    byte by byte.

    An `existing` bundle that cannot be read is replaced.
    """
    wanted = {ca.der: ca for ca in current}
    present = {ca.der: ca for ca in _read(existing) if ca.der in wanted or ca.not_after > now}
    former = [ca for ca in present.values() if ca.der not in wanted]
    for ca in former[:-MOST_FORMER]:
        del present[ca.der]
    pem = b"".join(ca.pem for ca in (present | wanted).values())
    return Bundle(pem, min((ca.not_after for ca in former[-MOST_FORMER:]), default=None))


def _read(pem: bytes) -> Sequence[CertificateFacts]:
    try:
        return read_chain(pem) if pem.strip() else ()
    except BadCertificate:
        return ()
