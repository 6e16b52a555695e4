"""Advice for the owner of a name whose self-check fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from certwright.resources import names

Json = Mapping[str, Any]
_BY_ITSELF = "the self-check is repeated automatically"
_ADVICE = {
    "HTTP-01": "point port 80 of that name at the --http01-listen address or at the solver's web root",
    "TLS-ALPN-01": "point port 443 of that name at the --tlsalpn01-listen address",
    "DNS-01": "make sure that the record reaches every name server of the zone",
    "DNS-ACCOUNT-01": "make sure that the record reaches every name server of the zone",
    "DNS-PERSIST-01": "create that record once",
}


def advice(challenges: Iterable[Json]) -> str:
    """The fix for the first of these Challenges with a reason; empty if there is none."""
    for challenge in challenges:
        status = challenge.get("status") or {}
        if status.get("state") == "valid" or not status.get("reason"):
            continue
        if not status.get("presented"):
            return "fix that; it is retried automatically"
        spec = challenge.get("spec") or {}
        fix = _ADVICE.get(str(spec.get("type")), "")
        return f"{fix}; {_BY_ITSELF}" if fix and _is_self_checked(challenge) else ""
    return ""


def _is_self_checked(challenge: Json) -> bool:
    """Whether a presented proof waits for its self-check: the CA does not work on it, the solver has a
    self-check, and no error of the CA is recorded."""
    spec, status = challenge.get("spec") or {}, challenge.get("status") or {}
    if status.get("processing") or (spec.get("solver") or {}).get("waitInsteadOfSelfCheck") is not None:
        return False
    return names.ACME_PROBLEM not in ((challenge.get("metadata") or {}).get("annotations") or {})
