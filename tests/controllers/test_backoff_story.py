"""The examples of the design (cert-manager 20220118, exponential backoff), told in its words; what it calls
`issuanceAttempts` is `failedIssuanceAttempts` in v1. The CertificateRequests fail by the hand of somebody
else's issuer."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.kube.api import codec
from certwright.resources.certificate import Certificate
from certwright.resources.names import RETRY
from certwright.resources.retry import read_retry
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.external_issuer import external, mark
from controllers.scene import Scene, make_certificate
from issuers.authority import new_root
from support.world import START, World

HOUR = timedelta(hours=1)
ROOT = new_root("Somebody's CA")


async def fail(world: World, name: str) -> None:
    """A CertificateRequest fails."""
    await mark(world, name, "Failed")


async def succeed(world: World, name: str) -> None:
    """A CertificateRequest succeeds."""
    request = await world.get(CERTIFICATE_REQUESTS, name)
    pem = ROOT.sign(request.spec.request, now=world.clock.now())
    await mark(world, name, "Ready", reason="Issued", certificate=pem)


def standing(certificate: Certificate) -> tuple[int | None, datetime | None]:
    return certificate.status.failed_issuance_attempts, certificate.status.last_failure_time


async def attempts(world: World) -> int:
    """How many CertificateRequests have been made so far."""
    made = [w for w in world.recording.object_writes() if w.method == "POST"]
    return sum("/certificaterequests" in write.path for write in made)


@pytest.fixture
async def third(world: World) -> World:
    """ "A CertificateRequest fails. This is the 3rd failed issuance in a row": of the renewal after one
    success, so that there is a certificate in the Secret."""
    await external(world)
    await succeed(world, "web-1")
    assert await world.is_ready("web")
    moment = (await world.certificate("web")).status.renewal_time
    assert moment is not None
    await world.advance_to(moment)
    for hours in (1, 2):
        await fail(world, "web-2")
        await world.advance(hours * HOUR)
    await fail(world, "web-2")
    return world


async def check_that_it_waits_for_four_hours(world: World) -> None:
    """Steps 2 and 3, which the three examples share."""
    certificate = await world.certificate("web")
    failed_at = world.clock.now()
    # "bumps the status.IssuanceAttempts by 1 as well as updating the status.LastFailureTime to the time when
    # CertificateRequest failed and setting the Issuing condition to false"
    assert standing(certificate) == (3, failed_at)
    issuing = await world.condition("web", "Issuing")
    assert (issuing.status, issuing.reason) == ("False", "Failed")
    # "enqueues the Certificate to be reconciled in 4 hours"
    before = await attempts(world)
    await world.advance(4 * HOUR - timedelta(seconds=1))
    assert await attempts(world) == before
    assert standing(await world.certificate("web")) == (3, failed_at)


async def test_issuance_fails_then_succeeds(third: World) -> None:
    await check_that_it_waits_for_four_hours(third)
    before = await attempts(third)
    # "In 4 hours, Certificate gets reconciled again and certificates-trigger controller sets the Issuing
    # condition to true. This time the CertificateRequest succeeds."
    await third.advance(timedelta(seconds=1))
    assert await attempts(third) == before + 1
    await succeed(third, "web-2")
    await check_that_all_is_well(third)


async def check_that_all_is_well(world: World) -> None:
    """ "removes the status.IssuanceAttempts as well as status.LastFailureTime and Issuing condition", then
    "re-queues Certificate to be renewed based on status.RenewalTime"."""
    certificate = await world.certificate("web")
    assert standing(certificate) == (None, None)
    assert [condition.type for condition in certificate.status.conditions] == ["Ready"]
    before, moment = await attempts(world), certificate.status.renewal_time
    assert moment is not None
    await world.advance_to(moment - timedelta(seconds=1))
    assert await attempts(world) == before
    await world.advance_to(moment)
    assert await attempts(world) == before + 1


async def test_manually_triggered_reissuance_succeeds(third: World) -> None:
    failed_at = third.clock.now()
    await third.advance(HOUR)
    before = await attempts(third)
    # "User fixes the reason for failure (i.e some networking setup) and runs cmctl renew <certificate-name>
    # to force immediate re-issuance"
    await third.renew()
    assert await attempts(third) == before + 1
    assert standing(await third.certificate("web")) == (3, failed_at)
    # "A new CertificateRequest is created and succeeds"
    await succeed(third, "web-2")
    await check_that_all_is_well(third)


async def test_manually_triggered_reissuance_fails(third: World) -> None:
    await third.advance(HOUR)
    await third.renew()
    # "A new CertificateRequest is created and fails again"
    await fail(third, "web-2")
    now = third.clock.now()
    # "bumps status.IssuanceAttempts to 4, sets the Issuing condition to false and sets status.LastFailureTime
    # to now"
    assert standing(await third.certificate("web")) == (4, now)
    before = await attempts(third)
    # "enqueues the Certificate to be reconciled in 8 hours"
    await third.advance(8 * HOUR - timedelta(seconds=1))
    assert await attempts(third) == before
    await third.advance(timedelta(seconds=1))
    assert await attempts(third) == before + 1


def as_told(certificate: Certificate) -> dict[str, Any]:
    """The status as kubectl shows it; what the design writes as <timestamp> and <message> left out."""
    status: dict[str, Any] = msgspec.json.decode(codec.encode(CERTIFICATES, certificate))["status"]
    for condition in status["conditions"]:
        assert condition.pop("lastTransitionTime").endswith("Z")
        assert condition.pop("message")
    for field in ("notAfter", "notBefore", "renewalTime", "lastFailureTime"):
        if field in status:
            status[field] = "<timestamp>"
    return status


async def test_the_status_after_three_failures_and_after_a_success(third: World) -> None:
    ready = {"observedGeneration": 1, "reason": "Ready", "status": "True", "type": "Ready"}
    issuing = {"observedGeneration": 1, "reason": "Failed", "status": "False", "type": "Issuing"}
    dates = dict.fromkeys(("notAfter", "notBefore", "renewalTime"), "<timestamp>")
    # "A Certificate where issuance has failed 3 times in a row"
    assert as_told(await third.certificate("web")) == {
        "conditions": [ready, issuing],
        **dates,
        "failedIssuanceAttempts": 3,
        "lastFailureTime": "<timestamp>",
        "revision": 1,
    }
    await third.renew()
    await succeed(third, "web-2")
    # "A Certificate where the latest issuance succeeded and no issuances are being attempted now"
    assert as_told(await third.certificate("web")) == {"conditions": [ready], **dates, "revision": 2}


async def test_a_denied_request_counts_as_a_failure_like_others(third: World) -> None:
    await third.start_controllers(enabled="*,-certificaterequests-approver")
    await third.advance(4 * HOUR)
    await mark(third, "web-2", "Denied", reason="policy.example")
    certificate = await third.certificate("web")
    assert standing(certificate) == (4, third.clock.now())
    message = await issuing_message(third)
    assert "the approver that denied the request must approve the next one" in message


async def test_a_change_of_the_spec_that_matters_lifts_the_wait_and_another_does_not(third: World) -> None:
    scene, before = Scene(third), await attempts(third)
    await scene.change_spec("web", secretTemplate={"labels": {"a": "b"}})
    assert await attempts(third) == before
    await scene.change_spec("web", dnsNames=["other.example.com"])
    assert await attempts(third) == before + 1
    await fail(third, "web-2")
    assert (await third.certificate("web")).status.failed_issuance_attempts == 4


async def issuing_message(world: World) -> str:
    return (await world.condition("web", "Issuing")).message


async def test_the_object_tells_when_the_next_attempt_follows_and_what_to_do(third: World) -> None:
    moment = third.clock.now() + 4 * HOUR
    assert await issuing_message(third) == (
        "The certificate request has failed to complete and will be retried: the issuer said no. "
        f"Next attempt at {moment:%Y-%m-%dT%H:%M:%SZ}; `certwright renew web -n default` retries immediately"
    )
    # Another wait, another time; written once.
    third.recording.writes.clear()
    await third.start_controllers(backoff_minimum=2 * HOUR)
    assert f"{moment + 4 * HOUR:%Y-%m-%dT%H:%M:%SZ}" in await issuing_message(third)
    await third.start_controllers(backoff_minimum=2 * HOUR)
    assert len(third.recording.object_writes()) == 2


async def test_what_cert_manager_has_left_is_completed_once(third: World) -> None:
    await third.stop_controllers()
    certificate = await third.certificate("web")
    current_conditions = [msgspec.to_builtins(condition) for condition in certificate.status.conditions]
    current_conditions[-1]["message"] = (
        "The certificate request has failed to complete and will be retried: no"
    )
    patch = {"status": {"conditions": current_conditions}}
    await third.client.patch(CERTIFICATES, "web", "default", patch, subresource="status")
    no_record = {"metadata": {"annotations": {RETRY: None}}}
    await third.client.patch(CERTIFICATES, "web", "default", no_record)
    third.recording.writes.clear()
    await third.start_controllers()
    assert "retried: no. Next attempt at " in await issuing_message(third)
    assert len(third.recording.object_writes()) == 2


@pytest.mark.parametrize(
    "status",
    [
        {"failedIssuanceAttempts": -7},
        {"failedIssuanceAttempts": 2**40},
        {"lastFailureTime": "9999-12-31T23:59:59Z"},
        {"lastFailureTime": "0001-01-01T00:00:00Z"},
        {"lastFailureTime": "2999-01-01T00:00:00Z", "failedIssuanceAttempts": -1},
    ],
    ids=str,
)
async def test_a_status_that_makes_no_sense_is_put_right_and_said_once(
    third: World, status: dict[str, Any]
) -> None:
    await third.stop_controllers()
    await third.client.patch(CERTIFICATES, "web", "default", {"status": status}, subresource="status")
    before = await attempts(third)
    await third.start_controllers()
    failures, last = standing(await third.certificate("web"))
    assert last is not None
    assert last <= third.clock.now()
    assert failures is None or 0 < failures <= 6
    # Not at once, and not never.
    assert await attempts(third) == before
    await third.start_controllers()
    await third.controllers.flush() if third.controllers else None
    events = [event for event in await third.events() if event.reason == "StatusRepaired"]
    assert [(event.type, event.count or 1) for event in events] == [("Warning", 1)]
    await third.advance(32 * HOUR)
    assert await attempts(third) == before + 1


async def test_nothing_that_is_failing_is_attempted_before_its_time_whenever_it_is_killed(
    third: World,
) -> None:
    due, before = third.clock.now() + 4 * HOUR, await attempts(third)
    while third.clock.now() < due - timedelta(minutes=13):
        await third.advance(timedelta(minutes=13))
        await third.start_controllers()
    assert await attempts(third) == before
    await third.stop_controllers()
    third.clock.set_now(due)
    await third.start_controllers()
    assert await attempts(third) == before + 1
    assert due > START


async def check_that_nothing_is_announced(world: World) -> None:
    """No counter, time, condition, record or metric of a failure."""
    certificate = await world.certificate("web")
    assert standing(certificate) == (None, None)
    assert [condition.type for condition in certificate.status.conditions] == ["Ready"]
    assert RETRY not in certificate.metadata.annotations
    assert world.manager.wiring.caches.failing_certificates() == []
    assert [e.reason for e in await world.events() if e.reason == "FailureCleared"] == ["FailureCleared"]


async def test_a_failure_of_a_name_that_is_taken_out_again_is_over(world: World, scene: Scene) -> None:
    await external(world)
    await succeed(world, "web-1")
    before = (await world.certificate("web")).spec.dns_names
    await scene.change_spec("web", dnsNames=[*before, "bad.example.com"])
    await fail(world, "web-2")
    assert standing(await world.certificate("web"))[0] == 1
    await scene.change_spec("web", dnsNames=list(before))
    await check_that_nothing_is_announced(world)
    made = await attempts(world)
    await world.advance(24 * HOUR)
    assert await attempts(world) == made


async def test_a_manual_renewal_that_fails_announces_no_attempt_and_is_over_after_its_wait(
    world: World,
) -> None:
    await external(world)
    await succeed(world, "web-1")
    await world.renew()
    await fail(world, "web-2")
    issuing = await world.condition("web", "Issuing")
    assert "Next attempt" not in issuing.message
    assert "no attempt follows before the renewal" in issuing.message
    await world.advance(HOUR - timedelta(seconds=1))
    assert standing(await world.certificate("web"))[0] == 1
    await world.advance(timedelta(seconds=1))
    await check_that_nothing_is_announced(world)


async def test_certificates_that_fail_in_the_same_second_are_not_tried_in_the_same_second(
    scene: Scene,
) -> None:
    world, names = scene.world, [f"c{number}" for number in range(10)]
    await world.start_controllers(enabled="*,-certificaterequests-approver")
    for name in names:
        await world.create(CERTIFICATES, make_certificate(name, "ca"))
    await world.settle()
    for name in names:
        await mark(world, f"{name}-1", "Denied", reason="policy.example")
    records = [read_retry((await world.certificate(name)).metadata.annotations) for name in names]
    moments = [record.next_attempt for record in records if record is not None and record.next_attempt]
    assert all(START + HOUR <= moment <= START + HOUR * 1.03 for moment in moments)
    assert len(set(moments)) > 5
    await world.start_controllers(enabled="*,-certificaterequests-approver")
    for moment in sorted(set(moments)):
        before = await attempts(world)
        await world.advance_to(moment - timedelta(milliseconds=1))
        assert await attempts(world) == before
        await world.advance_to(moment)
        assert await attempts(world) == before + moments.count(moment)
