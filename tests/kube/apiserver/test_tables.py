"""Tables: what `kubectl get` prints."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.representations.tables import age, human_duration, printer_columns, render
from certwright.kube.util.clock import TestClock
from kube.apiserver.callers import Json

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
REGISTRY = make_registry(TestClock())


def kind(name: str) -> ResourceDefinition:
    return next(d for d in REGISTRY.all() if d.kind == name)


def stamp(**ago: int) -> str:
    return (NOW - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def table(definition: ResourceDefinition, *objects: Json, **options: Any) -> Json:
    raw = render(definition, [msgspec.json.encode(obj) for obj in objects], now=NOW, **options)
    decoded: Json = msgspec.json.decode(raw)
    return decoded


def cells(name: str, obj: Json, *, wide: bool = True) -> dict[str, Any]:
    """Headings and cells of one object, as kubectl shows them."""
    meta = {"name": "x", "creationTimestamp": stamp(minutes=5)}
    shown = table(kind(name), {"metadata": meta, **obj})
    columns = [c["name"] for c in shown["columnDefinitions"]]
    if not wide:
        columns = [c["name"] for c in shown["columnDefinitions"] if c["priority"] == 0]
    everything = dict(
        zip([c["name"] for c in shown["columnDefinitions"]], shown["rows"][0]["cells"], strict=True)
    )
    return {name: everything[name] for name in columns}


@pytest.mark.parametrize(
    ("name", "obj", "expected"),
    [
        (
            "Secret",
            {"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}},
            {"Name": "x", "Type": "kubernetes.io/tls", "Data": 2, "Age": "5m"},
        ),
        ("ConfigMap", {"data": {"a": ""}, "binaryData": {"b": ""}}, {"Name": "x", "Data": 2, "Age": "5m"}),
        ("Namespace", {"status": {"phase": "Active"}}, {"Name": "x", "Status": "Active", "Age": "5m"}),
        ("ServiceAccount", {}, {"Name": "x", "Secrets": 0, "Age": "5m"}),
        ("Lease", {"spec": {"holderIdentity": "me"}}, {"Name": "x", "Holder": "me", "Age": "5m"}),
        ("CustomResourceDefinition", {}, {"Name": "x", "Created At": stamp(minutes=5)}),
    ],
)
def test_built_in_kinds_have_the_columns_of_kubernetes(name: str, obj: Json, expected: Json) -> None:
    assert cells(name, obj) == expected


EVENT = {
    "involvedObject": {"kind": "Certificate", "name": "web"},
    "type": "Normal",
    "reason": "Issuing",
    "message": " text \n",
    "source": {"component": "certwright"},
    "firstTimestamp": stamp(hours=2),
    "lastTimestamp": stamp(seconds=30),
    "count": 3,
}


def test_an_event_shows_when_it_was_seen_last() -> None:
    assert cells("Event", EVENT, wide=False) == {
        "Last Seen": "30s",
        "Type": "Normal",
        "Reason": "Issuing",
        "Object": "certificate/web",
        "Message": "text",
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"First Seen": "120m", "Count": 3, "Source": "certwright", "Name": "x"}),
        ({"lastTimestamp": None, "count": None}, {"Last Seen": "120m", "Count": 1}),
        (
            {"firstTimestamp": None, "lastTimestamp": None, "eventTime": stamp(minutes=1)},
            {"First Seen": "60s", "Last Seen": "60s"},
        ),
        ({"series": {"count": 9, "lastObservedTime": stamp(seconds=1)}}, {"Count": 9, "Last Seen": "1s"}),
        (
            {"source": {}, "reportingComponent": "c", "reportingInstance": "i"},
            {"Source": "c, i"},
        ),
        ({"involvedObject": {"kind": "Node", "fieldPath": "spec"}}, {"Object": "node", "Subobject": "spec"}),
    ],
)
def test_wide_columns_of_events(change: Json, expected: Json) -> None:
    shown = cells("Event", {**EVENT, **change})
    assert {key: shown[key] for key in expected} == expected


def test_a_hundred_columns_of_one_large_field_show_its_beginning_once() -> None:
    columns = [{"name": f"c{n}", "type": "string", "jsonPath": ".spec.text"} for n in range(100)]
    definition = replace(kind("Secret"), columns=printer_columns(columns))
    large, small = ({"metadata": {"name": "x"}, "spec": {"text": "x" * size}} for size in (100_000, 10))
    shown = table(definition, large, small)["rows"]
    assert [len(cell or "") for cell in shown[0]["cells"]] == [1, 65_535, *[0] * 99]
    assert shown[1]["cells"] == ["x", *["x" * 10] * 100]


MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "<invalid>"),
        (-1.5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 1, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 59 * MINUTE, "3h59m"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 5 * HOUR, "2d5h"),
        (7 * DAY + 23 * HOUR, "7d23h"),
        (8 * DAY + 5 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (7 * YEAR + 364 * DAY, "7y364d"),
        (8 * YEAR + DAY, "8y"),
        (20 * YEAR, "20y"),
    ],
)
def test_a_duration_reads_as_kubectl_prints_it(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("1970-01-01T00:00:00Z", "5m"),
        ("1970-01-01T01:00:00+01:00", "5m"),
        ("1970-01-01T00:04:59.000000Z", "1s"),
        (None, "<unknown>"),
        ("", "<unknown>"),
        ("soon", "<invalid>"),
        ("1970-01-01T00:00:00", "<invalid>"),
    ],
)
def test_an_age_is_counted_from_a_timestamp(stamp: str | None, text: str) -> None:
    assert age(stamp, 300.0) == text
