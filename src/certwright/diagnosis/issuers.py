"""The state of issuers and issuer sets: their story in one sentence, and as JSON."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from certwright.diagnosis import related
from certwright.diagnosis.certificates import OUR_GROUP, condition, issuer_ref, member_ref, reference_of
from certwright.diagnosis.words import count, parse_time, sentence, when
from certwright.kube.api.errors import Forbidden
from certwright.kube.client.rest import Client
from certwright.resources.retry import BreakerRecord, read_breaker

Json = dict[str, Any]

_HOUR = timedelta(hours=1)


_FLAG = re.compile(r"--(http01-listen|tlsalpn01-listen|webroot|exec-solver|allow-http-servers)\b")


_CORRECT = "correct the issuer or its Secrets"


class IssuerStatus(msgspec.Struct, frozen=True):
    """An issuer, its circuit breaker, and the Certificates (`namespace/name`) that wait for the issuer.
    `breaker` None: no failure is known."""

    issuer: Json
    breaker: BreakerRecord | None
    waiting: tuple[str, ...]
    last_success: datetime | None


def readiness(obj: Json) -> Json:
    """The first keys of every status as JSON: the object, and its Ready condition."""
    metadata, ready = obj["metadata"], condition(obj, "Ready")
    return {
        "kind": obj["kind"],
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "ready": ready.get("status") == "True",
        "reason": ready.get("reason", ""),
        "message": ready.get("message", ""),
    }


def status_of(issuer: Json, certificates: Iterable[Json], requests: Iterable[Json]) -> IssuerStatus:
    """The state of the issuer."""
    meta = issuer["metadata"]
    reference = {"name": str(meta["name"]), "kind": str(issuer["kind"]), "group": OUR_GROUP}
    return IssuerStatus(
        issuer,
        read_breaker(meta.get("annotations") or {}),
        waiting_for(reference, certificates),
        last_success(
            request for request in requests if reference in (issuer_ref(request), member_ref(request))
        ),
    )


def waiting_for(issuer: Mapping[str, str], certificates: Iterable[Json]) -> tuple[str, ...]:
    """The Certificates (`namespace/name`) that the issuer or set is issuing, or that wait for it."""
    waiting = [
        certificate["metadata"]
        for certificate in certificates
        if issuer_ref(certificate) == issuer and _waits(certificate)
    ]
    return tuple(f"{meta.get('namespace', '')}/{meta['name']}" for meta in waiting)


def last_success(requests: Iterable[Json]) -> datetime | None:
    """When the last of these CertificateRequests was signed."""
    signed = [condition(request, "Ready") for request in requests]
    moments = [
        parse_time(ready.get("lastTransitionTime")) for ready in signed if ready.get("status") == "True"
    ]
    return max((moment for moment in moments if moment is not None), default=None)


def _waits(certificate: Json) -> bool:
    """Whether the Certificate is being issued, or would be if its issuer worked."""
    issuing = condition(certificate, "Issuing")
    return issuing.get("status") == "True" or issuing.get("reason") == "WaitingForIssuer"


def story(status: IssuerStatus, now: datetime) -> tuple[str, str]:
    ready, breaker = condition(status.issuer, "Ready"), status.breaker
    if not ready:
        return "not processed yet", "check that the controllers run"
    if ready.get("status") != "True":
        message = sentence(str(ready.get("message", "")))
        # What the operator has not allowed is no fault of the issuer.
        by_flag = _FLAG.search(message)
        advice = f"start certwright with {by_flag[0]}, or change the issuer" if by_flag else _CORRECT
        return f"not ready: {message}", advice
    waiting = f"; {count(len(status.waiting), 'certificate')} waiting or being issued"
    if breaker is None or not breaker.is_open:
        return f"ready{waiting if status.waiting else ''}", ""
    since = f" since {when(breaker.since, now)}" if breaker.since else ""
    why = f": {sentence(breaker.message)}" if breaker.message else ""
    advice = (
        "check that the controllers reach the server; `certwright renew NAME` makes one attempt immediately"
    )
    return f"failing{since}{why}{waiting}; issuance continues when it works again", advice


def recent_attempts(breaker: BreakerRecord, now: datetime) -> int:
    return sum(1 for attempt in breaker.attempts if now - attempt < _HOUR)


def as_json(status: IssuerStatus, now: datetime) -> Json:
    """The status as JSON."""
    issuer, breaker = status.issuer, status.breaker or BreakerRecord()
    return {
        **readiness(issuer),
        "account": str(((issuer.get("status") or {}).get("acme") or {}).get("uri", "")),
        "lastSuccess": status.last_success,
        "circuitBreaker": {
            "state": breaker.state,
            "reason": breaker.reason,
            "message": breaker.message,
            "since": breaker.since,
            "nextProbe": breaker.next_probe,
            "nextAttempt": breaker.next_attempt,
            "notBefore": breaker.not_before,
            "attemptsInLastHour": recent_attempts(breaker, now),
        },
        "waiting": list(status.waiting),
    }


Reference = dict[str, str]


class MemberStatus(msgspec.Struct, frozen=True):
    """A member of a set. `state` is a word or two, `message` the reason, if it cannot sign."""

    reference: Reference
    state: str
    message: str = ""
    last_success: datetime | None = None

    @property
    def words(self) -> str:
        """The member in a sentence."""
        return f"{self.reference['kind']} {self.reference['name']}"


class SetStatus(msgspec.Struct, frozen=True):
    """A set, its members in order, and the Certificates (`namespace/name`) that wait for the set."""

    issuer_set: Json
    members: tuple[MemberStatus, ...]
    waiting: tuple[str, ...]


async def members_of(client: Client, issuer_set: Json, requests: Sequence[Json]) -> tuple[MemberStatus, ...]:
    """The members of the set and their states."""
    namespace = str(issuer_set["metadata"].get("namespace", ""))
    references = [reference_of(member) for member in (issuer_set.get("spec") or {}).get("issuers") or []]
    return tuple(
        await asyncio.gather(*(_member(client, reference, namespace, requests) for reference in references))
    )


async def _member(
    client: Client, reference: Reference, namespace: str, requests: Sequence[Json]
) -> MemberStatus:
    kind = related.CLUSTER_ISSUERS if reference["kind"] == "ClusterIssuer" else related.ISSUERS
    try:
        issuer = await related.get_or_none(client, kind, reference["name"], namespace)
    except Forbidden:
        return MemberStatus(reference, "unknown", "you may not read it")
    state, message = _state(issuer)
    signed = [request for request in requests if member_ref(request) == reference]
    return MemberStatus(reference, state, message, last_success(signed))


_READY: Final = ("ready", "")


def works(issuer: Json) -> bool:
    """Whether the issuer is ready, and its circuit breaker closed."""
    return _state(issuer) == _READY


def _state(issuer: Json | None) -> tuple[str, str]:
    if issuer is None:
        return "missing", "it does not exist"
    ready = condition(issuer, "Ready")
    if ready.get("status") != "True":
        return "not ready", sentence(str(ready.get("message", "")))
    breaker = read_breaker(issuer["metadata"].get("annotations") or {})
    if breaker is not None and breaker.is_open:
        return "failing", sentence(breaker.message)
    return _READY


def set_story(status: SetStatus, now: datetime) -> tuple[str, str]:
    ready = condition(status.issuer_set, "Ready")
    if not ready:
        return "not processed yet", "check that the controllers run"
    number = count(len(status.waiting), "certificate")
    waiting = f"; {number} waiting or being issued" if status.waiting else ""
    state = status.issuer_set.get("status") or {}
    active = state.get("active")
    if ready.get("status") != "True" or not active:
        advice = "correct one of the members, or add another to spec.issuers"
        return f"not ready: no member can sign{waiting}", advice
    cause = f"ready; {MemberStatus(reference_of(active), '').words} signs"
    moment = parse_time(state.get("returnTime"))
    if moment is not None:
        cause += f"; the set returns to a preferred member at {when(moment, now)} if that works until then"
    return f"{cause}{waiting}", ""


def set_as_json(status: SetStatus) -> Json:
    """The status as JSON."""
    state = status.issuer_set.get("status") or {}
    return {
        **readiness(status.issuer_set),
        "active": state.get("active"),
        "returnTime": state.get("returnTime"),
        "members": [
            {
                **member.reference,
                "state": member.state,
                "message": member.message,
                "lastSuccess": member.last_success,
            }
            for member in status.members
        ],
        "waiting": list(status.waiting),
    }
