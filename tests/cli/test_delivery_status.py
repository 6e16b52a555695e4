"""`certwright status` of Deliveries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from certwright.diagnosis.deliveries import as_json, story
from cli.calls import Cli

NOW = datetime(2026, 11, 28, tzinfo=UTC)
DELIVERY = """
apiVersion: certwright.io/v1alpha1
kind: Delivery
metadata: {name: shop}
spec: {certificateRef: {name: web}, root: ngnix, path: shop, servedAt: [{address: "127.0.0.1:443"}]}
"""
CERTIFICATE = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web}
spec: {secretName: web, dnsNames: [web.example.com], issuerRef: {name: none}}
---
"""


def delivery(*conditions: tuple[str, str, str], **status: Any) -> dict[str, Any]:
    listed = [
        {"type": kind, "status": state, "reason": "R", "message": message}
        for kind, state, message in conditions
    ]
    return {
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"root": "nginx", "path": "shop"},
        "status": {"conditions": listed, **status},
    }


@pytest.mark.parametrize(
    ("obj", "cause", "advice", "ready"),
    [
        (delivery(), "not processed yet", "--delivery-root nginx=DIR runs", False),
        (delivery(("Delivered", "True", "it is there")), "delivered: it is there", "", True),
        (
            delivery(("Delivered", "False", "the disk is full"), nextAttempt="2026-11-28T00:05:00Z"),
            "not delivered: the disk is full",
            "next attempt is 2026-11-28 00:05",
            False,
        ),
        (
            delivery(("Delivered", "True", "x"), ("Deployed", "Unknown", "being checked")),
            "being checked",
            "",
            False,
        ),
        (
            delivery(("Delivered", "True", "x"), ("Deployed", "False", "a:443 serves the old one")),
            "a:443 serves the old one",
            "reload",
            False,
        ),
        (
            delivery(("Delivered", "False", "no process"), ("Deployed", "Unknown", "not checked")),
            "not delivered: no process",
            "",
            False,
        ),
    ],
)
def test_the_story_of_a_delivery(obj: dict[str, Any], cause: str, advice: str, ready: bool) -> None:
    told, fix = story(obj, NOW)
    assert told == cause
    assert advice in fix
    assert bool(fix) == bool(advice)
    assert as_json(obj, NOW)["ready"] is ready


def test_the_status_of_a_delivery_and_of_its_certificate(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    assert cli("apply", *here, "-f", "-", stdin=CERTIFICATE + DELIVERY).status == 0
    outcome = cli("status", "delivery/shop", *here)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith(f"Delivery {namespace}/shop: not ")
    assert "Place:       ngnix:shop" in outcome.out
    content = json.loads(cli("status", "web", *here, "-o", "json").out)
    assert [(entry["name"], entry["root"]) for entry in content["deliveries"]] == [("shop", "ngnix")]
    assert "\nDeliveries\n  shop: not " in cli("status", "web", *here).out
    # The server logs a Delivery without a process after a while, and its log has to be empty.
    assert cli("delete", "delivery", "shop", *here).status == 0
