"""The status of issuers and issuer sets, for `certwright status`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from certwright.cli import related, sections
from certwright.cli.access import Session
from certwright.cli.diagnosis import OUR_GROUP, SETS_GROUP, condition, issuer_ref, member_ref
from certwright.cli.format import StatusView, age, count, from_now, lines_of, parse_time, sentence, when
from certwright.kube.api.errors import Forbidden
from certwright.kube.client.rest import Client
from certwright.resources.retry import BreakerRecord, read_breaker

Json = dict[str, Any]

_HOUR = timedelta(hours=1)
_FLAG = re.compile(r"--(http01-listen|tlsalpn01-listen|webroot|exec-solver|allow-http-servers)\b")
_CORRECT = "correct the issuer or its Secrets"
MOST_SHOWN = 10


class IssuerStatus(msgspec.Struct, frozen=True):
    """An issuer, its circuit breaker, and the Certificates (`namespace/name`) that wait for it. `breaker`
    None: it works, as far as known."""

    issuer: Json
    breaker: BreakerRecord | None
    waiting: tuple[str, ...]
    last_success: datetime | None


async def view(here: Session, issuer: Json, now: datetime) -> StatusView:
    """The status of the Issuer or ClusterIssuer. Lists the Certificates of all namespaces for a
    ClusterIssuer, or of one namespace if the user may read no other. Raises the client's errors."""
    certificates, requests = await _referring(here, issuer)
    events = await related.events_of(here.client, issuer)
    status = status_of(issuer, certificates, requests)
    return StatusView(report(status, events[-MOST_SHOWN:], now), as_json(status, now))


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


async def _referring(here: Session, issuer: Json) -> tuple[list[Json], list[Json]]:
    """The Certificates and CertificateRequests that may refer to the issuer or set: of all namespaces if it
    is of the whole cluster, and the user may list them."""
    lists: list[list[Json]] = []
    for kind in (related.CERTIFICATES, related.REQUESTS):
        namespace = here.namespace if issuer["metadata"].get("namespace") else ""
        try:
            lists.append((await here.client.list(kind, namespace)).items)
        except Forbidden:
            if namespace:
                raise
            lists.append((await here.client.list(kind, here.namespace)).items)
    return lists[0], lists[1]


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
    """The Certificates (`namespace/name`) that wait for the issuer or set, or are being issued by it."""
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
    """Whether it is being issued, or would be if its issuer worked."""
    issuing = condition(certificate, "Issuing")
    return issuing.get("status") == "True" or issuing.get("reason") == "WaitingForIssuer"


def report(status: IssuerStatus, events: list[Json], now: datetime) -> list[str]:
    """The lines: a sentence, the fix, and the objects behind them."""
    issuer = status.issuer
    words = f"{issuer['kind']} {issuer['metadata']['name']}"
    cause, advice = _story(status, now)
    return [
        *sections.headline(words, cause, advice),
        *sections.section("Issuer", _issuer(status, now)),
        *sections.section("DNS record, to create once for each DOMAIN", _persistent_record(issuer)),
        *sections.section("Circuit breaker", _breaker(status.breaker, now)),
        *sections.section("Waiting or being issued", shortened(status.waiting)),
        *sections.section("Conditions", sections.conditions(issuer, now)),
        *sections.section("Events", sections.events(events, now)),
    ]


def shortened(names: Sequence[str]) -> list[str]:
    """The first of the names, and how many there are beside them."""
    more = len(names) - MOST_SHOWN
    return [*names[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _story(status: IssuerStatus, now: datetime) -> tuple[str, str]:
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


def _issuer(status: IssuerStatus, now: datetime) -> list[str]:
    spec, state = status.issuer.get("spec") or {}, status.issuer.get("status") or {}
    acme = spec.get("acme") or {}
    return sections.fields(
        [
            ("Type", ", ".join(str(kind) for kind in spec)),
            ("Server", str(acme.get("server", ""))),
            ("Account", str((state.get("acme") or {}).get("uri", ""))),
            ("Email", str(acme.get("email", ""))),
            ("Last success", _when(status.last_success, now)),
        ]
    )


def _persistent_record(issuer: Json) -> list[str]:
    """The record of DNS-PERSIST-01, if a solver relies on it."""
    acme = (issuer.get("status") or {}).get("acme") or {}
    record = acme.get("persistentRecord") or {}
    return sections.fields(
        [
            ("Name", str(record.get("name", ""))),
            ("Value", str(record.get("value", ""))),
            ("With wildcards", str(record.get("wildcardValue", ""))),
        ]
    )


def _breaker(breaker: BreakerRecord | None, now: datetime) -> list[str]:
    if breaker is None:
        return ["closed: no attempt has failed since the last success"]
    probe = _when(breaker.next_probe, now)
    if not probe and breaker.state == "Open":
        probe = "within seconds"
    return sections.fields(
        [
            ("State", _STATES[breaker.state]),
            ("Reason", breaker.reason),
            ("Last failure", sentence(breaker.message)),
            ("Since", _when(breaker.since, now)),
            ("Next probe", probe),
            ("Next attempt", _when(breaker.next_attempt, now)),
            ("Not before", _when(breaker.not_before, now)),
            ("Attempts", f"{_recent(breaker, now)} in the last hour"),
        ]
    )


_STATES = {
    "Closed": "closed: attempts have failed, too few to stop the others",
    "Open": "open: attempts wait until the server answers a probe",
    "HalfOpen": "half-open: one attempt at a time",
}


def _recent(breaker: BreakerRecord, now: datetime) -> int:
    return sum(1 for attempt in breaker.attempts if now - attempt < _HOUR)


def _when(moment: datetime | None, now: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({from_now(moment, now)})" if moment is not None else ""


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
            "attemptsInLastHour": _recent(breaker, now),
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
    """A set, its members in order, and the Certificates (`namespace/name`) that wait for it."""

    issuer_set: Json
    members: tuple[MemberStatus, ...]
    waiting: tuple[str, ...]


async def set_view(here: Session, issuer_set: Json, now: datetime) -> StatusView:
    """The status of the IssuerSet or ClusterIssuerSet: which member signs, the state of all of them,
    and which certificates wait. Raises the client's errors."""
    certificates, requests = await _referring(here, issuer_set)
    members = await members_of(here.client, issuer_set, requests)
    events = await related.events_of(here.client, issuer_set)
    reference = {"name": issuer_set["metadata"]["name"], "kind": str(issuer_set["kind"]), "group": SETS_GROUP}
    status = SetStatus(issuer_set, members, waiting_for(reference, certificates))
    return StatusView(set_report(status, events[-MOST_SHOWN:], now), set_as_json(status))


async def members_of(client: Client, issuer_set: Json, requests: Sequence[Json]) -> tuple[MemberStatus, ...]:
    """The members of the set and their states."""
    namespace = str(issuer_set["metadata"].get("namespace", ""))
    references = [_reference(member) for member in (issuer_set.get("spec") or {}).get("issuers") or []]
    return tuple(
        await asyncio.gather(*(_member(client, reference, namespace, requests) for reference in references))
    )


def _reference(item: Json) -> Reference:
    return {
        "name": str(item.get("name", "")),
        "kind": str(item.get("kind") or "Issuer"),
        "group": str(item.get("group") or OUR_GROUP),
    }


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


def _state(issuer: Json | None) -> tuple[str, str]:
    if issuer is None:
        return "missing", "it does not exist"
    ready = condition(issuer, "Ready")
    if ready.get("status") != "True":
        return "not ready", sentence(str(ready.get("message", "")))
    breaker = read_breaker(issuer["metadata"].get("annotations") or {})
    if breaker is not None and breaker.is_open:
        return "failing", sentence(breaker.message)
    return "ready", ""


def set_report(status: SetStatus, events: list[Json], now: datetime) -> list[str]:
    """The lines: a sentence, the fix, and the objects behind them."""
    cause, advice = _set_story(status, now)
    words = f"{status.issuer_set['kind']} {status.issuer_set['metadata']['name']}"
    rows = [("MEMBER", "STATE", "LAST SUCCESS", "MESSAGE"), *(_row(member, now) for member in status.members)]
    return [
        *sections.headline(words, cause, advice),
        *sections.section("Members", lines_of(rows)),
        *sections.section("Waiting or being issued", shortened(status.waiting)),
        *sections.section("Conditions", sections.conditions(status.issuer_set, now)),
        *sections.section("Events", sections.events(events, now)),
    ]


def _row(member: MemberStatus, now: datetime) -> tuple[str, str, str, str]:
    success = age(member.last_success, now) if member.last_success else ""
    return (member.words, member.state, success, member.message)


def _set_story(status: SetStatus, now: datetime) -> tuple[str, str]:
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
    cause = f"ready; {MemberStatus(_reference(active), '').words} signs"
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
