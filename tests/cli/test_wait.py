"""Diagnoses that `certwright wait` ends with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from certwright.diagnosis.certificates import RelatedObjects, diagnose, diagnose_other

NOW = datetime(2026, 11, 28, 4, 0, tzinfo=UTC)


def _certificate(**status: Any) -> dict[str, Any]:
    conditions = [{"type": "Issuing", "status": "False", "reason": "Failed", "message": "no"}]
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"issuerRef": {"name": "ca"}},
        "status": {"conditions": conditions, **status},
    }


def test_a_failure_names_the_time_of_the_next_attempt() -> None:
    failed = _certificate(lastFailureTime="2026-11-28T03:59:00Z", failedIssuanceAttempts=1)
    story = diagnose(RelatedObjects(failed, hidden=("issuer",)), NOW)
    assert story.next_attempt == NOW + timedelta(minutes=59)


def test_a_refused_request_is_final() -> None:
    condition = {"type": "Ready", "status": "False", "reason": "Denied", "message": "Not today."}
    request = {"metadata": {}, "spec": {"request": "YQ=="}, "status": {"conditions": [condition]}}
    story = diagnose_other(request, "ready")
    assert (story.final, str(story)) == (True, "Ready is False (Denied): Not today")


def test_an_order_gives_its_state() -> None:
    order = {"metadata": {}, "spec": {}, "status": {"state": "pending", "reason": "DNS is slow."}}
    assert str(diagnose_other(order, "ready")) == "pending: DNS is slow"
