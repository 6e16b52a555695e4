"""What `ca.crt` of the target Secret shall hold: whom the holder of the certificate should trust."""

from __future__ import annotations

from certwright.controllers.certificates.snapshot import Snapshot
from certwright.resources import names


def at_issuance(snapshot: Snapshot, issued_ca: bytes) -> bytes:
    """The bytes of `ca.crt` once a certificate is stored for which the issuer returned the CA `issued_ca`;
    empty: no such entry."""
    return issued_ca


def in_rest(snapshot: Snapshot) -> bytes:
    """The bytes of `ca.crt` as long as nothing is issued; empty: no such entry."""
    return snapshot.secret.data.get(names.CA_CERT_KEY, b"") if snapshot.secret else b""
