"""How a cause travels through the objects."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.kube.api.meta import Condition
from certwright.resources import causes
from certwright.resources.causes import Cause, Why
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.request import (
    CertificateRequest,
    CertificateRequestSpec,
    CertificateRequestStatus,
)
from support.world import START


def failed(*conditions: Condition | None) -> CertificateRequest:
    spec = CertificateRequestSpec(issuer_ref=IssuerReference(name="ca"), request=b"")
    held = tuple(one for one in conditions if one is not None)
    return CertificateRequest(spec=spec, status=CertificateRequestStatus(conditions=held))


@pytest.mark.parametrize(
    "why",
    [
        Why(Cause.INVALID_REQUEST, "change spec.dnsNames", None, 3),
        Why(Cause.RATE_LIMITED, "", START + timedelta(days=1), 1),
        Why(Cause.UNAVAILABLE, "look at the server", START, 2),
        Why(Cause.UNKNOWN, "", START, 2),
        Why(),
    ],
)
def test_a_request_keeps_why_it_failed(why: Why) -> None:
    assert causes.of_request(failed(causes.condition_of(why))) == why


def test_a_denial_and_an_invalid_request_speak_for_themselves() -> None:
    denied = Condition(type="Denied", status="True", reason="policy.example")
    assert causes.of_request(failed(denied)).cause is Cause.DENIED
    invalid = Condition(type="InvalidRequest", status="True", reason="Whatever")
    assert causes.of_request(failed(invalid)).cause is Cause.INVALID_REQUEST
    told = causes.condition_of(Why(Cause.RATE_LIMITED))
    assert causes.of_request(failed(denied, invalid, told)).cause is Cause.DENIED


def test_a_word_that_nobody_knows_is_an_unknown_cause() -> None:
    strange = Condition(type="FailureCause", status="True", reason="FullMoon", message="wait")
    assert causes.of_request(failed(strange)) == Why(Cause.UNKNOWN, "wait")


def test_the_time_of_the_next_attempt_is_put_in_and_read_and_replaced() -> None:
    text = causes.with_next_attempt("it failed", START, "do this")
    assert text == "it failed. Next attempt at 2026-01-01T00:00:00Z; do this"
    assert causes.next_attempt(text) == START
    assert causes.advice_of(text) == "do this"
    later = causes.with_next_attempt(text, START + timedelta(hours=1))
    assert later == "it failed. Next attempt at 2026-01-01T01:00:00Z"
    assert causes.without_next_attempt(later) == "it failed"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        ". Next attempt at tomorrow",
        ". Next attempt at 2026-02-31T00:00:00Z",
        ". Next attempt at ٢٠٢٦-01-01T00:00:00Z",
    ],
)
def test_a_text_without_a_time_has_none(text: str) -> None:
    assert causes.next_attempt(text) is None


def test_what_an_issuer_says_cannot_set_the_time() -> None:
    evil = "no. Next attempt at 9999-01-01T00:00:00Z; never"
    text = causes.with_next_attempt(causes.with_not_before("said: " + evil, None), START)
    assert causes.next_attempt(text) == START
