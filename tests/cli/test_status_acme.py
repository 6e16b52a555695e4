"""`certwright status certificate` of a certificate that an ACME server is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from certwright.cli.commands.status import report
from certwright.cli.diagnosis import Around


def an_object(kind: str, name: str, **rest: Any) -> dict[str, Any]:
    """An object with that name."""
    return {"kind": kind, "metadata": {"name": name, "namespace": "default"}, **rest}


def test_the_order_and_each_challenge_are_shown_with_their_reasons() -> None:
    reference = {"name": "acme", "kind": "ClusterIssuer"}
    reason = "Waiting for DNS-01 challenge propagation: the name server ns1 has no TXT record"
    challenges = (
        an_object(
            "Challenge",
            "web-1-2-3",
            spec={"dnsName": "a.example.org", "type": "DNS-01", "wildcard": True},
            status={"presented": True, "reason": reason},
        ),
        an_object(
            "Challenge",
            "web-1-2-4",
            spec={"dnsName": "b.example.org", "type": "HTTP-01"},
            status={"state": "valid", "reason": "Successfully authorized domain"},
        ),
    )
    around = Around(
        an_object("Certificate", "web", spec={"issuerRef": reference, "secretName": "web"}),
        request=an_object("CertificateRequest", "web-1", spec={"issuerRef": reference}),
        order=an_object("Order", "web-1-2", status={"state": "pending", "url": "https://ca/order/1"}),
        challenges=challenges,
    )
    lines = "\n".join(report(around, [], datetime(2026, 1, 1, tzinfo=UTC)))
    assert "web-1-2" in lines
    assert "pending" in lines
    assert "https://ca/order/1" in lines
    assert f"*.a.example.org by DNS-01: shown ({reason})" in lines
    assert "b.example.org by HTTP-01: valid (Successfully authorized domain)" in lines
