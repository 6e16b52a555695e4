"""The state of Deliveries: their story in one sentence, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from certwright.diagnosis import related
from certwright.diagnosis.certificates import Diagnosis, condition
from certwright.diagnosis.words import parse_time, sentence, when
from certwright.kube.api.errors import Forbidden, NotFound
from certwright.kube.client.rest import Client

Json = dict[str, Any]


async def of_certificate(client: Client, certificate: Json) -> list[Json]:
    """The Deliveries of the Certificate; none where they may not be read, or are not served."""
    return among(await in_namespace(client, certificate["metadata"]["namespace"]), certificate)


async def in_namespace(client: Client, namespace: str) -> list[Json]:
    """The Deliveries of the namespace (of all if it is empty); none where they may not be read, or are not
    served."""
    try:
        return (await client.list(related.DELIVERIES, namespace)).items
    except (Forbidden, NotFound):
        return []


def among(deliveries: Sequence[Json], certificate: Json) -> list[Json]:
    """The Deliveries whose source is the Certificate or its Secret."""
    metadata = certificate["metadata"]
    secret = (certificate.get("spec") or {}).get("secretName", "")
    sources = (f"Certificate {metadata['name']}", f"Secret {secret}")
    return [
        delivery
        for delivery in deliveries
        if delivery["metadata"]["namespace"] == metadata["namespace"] and source_of(delivery) in sources
    ]


def story(delivery: Json, now: datetime) -> tuple[str, str]:
    """Whether the certificate is delivered and served, in a clause, and what to do."""
    delivered, deployed = condition(delivery, "Delivered"), condition(delivery, "Deployed")
    if not delivered:
        root = (delivery.get("spec") or {}).get("root", "")
        return "not processed yet", f"check that a process with --delivery-root {root}=DIR runs"
    message = sentence(str(delivered.get("message", "")))
    if delivered.get("status") != "True":
        following = parse_time((delivery.get("status") or {}).get("nextAttempt"))
        advice = f"the next attempt is {when(following, now)}" if following is not None else ""
        return f"not delivered: {message}", advice
    if deployed and deployed.get("status") != "True":
        advice = (
            "reload the server, or read why its hook did not" if deployed.get("status") == "False" else ""
        )
        return sentence(str(deployed.get("message", ""))), advice
    return f"delivered: {message}", ""


def why_not(delivery: Json, kind: str, now: datetime) -> Diagnosis:
    """Why the Delivery does not have the condition of that type (in lower case)."""
    if kind == "deployed" and not (delivery.get("spec") or {}).get("servedAt"):
        return Diagnosis("spec.servedAt names no address, so that nothing is checked", "add one", final=True)
    cause, advice = story(delivery, now)
    following = parse_time((delivery.get("status") or {}).get("nextAttempt"))
    return Diagnosis(cause, advice, next_attempt=following)


def as_json(delivery: Json, now: datetime) -> Json:
    """The status as JSON; docs/commands.md documents every key."""
    metadata, spec, status = delivery["metadata"], delivery.get("spec") or {}, delivery.get("status") or {}
    conditions = {kind: condition(delivery, kind) for kind in ("Delivered", "Deployed")}
    states = {kind: found.get("status") for kind, found in conditions.items()}
    is_served = states["Deployed"] in (None, "True")
    shown = conditions["Delivered" if states["Delivered"] != "True" or is_served else "Deployed"]
    cause, advice = story(delivery, now)
    return {
        "kind": "Delivery",
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "ready": states["Delivered"] == "True" and is_served,
        "reason": shown.get("reason", ""),
        "message": shown.get("message", ""),
        "diagnosis": cause,
        "advice": advice,
        "delivered": states["Delivered"],
        "deployed": states["Deployed"],
        "root": spec.get("root", ""),
        "path": spec.get("path", ""),
        "current": status.get("current"),
        "failedAttempts": int(status.get("failedAttempts") or 0),
        "nextAttempt": status.get("nextAttempt"),
    }


def source_of(delivery: Json) -> str:
    spec = delivery.get("spec") or {}
    for key, kind in (("certificateRef", "Certificate"), ("secretRef", "Secret")):
        if reference := spec.get(key):
            return f"{kind} {reference.get('name', '')}"
    return ""
