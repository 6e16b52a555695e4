"""`certwright status issuer`: state, reason and time of the circuit breaker, and what waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from certwright.cli.commands.status import issuer_report as report
from certwright.diagnosis.issuers import as_json, status_of
from certwright.resources.retry import BreakerRecord, write_breaker

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def issuer(record: BreakerRecord | None = None, *, ready: str = "True") -> dict[str, Any]:
    """A ClusterIssuer as JSON."""
    annotations = write_breaker(record) if record is not None else {}
    condition = {"type": "Ready", "status": ready, "reason": "X", "message": "the account is deactivated."}
    status = {"conditions": [condition], "acme": {"uri": "https://ca.example/account/1"}}
    meta = {"name": "le", "annotations": annotations}
    spec = {"acme": {"server": "https://ca.example/directory"}}
    return {"kind": "ClusterIssuer", "metadata": meta, "spec": spec, "status": status}


def certificate(name: str, status: str, reason: str, issuer: str = "le") -> dict[str, Any]:
    """A Certificate as JSON, with that Issuing condition."""
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"issuerRef": {"name": issuer, "kind": "ClusterIssuer"}},
        "status": {"conditions": [{"type": "Issuing", "status": status, "reason": reason}]},
    }


OPEN = BreakerRecord(
    state="Open",
    reason="IssuerUnavailable",
    message="connection refused",
    since=NOW - timedelta(minutes=5),
    next_probe=NOW + timedelta(seconds=90),
    attempts=(NOW - timedelta(hours=2), NOW - timedelta(minutes=5)),
)


def test_an_open_breaker_says_why_since_when_what_next_and_who_waits() -> None:
    certificates = [
        certificate("web", "False", "WaitingForIssuer"),
        certificate("api", "True", "DoesNotExist"),
        certificate("bad", "False", "Failed"),
        certificate("other", "True", "DoesNotExist", "another"),
    ]
    signed = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    requests = [
        {
            "metadata": {"name": "web-1"},
            "spec": {"issuerRef": {"name": "le", "kind": "ClusterIssuer"}},
            "status": {"conditions": [signed]},
        }
    ]
    status = status_of(issuer(OPEN), certificates, requests)
    text = "\n".join(report(status, [], NOW))
    assert "failing since 2026-01-01 11:55 UTC (5 minutes ago): connection refused" in text
    assert "2 certificates waiting or being issued" in text
    assert "shop/web" in text
    assert "shop/bad" not in text
    assert "2026-01-01 12:01:30 UTC (in 90 seconds)" in text
    assert "1 in the last hour" in text
    document = msgspec.json.decode(msgspec.json.encode(as_json(status, NOW)))
    assert document["circuitBreaker"]["nextProbe"] == "2026-01-01T12:01:30Z"
    assert document["lastSuccess"] == "2026-01-01T11:00:00Z"
    assert document["waiting"] == ["shop/web", "shop/api"]


def test_an_issuer_that_works_is_ready_and_its_breaker_closed() -> None:
    lines = report(status_of(issuer(), [], []), [], NOW)
    assert lines[0] == "ClusterIssuer le: ready."
    assert any("closed" in line for line in lines)


def test_an_issuer_that_is_not_ready_says_why() -> None:
    assert report(status_of(issuer(ready="False"), [], []), [], NOW)[0] == (
        "ClusterIssuer le: not ready: the account is deactivated."
    )


def test_a_record_that_cannot_be_read_is_none() -> None:
    broken = issuer()
    broken["metadata"]["annotations"] = {"certwright.io/circuit-breaker": '{"state": "Ajar"}'}
    assert status_of(broken, [], []).breaker is None
