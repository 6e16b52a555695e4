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
    certificate, diagnosis = objects.certificate, diagnose(objects, now)
    spec, status = certificate.get("spec") or {}, certificate.get("status") or {}
    record = retry_of(certificate)
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
        "issuer": _issuer_json(objects),
        "secret": _secret_json(objects),
        "request": _request_json(objects.request),
        "order": _order_json(objects.order),
        "challenges": [_challenge_json(challenge) for challenge in objects.challenges],
        "events": [_event_json(event) for event in events],
    }


def _issuer_json(objects: RelatedObjects) -> Json:
    """`ready` is None where the issuer cannot be read: of another program, missing, or forbidden."""
    ready = None if objects.issuer is None else is_true(objects.issuer, "Ready")
    return {**issuer_ref(objects.certificate), "ready": ready}


def _secret_json(objects: RelatedObjects) -> Json:
    name = str((objects.certificate.get("spec") or {}).get("secretName", ""))
    keys = sorted(objects.secret.get("data") or {}) if objects.secret is not None else []
    exists = None if "secret" in objects.hidden else objects.secret is not None
    return {"name": name, "exists": exists, "keys": keys}


def _request_json(request: Any) -> Json | None:
    if request is None:
        return None
    ready = condition(request, "Ready")
    return {
        "name": name_of(request),
        "approved": is_true(request, "Approved"),
        "denied": is_true(request, "Denied"),
        "reason": ready.get("reason", ""),
        "message": ready.get("message", ""),
    }


def _order_json(order: Any) -> Json | None:
    if order is None:
        return None
    status = order.get("status") or {}
    return {"name": name_of(order), **{key: status.get(key, "") for key in ("state", "reason", "url")}}


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
