"""The status of issuers and issuer sets, for `certwright status`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from certwright.cli import sections
from certwright.cli.access import Session
from certwright.cli.format import StatusView, lines_of
from certwright.diagnosis import related
from certwright.diagnosis.certificates import SETS_GROUP
from certwright.diagnosis.issuers import (
    IssuerStatus,
    MemberStatus,
    SetStatus,
    as_json,
    members_of,
    recent_attempts,
    set_as_json,
    set_story,
    status_of,
    story,
    waiting_for,
)
from certwright.diagnosis.words import age, from_now, sentence
from certwright.kube.api.errors import Forbidden
from certwright.resources.retry import BreakerRecord

Json = dict[str, Any]


MOST_SHOWN = 10


async def view(here: Session, issuer: Json, now: datetime) -> StatusView:
    """The status of the Issuer or ClusterIssuer. Lists the Certificates of all namespaces for a
    ClusterIssuer, or of one namespace if the user may read no other. Raises the client's errors."""
    certificates, requests = await _referring(here, issuer)
    events = await related.events_of(here.client, issuer)
    status = status_of(issuer, certificates, requests)
    return StatusView(report(status, events[-MOST_SHOWN:], now), as_json(status, now))


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


def report(status: IssuerStatus, events: list[Json], now: datetime) -> list[str]:
    """The lines: a sentence, the fix, and the objects behind them."""
    issuer = status.issuer
    words = f"{issuer['kind']} {issuer['metadata']['name']}"
    cause, advice = story(status, now)
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
            ("Attempts", f"{recent_attempts(breaker, now)} in the last hour"),
        ]
    )


_STATES = {
    "Closed": "closed: attempts have failed, too few to stop the others",
    "Open": "open: attempts wait until the server answers a probe",
    "HalfOpen": "half-open: one attempt at a time",
}


def _when(moment: datetime | None, now: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({from_now(moment, now)})" if moment is not None else ""


async def set_view(here: Session, issuer_set: Json, now: datetime) -> StatusView:
    """The status of the IssuerSet or ClusterIssuerSet: which member signs, the state of all of them,
    and which certificates wait. Raises the client's errors."""
    certificates, requests = await _referring(here, issuer_set)
    members = await members_of(here.client, issuer_set, requests)
    events = await related.events_of(here.client, issuer_set)
    reference = {"name": issuer_set["metadata"]["name"], "kind": str(issuer_set["kind"]), "group": SETS_GROUP}
    status = SetStatus(issuer_set, members, waiting_for(reference, certificates))
    return StatusView(set_report(status, events[-MOST_SHOWN:], now), set_as_json(status))


def set_report(status: SetStatus, events: list[Json], now: datetime) -> list[str]:
    """The lines: a sentence, the fix, and the objects behind them."""
    cause, advice = set_story(status, now)
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
