"""What people do to certificates and requests by hand: renew, approve, deny, revoke.

The command line and the dashboard do the same through these functions, as the user of the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from certwright.diagnosis.certificates import is_true
from certwright.diagnosis.related import CERTIFICATES, REQUESTS, add_condition
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client
from certwright.resources.names import NOT_BEFORE
from certwright.resources.reasons import FINAL_STATES, MANUALLY_TRIGGERED
from certwright.resources.retry import parse_moment, read_retry, rfc3339

Json = dict[str, Any]
# cmctl's reasons and message, so that searches for them in conditions and logs also find ours.
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


class Renewal(msgspec.Struct, frozen=True):
    """A Certificate that was marked for renewal. `result`: `renewing`, `retrying` (a running issuance, whose
    backoff ends), or `waiting` (for a time that the issuer has named). `sentence`: the result in words;
    `warning`: about the new key of a CA, else empty. `before`: the Certificate without the mark."""

    result: str
    sentence: str
    warning: str
    before: Json


Waits = Callable[[Json], Awaitable[Iterable[Mapping[str, Any]]]]
"""Returns the Orders and Challenges of a Certificate. Raises `ApiError`."""


async def renew(
    client: Client, key: ObjectKey, waits: Waits, *, now: datetime, listed: Json | None = None
) -> Renewal:
    """Have the Certificate issued again. `listed`: the Certificate as it was read before. Raises
    `ApiError`."""
    certificate = await add_condition(client, CERTIFICATES, key, _renewal, listed)
    words = f"certificate {key}"
    # A running issuance may be in a backoff: the mark ends that too.
    is_running = is_true(certificate, "Issuing")
    not_before = _not_before(certificate, await waits(certificate), now) if is_running else None
    if not_before is not None:
        result, sentence = (
            "waiting",
            f"{words} waits until {rfc3339(not_before)}, the time that its issuer has named; renew does not "
            "override that",
        )
    elif is_running:
        result, sentence = "retrying", f"Retrying {words}"
    else:
        result, sentence = "renewing", f"Renewing {words}"
    return Renewal(result, sentence, ca_warning(certificate), certificate)


def ca_warning(certificate: Json) -> str:
    """The effect of renewal on clients of a CA that gets a new key; empty for all other certificates."""
    spec, meta = certificate.get("spec") or {}, certificate["metadata"]
    if not spec.get("isCA") or (spec.get("privateKey") or {}).get("rotationPolicy") == "Never":
        return ""
    return (
        f"certificate {meta['namespace']}/{meta['name']} is a CA and gets a new key: clients that have "
        "installed it refuse what it signs from now on, until they install the new one; "
        "spec.privateKey.rotationPolicy: Never keeps it"
    )


def _not_before(certificate: Json, objects: Iterable[Mapping[str, Any]], now: datetime) -> datetime | None:
    """The time before which the issuer or its CA accepts nothing; None if neither has named a time."""
    record = read_retry(certificate["metadata"].get("annotations") or {})
    named = [record.not_before] if record is not None else []
    for item in objects:
        if (item.get("status") or {}).get("state", "") not in FINAL_STATES:
            marks = item["metadata"].get("annotations") or {}
            named.append(parse_moment(marks.get(NOT_BEFORE, "")))
    return max((moment for moment in named if moment is not None and moment > now), default=None)


def _renewal(certificate: Json) -> Json:
    generation = certificate["metadata"].get("generation", 0)
    return {
        "type": "Issuing",
        "reason": MANUALLY_TRIGGERED,
        "message": _RENEW_MESSAGE,
        "observedGeneration": generation,
    }


class Decision(msgspec.Struct, frozen=True):
    """A decision on a CertificateRequest. `type` is the condition's: `Approved` or `Denied`."""

    type: str
    reason: str
    message: str


async def decide(client: Client, key: ObjectKey, decision: Decision) -> str:
    """Set the condition of an undecided CertificateRequest. Returns the type of an earlier decision, which is
    final; empty without one. Raises `ApiError`."""

    def make(request: Json) -> Json | None:
        return None if _decision_of(request) else msgspec.structs.asdict(decision)

    return _decision_of(await add_condition(client, REQUESTS, key, make))


def _decision_of(request: Json) -> str:
    return next((kind for kind in ("Approved", "Denied") if is_true(request, kind)), "")
