"""The status of an IssuerSet or ClusterIssuerSet, for `certwright status`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from certwright.cli import related, sections
from certwright.cli.access import Session
from certwright.cli.diagnosis import OUR_GROUP, SETS_GROUP, condition, member_ref
from certwright.cli.format import age, at, count, from_now, parse_time, sentence
from certwright.cli.issuer_status import (
    MOST_SHOWN,
    last_success,
    list_for,
    shortened,
    waiting_for,
)
from certwright.cli.output import StatusView
from certwright.cli.tables import lines_of
from certwright.kube.api.errors import Forbidden
from certwright.kube.client.rest import Client
from certwright.resources.breaker import read_breaker

Json = dict[str, Any]
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


async def view(here: Session, issuer_set: Json, now: datetime) -> StatusView:
    """The status of the IssuerSet or ClusterIssuerSet: which member signs, the state of all of them,
    and which certificates wait. Raises the client's errors."""
    is_cluster = issuer_set["kind"] == related.CLUSTER_ISSUER_SETS.kind
    certificates = await list_for(here, related.CERTIFICATES, everywhere=is_cluster)
    requests = await list_for(here, related.REQUESTS, everywhere=is_cluster)
    members = await members_of(here.client, issuer_set, requests)
    events = await related.events_of(here.client, issuer_set)
    reference = {"name": issuer_set["metadata"]["name"], "kind": str(issuer_set["kind"]), "group": SETS_GROUP}
    status = SetStatus(issuer_set, members, waiting_for(reference, certificates))
    return StatusView(report(status, events[-MOST_SHOWN:], now), as_json(status))


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
    is_cluster = reference["kind"] == "ClusterIssuer"
    kind = related.CLUSTER_ISSUERS if is_cluster else related.ISSUERS
    try:
        issuer = await related.get_or_none(client, kind, reference["name"], "" if is_cluster else namespace)
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


def report(status: SetStatus, events: list[Json], now: datetime) -> list[str]:
    """The lines: a sentence, the fix, and the objects behind them."""
    cause, advice = _story(status, now)
    lines = [f"{status.issuer_set['kind']} {status.issuer_set['metadata']['name']}: {cause}."]
    if advice:
        lines.append(f"What to do: {advice}.")
    rows = [("MEMBER", "STATE", "LAST SUCCESS", "MESSAGE"), *(_row(member, now) for member in status.members)]
    return [
        *lines,
        *sections.section("Members", lines_of(rows)),
        *sections.section("Waiting or being issued", shortened(status.waiting)),
        *sections.section("Conditions", sections.conditions(status.issuer_set, now)),
        *sections.section("Events", sections.events(events, now)),
    ]


def _row(member: MemberStatus, now: datetime) -> tuple[str, str, str, str]:
    success = age(member.last_success, now) if member.last_success else ""
    return (member.words, member.state, success, member.message)


def _story(status: SetStatus, now: datetime) -> tuple[str, str]:
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
        when = f"{at(moment)} ({from_now(moment, now)})"
        cause += f"; the set returns to a preferred member at {when} if that works until then"
    return f"{cause}{waiting}", ""


def as_json(status: SetStatus) -> Json:
    """The status as JSON."""
    issuer_set, ready = status.issuer_set, condition(status.issuer_set, "Ready")
    state = issuer_set.get("status") or {}
    return {
        "kind": issuer_set["kind"],
        "name": issuer_set["metadata"]["name"],
        "namespace": issuer_set["metadata"].get("namespace", ""),
        "ready": ready.get("status") == "True",
        "reason": ready.get("reason", ""),
        "message": ready.get("message", ""),
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
