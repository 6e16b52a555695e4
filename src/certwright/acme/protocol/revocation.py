"""Revocation, by the account or by the certificate's own key (RFC 8555 §7.6)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from certwright.acme.protocol.errors import NotAcme, Refused
from certwright.acme.protocol.exchange import Session, post
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Action, Flow
from certwright.acme.protocol.problem import Reaction
from certwright.kube.util.encoding import base64url
from certwright.pki.certificates import CertificateFacts


class RevocationReason(IntEnum):
    """Why a certificate is revoked (RFC 5280 §5.3.1); 7 is not used."""

    UNSPECIFIED = 0
    KEY_COMPROMISE = 1
    CA_COMPROMISE = 2
    AFFILIATION_CHANGED = 3
    SUPERSEDED = 4
    CESSATION_OF_OPERATION = 5
    CERTIFICATE_HOLD = 6
    REMOVE_FROM_CRL = 8
    PRIVILEGE_WITHDRAWN = 9
    AA_COMPROMISE = 10


def revoke(
    session: Session,
    certificate: CertificateFacts,
    *,
    reason: RevocationReason | None = None,
    key: AccountKey | None = None,
) -> Flow[None]:
    """Revoke a certificate; `key` is the certificate's own, unless the account signs. An already revoked
    certificate is a success."""
    url = session.directory.revoke_cert
    if not url:
        raise NotAcme(f"the server at {session.directory.url} offers no revocation")
    der = certificate.parsed.public_bytes(Encoding.DER)
    payload: dict[str, Any] = {"certificate": base64url(der)}
    if reason is not None:
        payload["reason"] = int(reason)
    try:
        yield from post(session, Action.REVOKE_CERT, url, payload, key=key)
    except Refused as error:
        if error.reaction is not Reaction.DONE:
            raise
