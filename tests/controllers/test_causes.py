"""How a cause travels through the objects."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.kube.api.meta import Condition, ObjectMeta
from certwright.resources import causes
from certwright.resources.causes import Cause, Why
from certwright.resources.names import NOT_BEFORE
from certwright.resources.references import IssuerReference
from certwright.resources.request import (
    CertificateRequest,
    CertificateRequestSpec,
    CertificateRequestStatus,
)
from support.world import START

OURS = IssuerReference(name="ca")
THING = IssuerReference(name="thing", kind="Thing", group="example.com")


def failed(
    *conditions: Condition | None,
    not_before: str = "",
    issuer: IssuerReference = OURS,
) -> CertificateRequest:
    present = tuple(condition for condition in conditions if condition is not None)
    annotations = {NOT_BEFORE: not_before} if not_before else {}
    return CertificateRequest(
        metadata=ObjectMeta(name="web-1", annotations=annotations),
        spec=CertificateRequestSpec(issuer_ref=issuer, request=b""),
        status=CertificateRequestStatus(conditions=present),
    )


@pytest.mark.parametrize(
    "why",
    [
        Why(Cause.INVALID_REQUEST, "change spec.dnsNames", None, 3),
        Why(Cause.RATE_LIMITED, "", START + timedelta(days=1), 1),
        Why(Cause.UNAVAILABLE, "look at the server", START, 2),
        Why(Cause.UNKNOWN, "", START),
        Why(),
    ],
)
def test_a_request_keeps_why_it_failed(why: Why) -> None:
    named = why.not_before.isoformat() if why.not_before is not None else ""
    assert causes.of_request(failed(causes.condition_of(why), not_before=named)) == why


def test_a_denial_and_an_invalid_request_speak_for_themselves() -> None:
    denied = Condition(type="Denied", status="True", reason="policy.example")
    assert causes.of_request(failed(denied)).cause is Cause.DENIED
    invalid = Condition(type="InvalidRequest", status="True", reason="Whatever")
    assert causes.of_request(failed(invalid)).cause is Cause.INVALID_REQUEST
    condition = causes.condition_of(Why(Cause.RATE_LIMITED))
    assert causes.of_request(failed(denied, invalid, condition)).cause is Cause.DENIED


def test_a_word_that_nobody_knows_is_an_unknown_cause() -> None:
    strange = Condition(type="FailureCause", status="True", reason="FullMoon", message="wait")
    assert causes.of_request(failed(strange)) == Why(Cause.UNKNOWN, "wait")


@pytest.mark.parametrize("text", ["tomorrow", "2026-02-31T00:00:00Z", "2026-01-01T00:00:00"])
def test_a_time_that_cannot_be_read_is_none(text: str) -> None:
    assert causes.of_request(failed(not_before=text)).not_before is None


@pytest.mark.parametrize(("issuer", "is_read"), [(THING, True), (OURS, False)])
def test_a_time_in_the_message_is_read_for_an_issuer_of_another_group_only(
    issuer: IssuerReference, is_read: bool
) -> None:
    text = "ask for less; not before 2026-01-01T00:00:00Z"
    condition = Condition(type="FailureCause", status="True", reason="RateLimited", message=text)
    why = causes.of_request(failed(condition, issuer=issuer))
    assert (why.advice, why.not_before) == (("ask for less", START) if is_read else (text, None))


def test_the_annotation_goes_before_the_message() -> None:
    text = "no; not before 2026-01-01T00:00:00Z"
    condition = Condition(type="FailureCause", status="True", reason="RateLimited", message=text)
    later = START + timedelta(hours=1)
    assert causes.of_request(failed(condition, not_before=later.isoformat(), issuer=THING)) == Why(
        Cause.RATE_LIMITED, "no", later
    )
