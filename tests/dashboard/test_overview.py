"""The first page: what it says about objects, and what it shows of them."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from certwright.dashboard.index import Lamps, Row, State
from certwright.dashboard.overview import life_of, query_of, trouble_of
from certwright.dashboard.report import make_report
from certwright.dashboard.timeline import DAYS, timeline
from certwright.diagnosis import related
from certwright.kube.api.meta import ObjectKey
from certwright.resources import plain_kinds
from certwright.resources.retry import BreakerRecord, write_breaker
from dashboard.objects import delivery
from support.visitor import visitor
from support.world import START, World

NOW = START.timestamp()
DAY = 86_400.0
_KINDS = (plain_kinds.CERTIFICATES, plain_kinds.ISSUERS, plain_kinds.CLUSTER_ISSUERS, plain_kinds.DELIVERIES)
KINDS = {kind.kind: kind for kind in _KINDS}


def at(days: float) -> str:
    """That many days from now."""
    return f"{START + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


def certificate(name: str, *, ends: float | None = 60, **changes: Any) -> dict[str, Any]:
    """A Certificate that ends in so many days; with None, one that has never been issued. `changes`: of its
    status, and `issuer`, `namespace`, `since`."""
    namespace, issuer = changes.pop("namespace", "default"), changes.pop("issuer", "ca")
    since, issuing = at(-changes.pop("since", 1.0)), changes.pop("issuing", "")
    ready = ends is not None and ends > 0
    states = {"Ready": str(ready), **({"Issuing": issuing} if issuing else {})}
    conditions = [
        {"type": kind, "status": state, "reason": "R", "message": "why.", "lastTransitionTime": since}
        for kind, state in states.items()
    ]
    times = {"notBefore": at(ends - 90), "notAfter": at(ends), "renewalTime": at(ends - 30)} if ends else {}
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"secretName": name, "dnsNames": [f"{name}.example.com"], "issuerRef": {"name": issuer}},
        "status": {"conditions": conditions, **times, **changes},
    }


def issuer(
    name: str = "ca", *, namespace: str = "default", is_ready: bool = True, breaker: str = ""
) -> dict[str, Any]:
    """An Issuer; `breaker`: with an open circuit breaker of that message."""
    record = BreakerRecord(state="Open", message=breaker, since=START) if breaker else None
    condition = {"type": "Ready", "status": str(is_ready), "reason": "R", "message": "the key is missing."}
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": write_breaker(record) if breaker else {},
        },
        "spec": {"selfSigned": {}},
        "status": {"conditions": [condition]},
    }


async def put(world: World, *objects: Mapping[str, Any]) -> None:
    """Create objects, and set their status as the controllers would."""
    for obj in objects:
        kind, meta = KINDS[obj["kind"]], obj["metadata"]
        await world.create(kind, dict(obj))
        patch = {"status": obj["status"]}
        await world.client.patch(kind, meta["name"], meta["namespace"], patch, subresource="status")


FAILED: dict[str, Any] = {"issuing": "False", "lastFailureTime": at(-1), "failedIssuanceAttempts": 2}
SERVED = {"Delivered": "True", "Deployed": "True"}
Scene = tuple[Sequence[Mapping[str, Any]], str, str, Mapping[str, str | int]]
SCENES: dict[str, Scene] = {
    "nothing": ([], "ok", "There are no certificates yet.", {}),
    "one, ready": ([issuer(), certificate("a")], "ok", "The one certificate is valid.", {}),
    "ready, and one is served": (
        [issuer(), certificate("a"), certificate("b"), delivery("d", "a", **SERVED)],
        "ok",
        "All 2 certificates are valid; 1 is delivered and served.",
        {},
    ),
    "ready and served": (
        [issuer(), certificate("a"), delivery("d", "a", **SERVED)],
        "ok",
        "The one certificate is valid and served.",
        {},
    ),
    "one that has just begun needs nobody": (
        [issuer(), certificate("a"), certificate("b", since=0.0001, ends=None, issuing="True")],
        "ok",
        "1 of 2 certificates is valid; the other is being issued.",
        {},
    ),
    "a failed renewal of a valid certificate": (
        [issuer(), certificate("a"), certificate("b", **FAILED)],
        "warn",
        "1 of 2 certificates needs you: default/b.",
        {"b": "failed"},
    ),
    "an expired one": (
        [issuer(), certificate("a", ends=-2, **FAILED), certificate("b", ends=None, since=0.1)],
        "bad",
        "2 of 2 certificates need you: default/a, default/b.",
        {"a": "expired", "b": "waiting"},
    ),
    "an issuer that is down is one incident": (
        [issuer(breaker="no route to host"), *(certificate(f"c{i}", **FAILED) for i in range(5))],
        "warn",
        "5 of 5 certificates need you: default/c0, default/c1, default/c2 and 2 more.",
        {"ca": 5},
    ),
    "an issuer that is not ready: certificates that are valid need nobody": (
        [issuer(is_ready=False), certificate("a"), certificate("b", ends=None)],
        "warn",
        "1 of 2 certificates needs you: default/b.",
        {"ca": 1},
    ),
    "an issuer that is missing": (
        [certificate("a", ends=None), certificate("b")],
        "warn",
        "1 of 2 certificates needs you: default/a.",
        {"a": "no issuer"},
    ),
    "one of two servers has an old certificate": (
        [
            *(issuer(), certificate("a")),
            *(delivery("d", "a", Delivered="True", Deployed="False"), delivery("e", "a", **SERVED)),
        ],
        "warn",
        "1 of 1 certificate needs you: default/a.",
        {"a": "not served"},
    ),
}
"""Objects, the colour and the sentence of the banner, and what needs attention: certificates with the reason,
and issuers with the number of certificates that wait for them."""


@pytest.mark.parametrize(("objects", "level", "sentence", "needs"), SCENES.values(), ids=SCENES.keys())
async def test_the_page_says_what_needs_somebody(
    world: World, objects: Any, level: str, sentence: str, needs: Mapping[str, str | int]
) -> None:
    await put(world, *objects)
    admin = await visitor(world)
    found, page = await admin.facts(), await admin.get("/ui/")
    assert (found["level"], found["sentence"]) == (level, sentence)
    attention = {entry["name"]: entry["reason"] for entry in found["attention"]}
    assert attention | {each["name"]: len(each["certificates"]) for each in found["incidents"]} == needs
    assert page.status == 200
    assert sentence in page.text
    assert ("Nothing needs attention" in page.text) == (level == "ok" and bool(objects))


def row(name: str = "a", *, ends: float = 60, **changes: Any) -> Row:
    """The row of a certificate of 90 days that is renewed 30 days before its end."""
    not_after = NOW + ends * DAY
    base = Row(
        namespace="default",
        name=name,
        names=(f"{name}.example.com",),
        secret=name,
        issuer="Issuer/ca",
        is_ca=False,
        state=State.READY,
        is_valid=ends > 0,
        not_before=not_after - 90 * DAY,
        not_after=not_after,
        renewal=not_after - 30 * DAY,
        attempts=0,
        next_attempt=0.0,
        message="",
        since=NOW - DAY,
    )
    return msgspec.structs.replace(base, **changes)


@pytest.mark.parametrize(
    ("found", "lamps", "issuer_is", "trouble"),
    [
        (row(), None, "", ""),
        (row(), Lamps(True, True), "", ""),
        (row(ends=0), None, "", "expired"),
        (row(state=State.FAILED), Lamps(False, False), "missing", "failed"),
        (row(state=State.WAITING), None, "missing", "no issuer"),
        (row(state=State.ISSUING, since=NOW - 5), None, "down", "issuer down"),
        (row(), None, "missing", ""),
        (row(), None, "down", ""),
        (row(state=State.WAITING, since=NOW - 59), None, "", ""),
        (row(state=State.WAITING, since=NOW - 61), None, "", "waiting"),
        (row(state=State.ISSUING, since=NOW - 599), None, "", ""),
        (row(state=State.ISSUING, since=NOW - 601), None, "", "slow"),
        (row(ends=29.5), None, "", ""),
        (row(ends=28.5), None, "", "overdue"),
        (row(renewal=0.0), None, "", ""),
        (row(), Lamps(False, None), "", "not delivered"),
        (row(), Lamps(True, False), "", "not served"),
    ],
)
def test_why_a_certificate_needs_attention(
    found: Row, lamps: Lamps | None, issuer_is: str, trouble: str
) -> None:
    flags = {"is_orphan": issuer_is == "missing", "is_blocked": issuer_is == "down"}
    assert trouble_of(found, NOW, lamps, **flags) == trouble


@pytest.mark.parametrize(
    ("found", "elapsed", "renewal", "words"),
    [
        (row(ends=60), 1 / 3, 2 / 3, "60 days"),
        (row(ends=1.5), 88.5 / 90, 2 / 3, "36 hours"),
        (row(ends=0.01), 1.0, 2 / 3, "14 minutes"),
        (row(ends=-2), 1.0, 2 / 3, "expired"),
        (row(ends=120), 0.0, 2 / 3, "120 days"),
        (row(renewal=0.0), 1 / 3, None, "60 days"),
    ],
)
def test_a_life_is_a_bar_with_the_rest_in_words(
    found: Row, elapsed: float, renewal: float | None, words: str
) -> None:
    life = life_of(found, NOW)
    assert life is not None
    bar = [pytest.approx(elapsed, abs=0.01), pytest.approx(renewal), words]
    assert [life.elapsed, life.renewal, life.words] == bar


def test_what_has_not_been_issued_has_no_life() -> None:
    assert life_of(row(not_before=0.0, not_after=0.0), NOW) is None


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, ("", "", "", "name", 1)),
        ({"q": " Web ", "page": "3", "sort": "expiry"}, ("web", "", "", "expiry", 3)),
        ({"state": "failed", "namespace": "shop"}, ("", "shop", "failed", "name", 1)),
        ({"state": "<b>", "sort": "__class__", "page": "-1"}, ("", "", "", "name", 1)),
        ({"page": "9" * 5000}, ("", "", "", "name", 1)),
        ({"page": "٣"}, ("", "", "", "name", 1)),
        ({"page": "0"}, ("", "", "", "name", 1)),
    ],
)
def test_an_address_says_what_the_table_shows(fields: Mapping[str, str], shown: Sequence[Any]) -> None:
    query = query_of(fields)
    assert (query.text, query.namespace, query.state, query.sort, query.page) == shown


def test_the_time_line_has_a_mark_for_each_certificate_at_its_renewal() -> None:
    rows = [row("soon", ends=40), row("overdue", ends=20), row("due", renewal=NOW - 60)]
    rows += [row("trouble", ends=80), row("far", ends=200)]
    line = timeline(rows, {ObjectKey("default", "trouble"): "failed"}, NOW)
    levels = [("overdue", "bad"), ("due", "ok"), ("soon", "ok"), ("trouble", "warn")]
    assert [(mark.row.name, mark.level) for mark in line.marks] == levels
    assert (line.overdue, line.later, line.bars) == (1, 1, ())
    places = {mark.row.name: mark.x for mark in line.marks}
    left, right = line.ticks[0].x, line.ticks[-1].x
    assert places["overdue"] == left
    assert places["soon"] == pytest.approx(left + (right - left) * 10 / DAYS, abs=0.1)
    assert [tick.words for tick in line.ticks][:2] == ["today", "15 days"]


@pytest.mark.parametrize(
    ("number", "is_cut"), [(10, False), (60, False), (85, True)], ids=["few", "60", "85"]
)
def test_tails_do_not_overlap_where_there_is_room(number: int, is_cut: bool) -> None:
    line = timeline([row(f"c{i}", ends=31 + 58 * i / number) for i in range(number)], {}, NOW)
    lanes: dict[float, list[tuple[float, float]]] = {}
    for mark in line.marks:
        lanes.setdefault(mark.y, []).append((mark.x, mark.end))
    overlaps = [
        (before, after) for lane in lanes.values() for before, after in pairwise(lane) if before[1] > after[0]
    ]
    assert (len(line.marks), bool(overlaps)) == (number, is_cut)
    assert max(mark.y for mark in line.marks) < line.height <= 41 * 8


def test_thousands_are_shown_as_density() -> None:
    rows = [row(f"c{i}", ends=20 + i % 80) for i in range(4_000)]
    line = timeline(rows, {}, NOW)
    assert not line.marks
    assert sum(bar.number for bar in line.bars) == 4_000
    # Ten days are overdue: they stand at the left edge with those of today.
    assert (line.bars[0].day, line.bars[0].number, line.overdue) == (0, 11 * 50, 500)


def test_cas_have_a_row_of_their_own_with_all_times_on_it() -> None:
    rows = [
        row("short", ends=3, is_ca=True, renewal=0.0),
        row("year", ends=365, is_ca=True),
        row("root", ends=7300, is_ca=True),
        row("new", is_ca=True, not_after=0.0),
    ]
    line = timeline(rows, {}, NOW)
    assert (list(line.marks), line.later) == ([], 0)
    assert [(mark.row.name, mark.level) for mark in line.cas] == [
        ("short", "ok"),
        ("year", "ok"),
        ("root", "ok"),
    ]
    week, month, year, decade = (tick.x for tick in line.ca_ticks[1:])
    ends = [mark.end for mark in line.cas]
    assert ends[0] < week < month < year == ends[1] < decade < ends[2] <= 1000


TABLE = {
    "": ("team-0/web-000", 200, 4),
    "?page=4": ("team-3/web-003", 200, 4),
    "?page=5": ("", 200, 4),
    "?q=WEB-01&sort=expiry": ("team-2/web-010", 10, 1),
    "?q=team-3/web-05": ("team-3/web-051", 3, 1),
    "?namespace=team-3&issuer=Issuer/ca-1": ("team-3/web-003", 50, 1),
    "?namespace=team-4": ("", 0, 1),
    "?state=failed": ("team-0/web-000", 3, 1),
    "?state=attention&sort=state": ("team-0/web-000", 3, 1),
    "?state=expired": ("", 0, 1),
    "?sort=expiry": ("team-0/web-000", 200, 4),
    "?sort=issuer": ("team-0/web-000", 200, 4),
}
"""By the query of the address: the first certificate of the page, how many match, and on how many pages."""


async def test_the_table_is_searched_filtered_and_sorted_by_the_address(world: World) -> None:
    for i in range(4):
        await world.client.create(related.NAMESPACES, {"metadata": {"name": f"team-{i}"}})
        for name in ("ca-0", "ca-1"):
            await put(world, issuer(name, namespace=f"team-{i}"))
    for i in range(200):
        place = {"namespace": f"team-{i % 4}", "issuer": f"ca-{i % 2}"}
        await put(world, certificate(f"web-{i:03}", ends=31 + i % 59, **place, **(FAILED if i < 3 else {})))
    admin = await visitor(world)
    for query, (first, matches, pages) in TABLE.items():
        page = await admin.get(f"/ui/{query}")
        tail = "&" if query else "?"
        listed = await admin.facts(f"{query}{tail}limit=50")
        names = [f"{found['namespace']}/{found['name']}" for found in listed["certificates"]]
        assert (next(iter(names), ""), listed["matches"]) == (first, matches), query
        assert page.html.count('<tr><th scope="row">') == len(names), query
        assert (f"page {listed['page']} of {pages}" in page.text) == (pages > 1 and bool(names)), query
        assert len(page.response.body) <= 60_000


@pytest.mark.parametrize(("options", "is_offered"), [({}, True), ({"read_only": True}, False)])
async def test_a_failed_certificate_can_be_retried_from_its_card(
    world: World, options: dict[str, Any], is_offered: bool
) -> None:
    await put(world, issuer(), certificate("b", **FAILED))
    admin = await visitor(world, **options)
    page = await admin.get("/ui/")
    forms = [address for address in page.forms if address.endswith("/certificates/default/b/renew")]
    assert bool(forms) == is_offered
    assert "certwright renew b -n default" in page.text
    assert "Attempts 2" in page.text
    if is_offered:
        await admin.send("POST", forms[0], page.forms[forms[0]])
        assert (await world.condition("b", "Issuing")).status == "True"


async def test_a_report_is_one_file_whose_links_stay_within_it(world: World) -> None:
    await put(world, issuer(breaker="no route to host"), issuer("other"))
    await put(world, certificate("a", **FAILED), certificate("b", issuer="other", **FAILED))
    report = await make_report(world.client, world.clock)
    page = report.html()
    links = {html.unescape(link) for link in re.findall(r'(?:href|src|action)="([^"]*)"', page)}
    ids = set(re.findall(r'\bid="([^"]*)"', page))
    assert {link.removeprefix("#") for link in links} <= ids
    assert [tag for tag in ("<script", "<link", "<form", "url(", "@import") if tag in page] == []
    said = list(report.lines())
    assert said[0] == "2 of 2 certificates need you: default/a, default/b."
    assert said[1].startswith("Issuer default/ca: failing since")
    assert "no route to host; 1 certificate waiting" in said[1]
    assert said[2].startswith("default/b: ")
    assert len(said) == 3
    assert (await (await visitor(world)).facts())["sentence"] == report.json()["sentence"]
