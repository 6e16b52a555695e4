"""The first page: is everything all right, what needs attention, what happens next; and the same as JSON.

Pure functions from rows and a moment to the content of the page. They scan all rows a few times, and examine
only rows that are not simply ready, so that a page of 100,000 certificates takes 0.1 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from certwright.dashboard.index import Index, Lamps, Row, Scope, State, may
from certwright.dashboard.timeline import Timeline, timeline
from certwright.dashboard.visit import View, Visit
from certwright.diagnosis import issuers, related
from certwright.diagnosis.certificates import Diagnosis, condition, diagnose
from certwright.diagnosis.words import count, sentence, shortened, span
from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.http_messages import Response
from certwright.resources.names import GROUP

Json = dict[str, Any]
PAGE: Final = 50
"""Certificates in a page of the table."""
_JSON_PAGE: Final = 500
_MOST_JSON: Final = 5_000
_MOST_JSON_NAMES: Final = 100
"""Names of each: Let's Encrypt allows as many, a tenant's Certificate may have thousands."""
_MOST_CARDS: Final = 8
_LISTED: Final = 1_000
"""Objects of a namespace among which those of a card's certificate are searched: eight cards are shown."""
_MOST_INCIDENTS: Final = 20
_MOST_ISSUERS: Final = 200
"""Issuers that the filter offers; tenants invent as many as they like."""
_MOST_NAMED: Final = 3
_SLOW_S: Final = 600.0
"""An issuance that takes longer than this needs attention."""
_NEW_S: Final = 60.0
"""A certificate that no controller has processed needs attention after this time."""
_LATE_S: Final = 86_400.0
"""A renewal that is overdue by this needs attention, whatever its state."""
_DAY_S: Final = 86_400.0
_MANY: Final = 5_000
_SOON_S: Final = 10.0
SORTS: Final = {
    "name": "name",
    "expiry": "not_after",
    "renewal": "renewal",
    "issuer": "issuer",
    "state": "state",
}
STATES: Final = ("attention", "ready", "issuing", "failed", "waiting", "expired")


class Life(msgspec.Struct, frozen=True):
    """The life of a certificate as a bar: shares from 0 to 1 in hundredths, and the rest of it in words."""

    elapsed: float
    renewal: float | None
    words: str
    is_over: bool


class Card(msgspec.Struct, frozen=True):
    """A certificate that needs attention. `may_retry`: the user may have it issued again."""

    row: Row
    diagnosis: Diagnosis
    command: str
    trouble: str
    is_lost: bool
    may_retry: bool = False


class Incident(msgspec.Struct, frozen=True):
    """A failing issuer, and the certificates that wait for it."""

    kind: str
    namespace: str
    name: str
    cause: str
    advice: str
    command: str
    rows: tuple[Row, ...]


class Summary(msgspec.Struct, frozen=True):
    """The state of all certificates that a user may list."""

    total: int
    issuing: int
    troubles: Mapping[ObjectKey, str]
    not_valid: int
    lost: frozenset[ObjectKey]
    next_renewal: Row | None
    served: str
    lamps: Mapping[ObjectKey, Lamps]

    @property
    def level(self) -> str:
        """`ok`, `warn` or `bad`, for the colour and the shape of the banner."""
        if not self.troubles:
            return "ok"
        return "bad" if self.lost else "warn"


def visible_rows(index: Index, scope: Scope, sort: str = "name") -> Sequence[Row]:
    """The rows that the scope allows, in order."""
    rows = index.ordered(sort)
    return rows if scope.everywhere else [row for row in rows if scope.allows(row.namespace, row.name)]


def trouble_of(row: Row, now: float, lamps: Lamps | None, *, is_orphan: bool, is_blocked: bool) -> str:
    """Why a certificate needs attention, in a word; empty: it needs none. `is_orphan`: its issuer is missing;
    `is_blocked`: its issuer fails."""
    if row.not_after and row.not_after <= now:
        return "expired"
    if row.state == State.FAILED:
        return "failed"
    if is_orphan and row.state != State.READY:
        return "no issuer"
    if is_blocked and row.state != State.READY:
        return "issuer down"
    if row.state == State.WAITING and now - row.since > _NEW_S:
        return "waiting"
    if row.state == State.ISSUING and now - row.since > _SLOW_S:
        return "slow"
    if row.renewal and row.renewal < now - _LATE_S:
        return "overdue"
    if lamps is not None and lamps.delivered is False:
        return "not delivered"
    if lamps is not None and lamps.served is False:
        return "not served"
    return ""


class OverviewScopes(msgspec.Struct, frozen=True):
    """The scopes of a user, for each resource on the first page."""

    certificates: Scope
    deliveries: Scope
    issuers: Scope
    clusterissuers: Scope

    def allows_issuer(self, row: Row) -> bool:
        """Whether the user may list the issuer of the certificate, if it exists."""
        kind, _, name = row.issuer.partition("/")
        is_cluster = kind == "ClusterIssuer"
        scope = self.clusterissuers if is_cluster else self.issuers
        return kind in ("Issuer", "ClusterIssuer") and scope.allows("" if is_cluster else row.namespace, name)


def _trouble(index: Index, scopes: OverviewScopes, row: Row, now: float, lamps: Lamps | None) -> str:
    # Who may not read an issuer does not learn whether it exists, or works.
    may_read = scopes.allows_issuer(row)
    issuer = index.issuer(row) if may_read else None
    is_blocked = issuer is not None and bool(condition(issuer, "Ready")) and not issuers.works(issuer)
    is_orphan = may_read and index.lacks_issuer(row)
    return trouble_of(row, now, lamps, is_orphan=is_orphan, is_blocked=is_blocked)


def is_lost(row: Row, now: float) -> bool:
    """Whether there was a valid certificate, or several attempts to get one, and there is none now."""
    is_over = bool(row.not_after) and row.not_after <= now
    return is_over or (not row.is_valid and bool(row.not_after or row.attempts))


def summarize(index: Index, scopes: OverviewScopes, now: float) -> Summary:
    """The state of the certificates in the scopes."""
    scope = scopes.certificates
    rows = visible_rows(index, scope)
    lamps = index.lamps(scopes.deliveries)
    late = now - _LATE_S
    suspects = [
        row
        for row in rows
        if row.state is not State.READY or row.not_after <= now or (row.renewal and row.renewal < late)
    ]
    seen = {row.key for row in suspects}
    suspects += [
        row
        for key in lamps
        if key not in seen and (row := index.get(key)) and scope.allows(row.namespace, row.name)
    ]
    troubles = {
        row.key: trouble
        for row in suspects
        if (trouble := _trouble(index, scopes, row, now, lamps.get(row.key)))
    }
    due = [row for row in rows if row.renewal > now]
    served = sum(
        1
        for key, lamp in lamps.items()
        if lamp.served and (row := index.get(key)) and not row.is_ca and scope.allows(*key)
    )
    leaves = sum(1 for row in rows if not row.is_ca)
    return Summary(
        total=len(rows),
        issuing=sum(1 for row in suspects if row.state is State.ISSUING),
        troubles=troubles,
        not_valid=sum(1 for row in suspects if not row.is_valid or (row.not_after and row.not_after <= now)),
        lost=frozenset(row.key for row in suspects if row.key in troubles and is_lost(row, now)),
        next_renewal=min(due, key=lambda row: row.renewal, default=None),
        served=_served(served, leaves),
        lamps=lamps,
    )


def _served(served: int, total: int) -> str:
    """The clause about valid certificates: `served` of `total` are known to be served."""
    if not served:
        return "valid"
    if served == total:
        return "valid and served"
    return f"valid; {served:,} {'is' if served == 1 else 'are'} delivered and served"


def headline(summary: Summary, *, is_reading: bool = False) -> str:
    """The sentence of the banner. `is_reading`: the index has not been filled yet."""
    if is_reading:
        return f"Reading certificates: {summary.total:,} so far"
    if not summary.total:
        return "There are no certificates yet"
    if not summary.troubles:
        if summary.not_valid == summary.total:
            verb = "is" if summary.total == 1 else "are"
            return f"{count(summary.total, 'certificate')} {verb} being issued"
        if new := summary.not_valid:
            valid, rest = summary.total - new, "the other is" if new == 1 else f"the other {new:,} are"
            verb = "is" if valid == 1 else "are"
            return f"{valid:,} of {summary.total:,} certificates {verb} valid; {rest} being issued"
        if summary.total == 1:
            return f"The one certificate is {summary.served}"
        return f"All {summary.total:,} certificates are {summary.served}"
    keys = sorted(summary.troubles, key=lambda key: (key not in summary.lost, key))
    named = ", ".join(f"{key.namespace}/{key.name}" for key in keys[:_MOST_NAMED])
    more = f" and {len(keys) - _MOST_NAMED:,} more" if len(keys) > _MOST_NAMED else ""
    verb = "needs" if len(keys) == 1 else "need"
    return f"{len(keys):,} of {count(summary.total, 'certificate')} {verb} you: {named}{more}"


def life_of(row: Row, now: float) -> Life | None:
    """The life of the issued certificate; None without one."""
    if not row.not_after or row.not_after <= row.not_before:
        return None
    whole = row.not_after - row.not_before
    left = row.not_after - now
    days = int(left // _DAY_S)
    words = f"{days} days" if days >= 2 else span(timedelta(seconds=left)) if left > 0 else "expired"
    renewal = (row.renewal - row.not_before) / whole if row.renewal else None
    return Life(min(max(round(1 - left / whole, 2), 0.0), 1.0), renewal, words, left <= 0)


def incidents_of(
    index: Index, rows: Iterable[Row], scopes: OverviewScopes, now: datetime, command: str
) -> list[Incident]:
    """The failing issuers with certificates among the rows, by the number of certificates. Issuers that the
    user may not read stay unnamed."""
    waiting: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        kind, _, name = row.issuer.partition("/")
        if kind in ("Issuer", "ClusterIssuer"):
            waiting.setdefault((kind, "" if kind == "ClusterIssuer" else row.namespace, name), []).append(row)
    found = []
    for (kind, namespace, name), members in waiting.items():
        issuer = index.issuer(members[0])
        if issuer is None or not scopes.allows_issuer(members[0]) or issuers.works(issuer):
            continue
        names = tuple(f"{row.namespace}/{row.name}" for row in members)
        status = issuers.status_of({**issuer, "kind": kind}, (), ())
        status = msgspec.structs.replace(status, waiting=names)
        cause, advice = issuers.story(status, now)
        place = f" -n {namespace}" if namespace else ""
        shown = f"{command} status {kind.lower()} {name}{place}"
        words = shortened(cause), shortened(advice)
        found.append(Incident(kind, namespace, name, *words, shown, tuple(members)))
    return sorted(found, key=lambda incident: -len(incident.rows))


class Query(msgspec.Struct, frozen=True):
    """What the table shows: by the query of the address. `page` begins at 1."""

    text: str = ""
    namespace: str = ""
    issuer: str = ""
    state: str = ""
    sort: str = "name"
    page: int = 1


def query_of(fields: Mapping[str, str]) -> Query:
    """The query of an address; unknown values are ignored."""
    return Query(
        text=fields.get("q", "").strip().lower(),
        namespace=fields.get("namespace", ""),
        issuer=fields.get("issuer", ""),
        state=fields.get("state", "") if fields.get("state", "") in STATES else "",
        sort=fields.get("sort", "") if fields.get("sort", "") in SORTS else "name",
        page=_number(fields.get("page", ""), default=1),
    )


def _number(text: str, *, default: int) -> int:
    """A whole number of an address, at least 1; the default for anything else."""
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 7 else default


def select(index: Index, scope: Scope, query: Query, summary: Summary, now: float) -> Sequence[Row]:
    """The rows that match the query, in the query's order."""
    rows = visible_rows(index, scope, SORTS[query.sort])
    if query.namespace:
        rows = [row for row in rows if row.namespace == query.namespace]
    if query.issuer:
        rows = [row for row in rows if row.issuer == query.issuer]
    if query.state == "attention":
        rows = [row for row in rows if row.key in summary.troubles]
    elif query.state == "expired":
        rows = [row for row in rows if 0 < row.not_after <= now]
    elif query.state:
        rows = [row for row in rows if row.state == query.state]
    if query.text:
        wanted = query.text
        rows = [
            row
            for row in rows
            if wanted in f"{row.namespace}/{row.name}" or any(wanted in name.lower() for name in row.names)
        ]
    return rows


class Line(msgspec.Struct, frozen=True):
    """A line of the table. Lamps: `ok`, `bad`, `busy` or `none`."""

    row: Row
    life: Life | None
    state: str
    level: str
    stored: str
    delivered: str
    served: str


def line_of(row: Row, summary: Summary, now: float) -> Line:
    """The line of a certificate."""
    trouble, lamps = summary.troubles.get(row.key, ""), summary.lamps.get(row.key, Lamps())
    lost = is_lost(row, now)
    stored = "bad" if lost else "ok" if row.is_valid else "busy"
    level = ("bad" if lost else "warn") if trouble else "busy" if row.state is State.ISSUING else "ok"
    return Line(
        row,
        life_of(row, now),
        trouble or str(row.state),
        level,
        stored,
        _lamp(lamps.delivered),
        _lamp(lamps.served),
    )


def _lamp(value: bool | None) -> str:
    return "none" if value is None else "ok" if value else "bad"


async def cards_of(visit: Visit, rows: Sequence[Row], summary: Summary) -> list[Card]:
    """The cards of these certificates, whose diagnosis is made as the user."""
    return [
        card
        for card in await asyncio.gather(*(_card(visit, row, summary) for row in rows))
        if card is not None
    ]


async def _card(visit: Visit, row: Row, summary: Summary) -> Card | None:
    trouble = summary.troubles[row.key]
    place = f"{row.name} -n {row.namespace}"
    renew, show = f"{visit.command} renew {place}", f"{visit.command} status {place}"
    if trouble in ("not delivered", "not served"):
        problem = summary.lamps[row.key].problem or trouble
        return Card(row, Diagnosis(problem), show, trouble, is_lost=False)
    try:
        certificate = await visit.client.get(related.CERTIFICATES, row.name, row.namespace)
        found = diagnose(await visit.related_objects(certificate, most=_LISTED), visit.now)
    except NotFound:
        return None
    except ApiError as error:
        found = Diagnosis(sentence(str(error)))
    command = show if trouble in ("no issuer", "waiting", "slow") else renew
    cause, advice = shortened(found.cause), shortened(found.advice)
    found = msgspec.structs.replace(found, cause=cause, advice=advice)
    may_retry = visit.session is not None and await may(
        visit.client, "patch", GROUP, "certificates/status", row.namespace, row.name
    )
    return Card(row, found, command, trouble, is_lost(row, visit.now.timestamp()), may_retry)


class Overview(msgspec.Struct, frozen=True):
    """Everything that the first page shows."""

    summary: Summary
    headline: str
    incidents: Sequence[Incident]
    cards: Sequence[Card]
    more: int
    timeline: Timeline
    query: Query
    lines: Sequence[Line]
    matches: int
    namespaces: Sequence[str]
    issuers: Sequence[str]

    @property
    def pages(self) -> int:
        """How many pages the table has."""
        return max(-(-self.matches // PAGE), 1)


class _Facts(msgspec.Struct, frozen=True):
    """What does not depend on the address."""

    summary: Summary
    timeline: Timeline
    namespaces: Sequence[str]
    issuers: Sequence[str]


def _compute(index: Index, scopes: OverviewScopes, query: Query, now: float) -> tuple[_Facts, Sequence[Row]]:
    """The facts, and the rows of the table. Takes 0.1 s for 100,000 certificates, whose facts are used again
    for some seconds unless something changes."""
    if len(index) < _MANY:
        facts = _facts_of(index, scopes, now)
    else:
        facts = index.remember((scopes, now // _SOON_S), lambda: _facts_of(index, scopes, now))
    return facts, select(index, scopes.certificates, query, facts.summary, now)


def _facts_of(index: Index, scopes: OverviewScopes, now: float) -> _Facts:
    summary = summarize(index, scopes, now)
    rows = visible_rows(index, scopes.certificates)
    return _Facts(
        summary,
        timeline(rows, summary.troubles, now),
        sorted({row.namespace for row in rows}),
        sorted({row.issuer for row in rows})[:_MOST_ISSUERS],
    )


async def overview(visit: Visit, query: Query, *, limit: int = PAGE) -> Overview:
    """What the first page shows to the user. Raises `ApiError`."""
    await visit.index.wait_synced()
    scopes = OverviewScopes(
        **{plural: await visit.scope(plural) for plural in OverviewScopes.__struct_fields__}
    )
    now = visit.now.timestamp()

    def compute() -> tuple[_Facts, Sequence[Row], str, list[Incident], list[Row], int]:
        facts, chosen = _compute(visit.index, scopes, query, now)
        words = headline(facts.summary, is_reading=not visit.index.is_synced)
        keys = sorted(facts.summary.troubles)
        troubled = [row for key in keys if (row := visit.index.get(key)) is not None]
        incidents = incidents_of(visit.index, troubled, scopes, visit.now, visit.command)
        grouped = {row.key for incident in incidents for row in incident.rows}
        alone = [row for row in troubled if row.key not in grouped]
        hidden = sum(len(incident.rows) for incident in incidents[_MOST_INCIDENTS:])
        return facts, chosen, words, incidents[:_MOST_INCIDENTS], alone, hidden

    # All 100,000 may need attention, when an issuer is down.
    facts, chosen, words, incidents, alone, hidden = await asyncio.to_thread(compute)
    summary = facts.summary
    start = (query.page - 1) * limit
    return Overview(
        summary,
        words,
        incidents,
        await cards_of(visit, alone[:_MOST_CARDS], summary),
        max(len(alone) - _MOST_CARDS, 0) + hidden,
        facts.timeline,
        query,
        [line_of(row, summary, now) for row in chosen[start : start + limit]],
        len(chosen),
        facts.namespaces,
        facts.issuers,
    )


async def page(visit: Visit) -> View:
    """The first page."""
    shown = await overview(visit, query_of(visit.query))
    return View("overview.html", {"it": shown}, live=("banner", "attention", "timeline", "certificates"))


async def status_json(visit: Visit) -> Response:
    """`/ui/status.json`: the facts of the first page; docs/dashboard.md documents every key."""
    query = query_of(visit.query)
    limit = min(_number(visit.query.get("limit", ""), default=_JSON_PAGE), _MOST_JSON)
    shown = await overview(visit, query, limit=limit)
    return Response(
        200, {"content-type": "application/json"}, msgspec.json.encode(as_json(shown, visit.now, limit))
    )


def as_json(shown: Overview, now: datetime, limit: int) -> Json:
    """The facts of the first page as JSON."""
    summary = shown.summary
    upcoming = summary.next_renewal
    is_last = shown.query.page * limit >= shown.matches
    return {
        "apiVersion": "certwright.io/v1alpha1",
        "kind": "Status",
        "time": moment(now.timestamp()),
        "level": summary.level,
        "sentence": f"{shown.headline}.",
        "counts": {
            "total": summary.total,
            "attention": len(summary.troubles),
            "issuing": summary.issuing,
            "notValid": summary.not_valid,
        },
        "nextRenewal": None
        if upcoming is None
        else {"namespace": upcoming.namespace, "name": upcoming.name, "time": moment(upcoming.renewal)},
        "incidents": [
            {
                "kind": incident.kind,
                "namespace": incident.namespace,
                "name": incident.name,
                "diagnosis": incident.cause,
                "advice": incident.advice,
                "certificates": [f"{row.namespace}/{row.name}" for row in incident.rows[:_JSON_PAGE]],
            }
            for incident in shown.incidents
        ],
        "attention": [
            {
                "namespace": card.row.namespace,
                "name": card.row.name,
                "reason": card.trouble,
                "diagnosis": card.diagnosis.cause,
                "advice": card.diagnosis.advice,
                "command": card.command,
                "failedAttempts": card.row.attempts,
                "nextAttempt": moment(card.row.next_attempt),
            }
            for card in shown.cards
        ],
        "attentionMore": shown.more,
        "certificates": [line_json(line, now.timestamp()) for line in shown.lines],
        "matches": shown.matches,
        "page": shown.query.page,
        "nextPage": None if is_last else shown.query.page + 1,
    }


def line_json(line: Line, now: float) -> Json:
    """One certificate as JSON. Lamps are true, false, or null where there is nothing to say."""
    row, lamp = line.row, {"ok": True, "bad": False, "busy": False, "none": None}
    return {
        "namespace": row.namespace,
        "name": row.name,
        "names": row.names[:_MOST_JSON_NAMES],
        "moreNames": max(len(row.names) - _MOST_JSON_NAMES, 0),
        "issuer": row.issuer,
        "isCA": row.is_ca,
        "state": line.state,
        "ready": row.is_valid,
        "notBefore": moment(row.not_before),
        "notAfter": moment(row.not_after),
        "renewalTime": moment(row.renewal),
        "daysLeft": int((row.not_after - now) // _DAY_S) if row.not_after else None,
        "stored": lamp[line.stored],
        "delivered": lamp[line.delivered],
        "served": lamp[line.served],
        "message": row.message,
    }


def moment(value: float) -> str | None:
    """RFC 3339; None for 0."""
    return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}" if value else None
