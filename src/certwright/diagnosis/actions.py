"""What people do to certificates and requests by hand: renew, approve, deny.

The command line and the dashboard do the same through these functions, as the user of the client.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from certwright.diagnosis.certificates import is_true
from certwright.diagnosis.related import CERTIFICATES, REQUESTS, add_condition
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client

Json = dict[str, Any]
# cmctl's reasons and message, so that searches for them in conditions and logs also find ours.
_RENEW_REASON: Final = "ManuallyTriggered"
_RENEW_MESSAGE: Final = "Certificate re-issuance manually triggered"
DECISION_REASON: Final = "KubectlCertManager"
REVOCATION_REASONS: Final = (
    "unspecified",
    "keyCompromise",
    "affiliationChanged",
    "superseded",
    "cessationOfOperation",
    "privilegeWithdrawn",
)
"""The reasons that CAs accept from subscribers; `controllers/acme/revoking.py` maps them to numbers."""


async def mark_for_renewal(client: Client, key: ObjectKey, listed: Json | None = None) -> Json:
    """Have the Certificate issued again; returns it as it was. A backoff of a running issuance ends.
    `listed`: the Certificate as it was read before. Raises `ApiError`."""
    return await add_condition(client, CERTIFICATES, key, _renewal, listed)


def _renewal(certificate: Json) -> Json:
    generation = certificate["metadata"].get("generation", 0)
    return {
        "type": "Issuing",
        "reason": _RENEW_REASON,
        "message": _RENEW_MESSAGE,
        "observedGeneration": generation,
    }


class Decision(msgspec.Struct, frozen=True):
    """A decision on a CertificateRequest. `type` is the condition's: `Approved` or `Denied`."""

    type: str
    reason: str
    message: str


async def decide(client: Client, key: ObjectKey, decision: Decision) -> str:
    """Set the condition of an undecided CertificateRequest. Returns the type of the decision that was there
    before, which is final; empty if there was none. Raises `ApiError`."""

    def make(request: Json) -> Json | None:
        return None if _decision_of(request) else msgspec.structs.asdict(decision)

    return _decision_of(await add_condition(client, REQUESTS, key, make))


def _decision_of(request: Json) -> str:
    return next((kind for kind in ("Approved", "Denied") if is_true(request, kind)), "")
