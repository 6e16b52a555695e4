"""`certwright status`: why a certificate is as it is, one sentence for every situation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.cli.commands.status import report, store_problem
from certwright.diagnosis.certificates import RelatedObjects, diagnose
from certwright.diagnosis.words import parse_time
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import Response
from certwright.resources.names import ACME_PROBLEM, CIRCUIT_BREAKER
from certwright.resources.retry import RetryRecord, write_retry

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "Certificate is up to date."}
NOT_READY = {"type": "Ready", "status": "False", "reason": "DoesNotExist", "message": "Secret does not exist"}
ISSUING = {"type": "Issuing", "status": "True", "reason": "DoesNotExist", "message": "Secret does not exist"}
GOOD_ISSUER: Json = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def certificate(*conditions: Json, **status: Any) -> Json:
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"secretName": "web-tls", "issuerRef": {"name": "ca"}},
        "status": {"conditions": list(conditions), **status},
    }


def recorded(record: RetryRecord, issuing: Json, **status: Any) -> Json:
    """A Certificate with that retry record."""
    content = certificate(NOT_READY, issuing, **status)
    failed_at = parse_time(status.get("lastFailureTime"))
    record = msgspec.structs.replace(record, failed_at=failed_at)
    content["metadata"]["annotations"] = write_retry(record)
    return content


def request(*conditions: Json, revision: int = 1) -> Json:
    return {
        "metadata": {
            "name": f"web-{revision}",
            "annotations": {"cert-manager.io/certificate-revision": str(revision)},
        },
        "status": {"conditions": list(conditions)},
    }


APPROVED = {"type": "Approved", "status": "True", "reason": "cert-manager.io", "message": "approved"}


def ordered(
    reason: str, *, type: str, presented: bool, processing: bool = False, problem: str = "", breaker: str = ""
) -> RelatedObjects:
    """Its request waits for an Order with one Challenge, whose reason is `reason`; `problem` is the CA's."""
    pending = {"type": "Ready", "status": "False", "reason": "Pending", "message": "Waiting on an order"}
    challenge = {
        "metadata": {"annotations": {ACME_PROBLEM: problem} if problem else {}},
        "spec": {"type": type},
        "status": {"presented": presented, "processing": processing, "reason": reason},
    }
    return RelatedObjects(
        certificate(NOT_READY, ISSUING),
        GOOD_ISSUER | {"metadata": {"annotations": {CIRCUIT_BREAKER: breaker}}},
        request(APPROVED, pending),
        order={"metadata": {"name": "web-1-2"}, "status": {"state": "pending", "reason": reason}},
        challenges=({"status": {"state": "valid", "reason": "Successfully authorized"}}, challenge),
    )


def waiting(issuer: Json | None = None, request: Json | None = None, **others: Any) -> RelatedObjects:
    """A Certificate that is being issued."""
    return RelatedObjects(certificate(NOT_READY, ISSUING), issuer, request, **others)


FAILED = {**ISSUING, "status": "False", "reason": "Failed"}
TWICE = {"lastFailureTime": "2025-12-31T23:00:00Z", "failedIssuanceAttempts": 2}


def ready(**status: Any) -> Json:
    return certificate(READY, notAfter="2026-04-01T00:00:00Z", renewalTime="2026-03-02T00:00:00Z", **status)


STORIES: dict[str, tuple[RelatedObjects, str]] = {
    "ready": (
        RelatedObjects(ready(), GOOD_ISSUER),
        "ready, valid until 2026-04-01 00:00 UTC (in 90 days), "
        "and renews on 2026-03-02 00:00 UTC (in 60 days)",
    ),
    "renewal switched off": (
        RelatedObjects(certificate(READY, notAfter="2026-04-01T00:00:00Z"), GOOD_ISSUER),
        "ready, valid until 2026-04-01 00:00 UTC (in 90 days), and is not renewed automatically",
    ),
    "a CA whose renewal replaces its key": (
        RelatedObjects(
            certificate(
                READY,
                {"type": "CAKeyReplacement", "status": "True", "reason": "ReplacesRootKey"},
                notAfter="2026-04-01T00:00:00Z",
                renewalTime="2026-03-02T00:00:00Z",
            ),
            GOOD_ISSUER,
        ),
        "ready, valid until 2026-04-01 00:00 UTC (in 90 days), "
        "and renews on 2026-03-02 00:00 UTC (in 60 days), with another key, which clients that have "
        "installed this CA do not trust; set spec.privateKey.rotationPolicy: Never to keep the "
        "key, or have clients install the new CA",
    ),
    "nobody at work": (
        RelatedObjects(certificate(), GOOD_ISSUER),
        "not processed by any controller yet; if this lasts, check that the controllers run "
        "(`certwright serve` without `--controllers ''`)",
    ),
    "issuer missing": (
        waiting(),
        "waiting for Issuer ca, which does not exist in namespace shop; create it, or correct "
        "spec.issuerRef; issuance then continues automatically",
    ),
    "issuer not ready": (
        waiting(
            {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no Secret ca."}]}}
        ),
        "waiting for Issuer ca, which is not ready: no Secret ca; if this does not clear up on its own, fix "
        "the issuer (`certwright describe issuer ca -n shop` shows it); issuance continues once it is "
        "ready",
    ),
    "key": (waiting(GOOD_ISSUER), "the private key is being created (Secret does not exist)"),
    "request": (
        RelatedObjects(certificate(NOT_READY, ISSUING, nextPrivateKeySecretName="k"), GOOD_ISSUER),
        "the request is being created (Secret does not exist)",
    ),
    "the request of the last revision does not count": (
        RelatedObjects(
            certificate(NOT_READY, ISSUING, nextPrivateKeySecretName="k", revision=1), GOOD_ISSUER, request()
        ),
        "the request is being created (Secret does not exist)",
    ),
    "approval": (
        waiting(GOOD_ISSUER, request()),
        "CertificateRequest web-1 is waiting for approval; if nothing approves it automatically, "
        "run `certwright approve web-1 -n shop`",
    ),
    "denied": (
        waiting(GOOD_ISSUER, request({"type": "Denied", "status": "True", "message": "not in this house."})),
        "CertificateRequest web-1 was denied: not in this house; ask the approver of requests",
    ),
    "signing": (
        waiting(GOOD_ISSUER, request(APPROVED)),
        "CertificateRequest web-1 is waiting for Issuer ca to sign it",
    ),
    "pending": (
        waiting(
            GOOD_ISSUER,
            request(
                APPROVED,
                {"type": "Ready", "status": "False", "reason": "Pending", "message": "wait, please."},
            ),
        ),
        "CertificateRequest web-1 is pending: wait, please",
    ),
    "issuer of the other kind": (
        waiting(namesake=GOOD_ISSUER),
        "waiting for Issuer ca, which does not exist in namespace shop; a ClusterIssuer of that "
        "name exists: set spec.issuerRef.kind to its kind; issuance then continues automatically",
    ),
    "issuer without its Secret": (
        RelatedObjects(
            certificate(NOT_READY, ISSUING)
            | {"spec": {"issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}},
            {"status": {"conditions": [NOT_READY | {"reason": "ErrGetKeyPair", "message": "no Secret ca"}]}},
        ),
        "waiting for ClusterIssuer ca, which is not ready: no Secret ca; the Secret must be in the "
        "namespace of --cluster-resource-namespace, kube-system by default; if this does not clear up on "
        "its own, fix "
        "the issuer (`certwright describe clusterissuer ca` shows it); issuance continues once it is "
        "ready",
    ),
    "issuer new": (waiting({"status": {}}), "waiting for Issuer ca, which has not been processed yet"),
    "a proof that is not seen": (
        ordered("Waiting for HTTP-01 challenge propagation: no.", type="HTTP-01", presented=True),
        "order web-1-2 is waiting: Waiting for HTTP-01 challenge propagation: no; point port 80 of that name "
        "at the --http01-listen address or at the solver's web root; the self-check is repeated "
        "automatically",
    ),
    "a proof that the CA looks at": (
        ordered("Waiting for the CA's verdict.", type="DNS-01", presented=True, processing=True),
        "order web-1-2 is waiting: Waiting for the CA's verdict",
    ),
    "an error of the CA, whatever its text": (
        ordered("Waiting for DNS-01 challenge propagation", type="DNS-01", presented=True, problem="x"),
        "order web-1-2 is waiting: Waiting for DNS-01 challenge propagation",
    ),
    "a proof that waits for the breaker of its issuer": (
        ordered("not asking the CA", type="DNS-01", presented=True, breaker='{"state":"Open"}'),
        "order web-1-2 is waiting: not asking the CA",
    ),
    "a proof that cannot be shown": (
        ordered("a.test: no Secret k", type="DNS-01", presented=False),
        "order web-1-2 is waiting: a.test: no Secret k; fix that; it is retried automatically",
    ),
    "ordered": (
        ordered("", type="DNS-01", presented=True),
        "order web-1-2 is in progress at the ACME server",
    ),
    "failed": (
        RelatedObjects(certificate(NOT_READY, {**FAILED, "message": "CA said no."}, **TWICE), GOOD_ISSUER),
        "issuance failed (2 attempts, the last 1 hour ago): CA said no; the next attempt is at "
        "2026-01-01 01:00 UTC (in 1 hour); correct the cause, then `certwright renew web -n shop` retries "
        "immediately",
    ),
    "failed, as our controllers tell it": (
        RelatedObjects(
            recorded(
                RetryRecord(message="CA said no.", next_attempt=NOW + timedelta(hours=1)),
                {**FAILED, "message": "for people"},
                **TWICE,
            ),
            GOOD_ISSUER,
        ),
        "issuance failed (2 attempts, the last 1 hour ago): CA said no; the next attempt is at "
        "2026-01-01 01:00 UTC (in 1 hour); correct the cause, then `certwright renew web -n shop` retries "
        "immediately",
    ),
    "failed, and told when the next attempt follows": (
        RelatedObjects(
            recorded(
                RetryRecord(
                    message="CA said no", next_attempt=NOW + timedelta(days=1), advice="ask for less"
                ),
                {**FAILED, "reason": "RateLimited", "message": "for people"},
                **TWICE,
            ),
            GOOD_ISSUER,
        ),
        "issuance failed (2 attempts, the last 1 hour ago): CA said no; "
        "the next attempt is at 2026-01-02 00:00 UTC (in 1 day); ask for less",
    ),
    "spares its issuer": (
        RelatedObjects(
            recorded(
                RetryRecord(advice="it is out", next_attempt=NOW + timedelta(hours=1), waits_for_issuer=True),
                {**FAILED, "reason": "IssuerUnavailable", "message": "for people"},
            ),
            GOOD_ISSUER,
        ),
        "waiting for Issuer ca: it is out; the next attempt is at 2026-01-01 01:00 UTC (in 1 hour)",
    ),
    "not ready": (
        RelatedObjects(certificate(NOT_READY), GOOD_ISSUER),
        "not ready: Secret does not exist (DoesNotExist)",
    ),
}


@pytest.mark.parametrize(("objects", "text"), STORIES.values(), ids=STORIES)
def test_the_story_names_the_cause_and_what_to_do(objects: RelatedObjects, text: str) -> None:
    assert str(diagnose(objects, NOW)) == text


def test_a_ready_certificate_that_is_renewed_is_still_ready() -> None:
    obj = ready()
    obj["status"]["conditions"].append(ISSUING)
    story = diagnose(RelatedObjects(obj, GOOD_ISSUER), NOW)
    assert story.ready
    assert "being re-issued: the private key is being created" in story.cause


def test_a_failed_renewal_is_told_of_a_certificate_that_still_holds() -> None:
    obj = ready(lastFailureTime="2025-12-31T23:59:00Z")
    story = diagnose(RelatedObjects(obj, GOOD_ISSUER), NOW)
    assert story.ready
    assert "but issuance failed (1 attempt" in story.cause


def test_a_certificate_that_is_overdue_says_so() -> None:
    story = diagnose(RelatedObjects(ready(), GOOD_ISSUER), datetime(2026, 3, 3, tzinfo=UTC))
    assert "and due for renewal since 2026-03-02 00:00 UTC" in story.cause


def test_an_issuer_of_another_program_is_not_said_to_be_missing() -> None:
    obj = certificate(NOT_READY, ISSUING)
    obj["spec"]["issuerRef"] = {"name": "x", "kind": "PCA", "group": "pca.example"}
    assert "does not exist in" not in str(diagnose(RelatedObjects(obj, None, request(APPROVED)), NOW))


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
    objects = RelatedObjects(
        an_object("Certificate", "web", spec={"issuerRef": reference, "secretName": "web"}),
        request=an_object("CertificateRequest", "web-1", spec={"issuerRef": reference}),
        order=an_object("Order", "web-1-2", status={"state": "pending", "url": "https://ca/order/1"}),
        challenges=challenges,
    )
    lines = "\n".join(report(objects, [], datetime(2026, 1, 1, tzinfo=UTC)))
    assert "web-1-2" in lines
    assert "pending" in lines
    assert "https://ca/order/1" in lines
    assert f"*.a.example.org by DNS-01: shown ({reason})" in lines
    assert "b.example.org by HTTP-01: valid (Successfully authorized domain)" in lines


FULL = b"internal server error: the disk that holds store.sqlite is full\n"
FORBIDDEN = b'{"kind":"Status","reason":"Forbidden","code":403,"message":"no"}'
WITHHELD = b"[-]etcd-readiness failed: reason withheld\nreadyz check failed\n"


class Server:
    """Answers by path."""

    def __init__(self, answers: Mapping[str, tuple[int, bytes]]) -> None:
        self._answers = answers

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        status, text = self._answers[target]
        return Response(status, {}, text)

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("etcd_check", "all_", "expected"),
    [
        pytest.param((200, b"ok"), (200, b"ok"), "", id="ready"),
        pytest.param(
            (500, FULL), (500, WITHHELD), "the disk that holds store.sqlite is full", id="full disk"
        ),
        pytest.param((403, FORBIDDEN), (500, WITHHELD), "it is not ready", id="the reason is withheld"),
        pytest.param((403, FORBIDDEN), (200, b"ok"), "", id="a reader, ready"),
        pytest.param((404, b"404 page not found"), (403, FORBIDDEN), "", id="unknown"),
    ],
)
def test_why_the_server_accepts_no_writes(
    etcd_check: tuple[int, bytes], all_: tuple[int, bytes], expected: str
) -> None:
    server = Server({"/readyz/etcd-readiness": etcd_check, "/readyz": all_})
    assert asyncio.run(store_problem(Client(server, user_agent="test"))) == expected


@pytest.mark.parametrize(("hidden", "section"), [("request", "Request"), ("order", "Order")])
def test_what_may_not_be_read_says_so(hidden: str, section: str) -> None:
    lines = report(waiting(hidden=(hidden,)), [], NOW)
    assert "you may not read it" in lines[lines.index(section) + 1]
