"""What the server adds to writes of our kinds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from certwright.admission import name_renewer
from certwright.kube.util.http_messages import Identity

ANN = Identity("ann")


def asked(message: Any = "triggered", **changes: Any) -> dict[str, Any]:
    """A Certificate for which a new certificate is asked."""
    condition = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": message}
    return {"status": {"conditions": [{"type": "Ready"}, condition | changes]}}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (None, asked(), "triggered by ann"),
        ({"status": None}, asked(), "triggered by ann"),
        (asked(status="False"), asked(), "triggered by ann"),
        # Whoever claims to be somebody else is named, too.
        (None, asked("triggered by bob"), "triggered by bob by ann"),
        # The first call has added the name, and a webhook has changed the write.
        (None, asked("triggered by ann"), "triggered by ann"),
        # The controllers change another condition.
        (asked("triggered by bob"), asked("triggered by bob"), "triggered by bob"),
        (None, asked(reason="Renewing"), "triggered"),
        (None, asked(status="False"), "triggered"),
    ],
)
def test_who_asks_for_a_renewal_is_named(old: Any, new: Any, message: str) -> None:
    name_renewer(ANN, new, old)
    assert new["status"]["conditions"][1]["message"] == message


@pytest.mark.parametrize(
    "status", [None, 1, [], {}, {"conditions": 1}, {"conditions": [None, 1, {}]}, asked(None)["status"]]
)
def test_what_is_malformed_is_left_to_validation(status: Any) -> None:
    before = {"status": copy.deepcopy(status)}
    name_renewer(ANN, new := {"status": status}, None)
    assert new == before
