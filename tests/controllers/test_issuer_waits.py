"""The wait after a failure as the issuer demands it (Retry-After, annotation), and how it is reported."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates import retry_time
from certwright.controllers.issuers import view_of
from certwright.controllers.requests import certificate_requests
from certwright.controllers.requests.issuer_lister import IssuerState
from certwright.controllers.requests.signing import Signing
from certwright.issuers.contract import Checked, Failed, IssuerView, Outcome, SigningRequest, Tools
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition, ObjectMeta
from certwright.kube.util.executor import Inline
from certwright.resources import causes
from certwright.resources.causes import Cause, Why
from certwright.resources.certificate import CertificateStatus
from certwright.resources.issuer import Issuer, IssuerSpec
from certwright.resources.request import CertificateRequestStatus
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.external_issuer import mark
from controllers.scene import SELF_SIGNED, Scene, make_issuer
from controllers.test_metrics import scrape
from controllers.test_request_flow import VAULT, make_request, no_secret
from controllers.test_rules import certificate, request, snapshot
from support.world import START, World

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(("generation", "hours"), [(4, 32), (5, 2)])
def test_an_issuer_that_has_been_changed_is_asked_at_the_designs_time(generation: int, hours: int) -> None:
    """A request that it called impossible may be possible now."""
    condition = causes.condition_of(Why(Cause.INVALID_REQUEST, "change it", None, 4))
    assert condition is not None
    refused = msgspec.structs.replace(request(1), status=CertificateRequestStatus(conditions=(condition,)))
    status = CertificateStatus(last_failure_time=START, failed_issuance_attempts=2)
    failed = msgspec.structs.replace(certificate(), status=status)
    issuer = Issuer(metadata=ObjectMeta(name="ca", generation=generation), spec=SELF_SIGNED)
    around = snapshot(certificate=failed, requests=(refused,), issuer=issuer)
    assert retry_time.retry_at(around, BackoffLimits()) == START + hours * HOUR


@pytest.fixture
async def failing(scene: Scene) -> World:
    """A Certificate of a CA of ours whose first request has failed."""
    await scene.world.start_controllers(enabled="*,-certificaterequests-approver")
    await scene.issue()
    await mark(scene.world, "web-1", "Failed")
    return scene.world


async def annotate(world: World, text: str | None) -> None:
    body = {"metadata": {"annotations": {"certwright.io/minimum-backoff": text}}}
    await world.patch(ISSUERS, "ca", body)


async def test_an_issuers_annotation_sets_its_shortest_wait(failing: World) -> None:
    assert "Next attempt at 2026-01-01T01:00:00Z" in (await failing.condition("web", "Issuing")).message
    await annotate(failing, "3h")
    assert "Next attempt at 2026-01-01T03:00:00Z" in (await failing.condition("web", "Issuing")).message
    await failing.advance(3 * HOUR - timedelta(seconds=1))
    assert (await failing.certificate("web")).status.failed_issuance_attempts == 1
    assert (await failing.condition("web", "Issuing")).status == "False"
    await failing.advance(timedelta(seconds=1))
    assert (await failing.condition("web", "Issuing")).status == "True"


@pytest.mark.parametrize("text", ["soon", "-1h", "0s", "1ms", "169h", ""])
async def test_an_annotation_that_makes_no_sense_is_not_obeyed_and_the_issuer_is_told_once(
    failing: World, text: str
) -> None:
    await annotate(failing, text)
    await failing.client.patch(ISSUERS, "ca", "default", {"metadata": {"labels": {"a": "b"}}})
    await failing.settle()
    assert "Next attempt at 2026-01-01T01:00:00Z" in (await failing.condition("web", "Issuing")).message
    events = [event for event in await failing.events() if event.reason == "BadAnnotation"]
    assert [(event.type, event.involved_object.kind) for event in events] == [("Warning", "Issuer")]
    assert events[0].message.startswith(f'the annotation certwright.io/minimum-backoff is "{text}"')


async def test_the_metrics_tell_who_waits_why_and_until_when(failing: World) -> None:
    await failing.create(ISSUERS, make_issuer("idle"))
    about = {
        "name": "web",
        "namespace": "default",
        "cause": "Failed",
        "issuer_name": "ca",
        "issuer_kind": "",
        "issuer_group": "",
    }
    samples = scrape(failing)
    assert samples["certwright_certificate_failed_attempts"] == [(about, 1)]
    due = (START + HOUR).timestamp()
    assert samples["certwright_certificate_next_attempt_timestamp_seconds"] == [(about, due)]


async def test_a_denial_is_a_cause_of_its_own_in_the_metrics(scene: Scene) -> None:
    world = scene.world
    await world.start_controllers(enabled="*,-certificaterequests-approver")
    await scene.issue()
    await mark(world, "web-1", "Denied", reason="policy.example")
    ((about, value),) = scrape(world)["certwright_certificate_failed_attempts"]
    assert (about["cause"], value) == ("Denied", 1)
    await world.delete(CERTIFICATES, "web")
    assert "certwright_certificate_failed_attempts" not in scrape(world)


class Overloaded:
    """An issuer that is overloaded."""

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
        del issuer, tools
        return Checked(ready=True, reason="Ready", message="")

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        del issuer, signing, tools
        return Failed("Busy", "503", cause=Cause.UNAVAILABLE, advice="try later")


async def test_what_an_issuer_says_is_written_into_the_request() -> None:
    request = certificate_requests.approve(make_request("outside"), START)
    made = make_issuer("outside", IssuerSpec(vault=VAULT))
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, generation=4))
    state = IssuerState(view_of("Issuer", made), True, "")
    signing = Signing(lambda _: state, kinds=("vault",), now=lambda: START, issuers={"vault": Overloaded()})
    tools = Tools(get_secret=no_secret, executor=Inline(), now=lambda: START)
    answer = await signing.answer(request, tools, SigningRequest(request, get_secret=no_secret))
    condition = conditions.find(answer.request.status.conditions, "FailureCause")
    assert condition == Condition(
        type="FailureCause",
        status="True",
        reason="IssuerUnavailable",
        message="try later",
        last_transition_time=START,
        observed_generation=4,
    )
    assert causes.of_request(answer.request) == Why(Cause.UNAVAILABLE, "try later", None, 4)
