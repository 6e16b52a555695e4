"""What the trigger tells of an attempt that is held for its issuer's sake."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from certwright.controllers.backoff import Limits
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.trigger import Trigger
from certwright.controllers.circuit_breaker import Hold
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.resources.certificate import Certificate
from controllers.test_rules import certificate, snapshot
from support.world import START

HOUR = timedelta(hours=1)


@dataclass
class Closed:
    """Lets nobody through before that moment."""

    until: datetime
    sentence: str = "it is out"

    def __call__(self, certificate: Certificate, now: datetime) -> Hold | None:
        del certificate
        return Hold(self.until, self.sentence, is_exact=True) if now < self.until else None


def decide(gate: Closed, current: Certificate, *, now: datetime = START, broken: bool = True) -> Certificate:
    """The Certificate after the step; with `broken` it has no Secret."""
    around = snapshot(certificate=current, now=now)
    if broken:
        around = snapshot(certificate=current, now=now, secret=None)
    draft = Draft(current)
    Trigger(Limits(), gate).decide(around, draft)
    return draft.certificate


def issuing(current: Certificate) -> Condition | None:
    return conditions.find(current.status.conditions, "Issuing")


def test_a_held_certificate_says_why_and_until_when() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    condition = issuing(triggered)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "WaitingForIssuer")
    assert condition.message == "Waiting for the issuer. Next attempt at 2026-01-01T01:00:00Z; it is out"


def test_a_moment_that_moves_away_is_not_written_each_time() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    gate.until += HOUR
    assert decide(gate, triggered) is triggered
    # Nearer, other words, or past: that is worth a write.
    for change in (Closed(START + HOUR / 2), Closed(START + HOUR, "it is overloaded")):
        assert decide(change, triggered) is not triggered
    assert decide(gate, triggered, now=START + HOUR) is not triggered


def test_once_let_through_it_is_issued() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    condition = issuing(decide(gate, triggered, now=START + HOUR))
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "DoesNotExist")


def test_what_need_not_be_issued_any_more_waits_for_nothing() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    assert issuing(decide(gate, triggered, broken=False)) is None
