"""What the trigger tells of an attempt that is held for its issuer's sake."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.trigger import Trigger
from certwright.controllers.retry.backoff import Hold, Limits
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
    turns: int = 0
    waits: int = 0
    attempts: int = 0

    def may_begin(self, certificate: Certificate, now: datetime) -> Hold | None:
        del certificate
        return Hold(self.until, self.sentence) if now < self.until else None

    def check_at(self, certificate: Certificate) -> datetime | None:
        del certificate
        return self.until

    def begin(self, certificate: Certificate, now: datetime) -> None:
        del certificate, now
        self.turns += 1

    def wait(self, certificate: Certificate, hold: Hold, now: datetime) -> None:
        del certificate, hold, now
        self.waits += 1

    def begun(self, certificate: Certificate, now: datetime) -> None:
        del certificate, now
        self.attempts += 1


def decide(gate: Closed, current: Certificate, *, now: datetime = START, broken: bool = True) -> Certificate:
    """The Certificate after the step; with `broken` it has no Secret."""
    around = snapshot(certificate=current, now=now)
    if broken:
        around = snapshot(certificate=current, now=now, secret=None)
    draft = Draft(current)
    Trigger(Limits(), gate).decide(around, draft)
    for note in (*draft.claims, *draft.notes):
        note.apply(*note.args)
    return draft.certificate


def issuing(current: Certificate) -> Condition | None:
    return conditions.find(current.status.conditions, "Issuing")


def test_a_held_certificate_says_why_and_wakes_then() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    condition = issuing(triggered)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "WaitingForIssuer")
    assert condition.message == "Waiting for the issuer. Next attempt at 2026-01-01T01:00:00Z; it is out"
    assert Trigger(Limits(), gate).wake_at(snapshot(certificate=triggered, secret=None)) == START + HOUR


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
    assert (gate.turns, gate.waits, gate.attempts) == (0, 1, 0)
    condition = issuing(decide(gate, triggered, now=START + HOUR))
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "DoesNotExist")
    assert (gate.turns, gate.waits, gate.attempts) == (1, 1, 1)


def test_deciding_neither_waits_nor_takes_a_turn() -> None:
    for now in (START, START + HOUR):
        gate, triggered = Closed(START + HOUR), certificate()
        drafts = [Draft(triggered), Draft(triggered)]
        for draft in drafts:
            Trigger(Limits(), gate).decide(snapshot(certificate=triggered, now=now, secret=None), draft)
        assert drafts[0] == drafts[1]
        assert len(drafts[0].claims) == 1
        assert (gate.turns, gate.waits, gate.attempts) == (0, 0, 0)


def test_what_need_not_be_issued_any_more_waits_for_nothing() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    assert issuing(decide(gate, triggered, broken=False)) is None
