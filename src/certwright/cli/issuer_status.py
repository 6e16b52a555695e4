"""The status of an Issuer or ClusterIssuer, for `certwright status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from certwright.cli import related, sections
from certwright.cli.access import Session
from certwright.cli.diagnosis import OUR_GROUP, condition, issuer_ref, member_ref
from certwright.cli.format import at, count, from_now, parse_time, sentence
from certwright.cli.output import StatusView
from certwright.kube.api.errors import Forbidden
from certwright.kube.api.kinds import Kind
from certwright.resources.breaker import BreakerRecord, read_breaker

Json = dict[str, Any]

_HOUR = timedelta(hours=1)
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
    is_cluster = issuer["kind"] == related.CLUSTER_ISSUERS.kind
    certificates = await list_for(here, related.CERTIFICATES, everywhere=is_cluster)
    requests = await list_for(here, related.REQUESTS, everywhere=is_cluster)
    events = await related.events_of(here.client, issuer)
    status = status_of(issuer, certificates, requests)
    return StatusView(report(status, events[-MOST_SHOWN:], now), as_json(status, now))


async def list_for(here: Session, kind: Kind[Json], *, everywhere: bool) -> list[Json]:
    """The objects that may refer to an issuer: of all namespaces (`everywhere`) or of its own."""
    if not everywhere:
        return list((await here.client.list(kind, here.namespace)).items)
    try:
        return list((await here.client.list(kind)).items)
    except Forbidden:
        return list((await here.client.list(kind, here.namespace)).items)


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
    lines = [f"{words}: {cause}."]
    if advice:
        lines.append(f"What to do: {advice}.")
    return [
        *lines,
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
        return f"not ready: {sentence(str(ready.get('message', '')))}", "correct the issuer or its Secrets"
    waiting = f"; {count(len(status.waiting), 'certificate')} waiting or being issued"
    if breaker is None or not breaker.is_open:
        return f"ready{waiting if status.waiting else ''}", ""
    since = f" since {at(breaker.since)} ({from_now(breaker.since, now)})" if breaker.since else ""
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
    issuer, ready = status.issuer, condition(status.issuer, "Ready")
    breaker = status.breaker or BreakerRecord()
    return {
        "kind": issuer["kind"],
        "name": issuer["metadata"]["name"],
        "namespace": issuer["metadata"].get("namespace", ""),
        "ready": ready.get("status") == "True",
        "reason": ready.get("reason", ""),
        "message": ready.get("message", ""),
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
