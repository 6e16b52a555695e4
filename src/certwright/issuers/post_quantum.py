"""The feature gate `PostQuantum` at the issuers that sign in this process.

Issuers whose server signs need no such check: that server decides which keys it accepts.
"""

from __future__ import annotations

from typing import Final

from certwright.issuers.contract import Failed, Tools
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.resources.causes import Cause
from certwright.resources.operator_policy import NO_POST_QUANTUM

NOT_ALLOWED: Final = "NotAllowed"


def refusal(csr_pem: bytes, tools: Tools) -> Failed | None:
    """The outcome of a request for an ML-DSA key while the gate is off; None for any other request, and for
    one that cannot be parsed."""
    if tools.post_quantum:
        return None
    try:
        is_refused = read_csr(csr_pem).is_ml_dsa
    except PkiError:
        return None
    if not is_refused:
        return None
    text = f"Error signing certificate: the key of the signing request: {NO_POST_QUANTUM}"
    return Failed(
        NOT_ALLOWED, text, cause=Cause.INVALID_REQUEST, advice="request an RSA, ECDSA or Ed25519 key"
    )
