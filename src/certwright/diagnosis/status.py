"""The state of a certificate as JSON, with the objects behind it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from certwright.diagnosis import issuers, related
from certwright.diagnosis.certificates import (
    RelatedObjects,
    condition,
    diagnose,
    is_true,
    issuer_ref,
    name_of,
    retry_of,
)

Json = dict[str, Any]

_MOST_EVENTS = 10


async def related_events(client: Any, objects: RelatedObjects) -> list[Json]:
    """The latest events about the certificate and its request, oldest first. Raises `ApiError`."""
    events: list[Json] = []
    for obj in (objects.certificate, objects.request):
        if obj is not None:
            events += await related.events_of(client, dict(obj))
    return sorted(events, key=related.last_seen)[-_MOST_EVENTS:]


def as_json(objects: RelatedObjects, events: list[Json], now: datetime) -> Json:
    """The status as JSON; docs/commands.md documents every key."""
    certificate, diagnosis, request = objects.certificate, diagnose(objects, now), objects.request
    spec, status = certificate.get("spec") or {}, certificate.get("status") or {}
    record = retry_of(certificate)
    secret = objects.secret or {}
    signed = condition(request, "Ready")
    order_status = (objects.order or {}).get("status") or {}
    return {
        **issuers.readiness({**certificate, "kind": "Certificate"}),
        "diagnosis": diagnosis.cause,
        "advice": diagnosis.advice,
        "issuing": is_true(certificate, "Issuing"),
        "dnsNames": list(spec.get("dnsNames") or []),
        "ipAddresses": list(spec.get("ipAddresses") or []),
        "isCA": bool(spec.get("isCA")),
        "revision": status.get("revision"),
        "notBefore": status.get("notBefore"),
        "notAfter": status.get("notAfter"),
        "renewalTime": status.get("renewalTime"),
        "lastFailureTime": status.get("lastFailureTime"),
        "failedAttempts": int(status.get("failedIssuanceAttempts") or 0),
        "nextAttempt": record.next_attempt if record is not None else None,
        # Not ready or ready; None where it cannot be read: of another program, missing, or forbidden.
        "issuer": {
            **issuer_ref(certificate),
            "ready": None if objects.issuer is None else is_true(objects.issuer, "Ready"),
        },
        "secret": {
            "name": str(spec.get("secretName", "")),
            "exists": None if "secret" in objects.hidden else objects.secret is not None,
            "keys": sorted(secret.get("data") or {}),
        },
        "request": None
        if request is None
        else {
            "name": name_of(request),
            "approved": is_true(request, "Approved"),
            "denied": is_true(request, "Denied"),
            "reason": signed.get("reason", ""),
            "message": signed.get("message", ""),
        },
        "order": None
        if objects.order is None
        else {
            "name": name_of(objects.order),
            **{key: order_status.get(key, "") for key in ("state", "reason", "url")},
        },
        "challenges": [_challenge_json(challenge) for challenge in objects.challenges],
        "events": [_event_json(event) for event in events],
    }


def _challenge_json(challenge: Any) -> Json:
    spec, status = challenge.get("spec") or {}, challenge.get("status") or {}
    return {
        "dnsName": spec.get("dnsName", ""),
        "wildcard": bool(spec.get("wildcard")),
        "type": spec.get("type", ""),
        "state": status.get("state", ""),
        "presented": bool(status.get("presented")),
        "reason": status.get("reason", ""),
    }


def _event_json(event: Any) -> Json:
    return {
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "message": event.get("message", ""),
        "count": int(event.get("count") or 1),
        "lastSeen": event.get("lastTimestamp") or event.get("eventTime"),
    }
