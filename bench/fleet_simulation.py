"""A fleet of certificates under one policy, from event to event on a clock of its own.

When an attempt is made is decided by the functions that the controllers use: `backoff.next_attempt`,
`Circuit`, `pki.renewal`. Only the world around them is simulated: ACME CAs, names, approvers, restarts.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from bench.fleet_scenario import Answer, Authority, Scenario, Times, span
from certwright.controllers.retry.backoff import Limits, Standing, next_attempt
from certwright.controllers.retry.breaker import Circuit, Released
from certwright.kube.util.durations import doubled
from certwright.pki import renewal
from certwright.resources.causes import Cause

START = datetime(2026, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)
_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=1), timedelta(minutes=10)
"""Pauses of an Order whose CA does not answer, as in `controllers/acme/order_state.py`."""
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How failures are waited for. `sees` says whether it looks at the cause and at the certificate's end,
    spreads renewals, and has a circuit for each issuer."""

    name: str
    limits: Limits
    sees: bool


FIXED = Policy(name="fixed 1 h", limits=Limits(minimum=_HOUR, maximum=_HOUR), sees=False)
DESIGN = Policy(name="the design's", limits=Limits(), sees=False)
OURS = Policy(name="ours", limits=Limits(), sees=True)
POLICIES = (FIXED, DESIGN, OURS)


@dataclass(slots=True)
class Certificate:
    """What the controllers know of one, and when its names are broken."""

    number: int
    issuer: int
    lives: timedelta
    not_after: datetime
    due: datetime
    renewals: int = 0
    failures: int = 0
    last_failure: datetime | None = None
    cause: Cause = Cause.UNKNOWN
    not_before: datetime | None = None
    is_asking: bool = False
    is_held: bool = False
    pauses: int = 0
    turn: int = 0
    broken: Times | None = None


@dataclass(slots=True)
class Outcome:
    """What came of it. `per_hour` and `in_vain` are attempts that reached an issuer, by issuer and hour;
    `while_out` those that an issuer did not answer, or answered with 5xx;
    `expired` counts ends of certificates that had not been replaced, `avoidable` those of them before which
    the issuer would have issued at some time since the renewal was due."""

    policy: Policy
    per_hour: list[list[int]]
    in_vain: list[list[int]]
    while_out: list[list[int]]
    expired: int = 0
    avoidable: int = 0
    down: timedelta = timedelta(0)
    events: int = 0
    probes: int = 0
    slowest_return: timedelta = timedelta(0)
    """The longest time from the end of an outage to the first certificate after it, of issuers that had
    certificates waiting."""

    @property
    def attempts(self) -> int:
        """All of them."""
        return sum(map(sum, self.per_hour))

    @property
    def failed(self) -> int:
        """Those that were in vain."""
        return sum(map(sum, self.in_vain))

    @property
    def peak(self) -> int:
        """The most that one issuer got in an hour."""
        return max(map(max, self.per_hour))

    @property
    def peak_while_out(self) -> int:
        """The most that one issuer got in an hour while it was out."""
        return max(map(max, self.while_out))

    @property
    def peak_in_vain(self) -> int:
        """The most that one issuer got in vain in an hour."""
        return max(map(max, self.in_vain))


class _Kind(IntEnum):
    """Kinds of events; at the same moment, those with a lower number come first."""

    ANSWER = 0
    RESTART = 1
    PROBE = 2
    WAKE = 3


class Fleet:
    """One run. The same scenario gives the same world to each policy."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        self._policy = policy
        self._end = START + span(scenario.lasts)
        self._answers_in = span(scenario.answers_in)
        self._gives_up_after = span(scenario.gives_up_after)
        self._restarts_every = span(scenario.restarts_every) if scenario.restarts_every else None
        self._authorities = [Authority(number, scenario, START) for number in range(scenario.issuers)]
        self._circuits = [self._circuit() for _ in self._authorities]
        self._planned: list[datetime | None] = [None] * scenario.issuers
        self._certificates = _certificates(scenario)
        self._events: list[tuple[datetime, int, int, int]] = []
        hours = int((self._end - START) / _HOUR) + 2
        self._outcome = Outcome(
            policy,
            [[0] * hours for _ in self._authorities],
            [[0] * hours for _ in self._authorities],
            [[0] * hours for _ in self._authorities],
        )

    def run(self) -> Outcome:
        """The whole time."""
        for certificate in self._certificates:
            self._plan(certificate, certificate.not_after - certificate.lives)
            self._wake(certificate, certificate.due)
        if self._restarts_every is not None:
            heapq.heappush(self._events, (START + self._restarts_every, _Kind.RESTART, 0, 0))
        events, count = self._events, 0
        while events and events[0][0] <= self._end:
            now, kind, number, turn = heapq.heappop(events)
            count += 1
            if kind == _Kind.RESTART:
                self._restart(now)
                continue
            if kind == _Kind.PROBE:
                self._probe(number, now)
                continue
            certificate = self._certificates[number]
            if turn != certificate.turn:
                continue
            if kind == _Kind.ANSWER:
                self._answered(certificate, now)
            else:
                self._wants(certificate, now)
        for certificate in self._certificates:
            self._account(certificate, self._end)
        self._outcome.events = count
        return self._outcome

    # --- what the controllers do ----------------------------------------------------------------------------

    def _plan(self, certificate: Certificate, not_before: datetime) -> None:
        """When the certificate that it has got at `not_before` is renewed."""
        certificate.due = renewal.renewal_time(not_before, certificate.not_after)
        if self._policy.sees:
            by = renewal.spread(not_before, certificate.due, certificate.not_after)
            certificate.due = renewal.put_off(
                certificate.due, by, f"{certificate.number}/{certificate.renewals}"
            )

    def _wants(self, certificate: Certificate, now: datetime) -> None:
        """The trigger, and the gate before the issuer."""
        if self._policy.sees:
            circuit = self._circuits[certificate.issuer]
            hold = circuit.may_begin(certificate.number, certificate.not_after, now)
            hold = hold or circuit.may_attempt(certificate.number, certificate.not_after, now)
            certificate.is_held = hold is not None
            if hold is not None:
                circuit.wait(certificate.number, certificate.not_after, hold.until, now)
                self._wake(certificate, hold.until)
                self._plan_probe(certificate.issuer, now)
                return
            circuit.start_attempt(certificate.number, now)
            self._plan_probe(certificate.issuer, now)
        certificate.is_asking = True
        certificate.turn += 1
        answered = now + self._answers_in
        if any(
            now in outage and outage.retry_after is None
            for outage in self._authorities[certificate.issuer].outages
        ):
            answered = now + self._gives_up_after
        heapq.heappush(self._events, (answered, _Kind.ANSWER, certificate.number, certificate.turn))

    def _answered(self, certificate: Certificate, now: datetime) -> None:
        certificate.is_asking = False
        answer = self._authorities[certificate.issuer].answer(
            certificate.number, now, broken=certificate.broken
        )
        if answer.reached:
            hour = int((now - START) / _HOUR)
            self._outcome.per_hour[certificate.issuer][hour] += 1
            self._outcome.in_vain[certificate.issuer][hour] += answer.cause is not None
            self._outcome.while_out[certificate.issuer][hour] += answer.cause is Cause.UNAVAILABLE
        if answer.cause is None:
            self._issued(certificate, now)
        else:
            self._failed(certificate, answer, answer.cause, now)

    def _issued(self, certificate: Certificate, now: datetime) -> None:
        self._account(certificate, now)
        certificate.failures = certificate.pauses = 0
        certificate.last_failure = certificate.not_before = None
        self._note_return(certificate.issuer, now)
        certificate.renewals += 1
        certificate.not_after = now + certificate.lives
        self._plan(certificate, now)
        self._wake(certificate, certificate.due)
        if self._policy.sees:
            self._release(self._circuits[certificate.issuer].succeeded(certificate.number, now))

    def _failed(self, certificate: Certificate, answer: Answer, cause: Cause, now: datetime) -> None:
        if self._policy.sees and cause is not Cause.DENIED:
            circuit = self._circuits[certificate.issuer]
            if cause is Cause.UNKNOWN:
                # The CA has judged a name: it works.
                self._release(circuit.answered(certificate.number, now))
            else:
                # The Order waits: its Certificate has not failed.
                certificate.pauses, certificate.is_held = certificate.pauses + 1, True
                pause = now + doubled(_SHORTEST_WAIT, certificate.pauses, cap=_LONGEST_WAIT)
                self._wake(certificate, answer.until or pause)
                self._release(circuit.failed(certificate.number, cause, now, answer.until))
                self._plan_probe(certificate.issuer, now)
                return
            self._plan_probe(certificate.issuer, now)
        certificate.failures += 1
        certificate.last_failure, certificate.cause, certificate.not_before = now, cause, answer.until
        self._wake(certificate, self._next_attempt(certificate, now))
        if self._policy.sees and cause is Cause.DENIED:
            self._release(self._circuits[certificate.issuer].withdrawn(certificate.number, now))

    def _next_attempt(self, certificate: Certificate, last: datetime) -> datetime:
        if not self._policy.sees:
            return next_attempt(
                Standing(failures=certificate.failures, last_failure=last), self._policy.limits
            )
        standing = Standing(
            failures=certificate.failures,
            last_failure=last,
            cause=certificate.cause,
            not_before=certificate.not_before,
            not_after=certificate.not_after,
        )
        return next_attempt(standing, self._policy.limits)

    def _restart(self, now: datetime) -> None:
        """Memory is lost. What was in flight is begun again; the breakers continue from their records, as
        `controllers/retry/breaker_records.py` restores them."""
        before, self._circuits = self._circuits, [self._circuit() for _ in self._authorities]
        in_flight = [0] * len(self._authorities)
        for certificate in self._certificates:
            in_flight[certificate.issuer] += certificate.is_asking
            if certificate.is_asking or certificate.is_held:
                certificate.is_asking = False
                self._wake(certificate, now)
        for issuer, (old, new) in enumerate(zip(before, self._circuits, strict=True)):
            if not self._policy.sees:
                break
            if old.is_open or old.is_doubted:
                for at in old.attempts:
                    new.recall(None, at)
            if old.is_open and old.opened_at is not None:
                new.reopen(old.opened_at, old.not_before, now)
            new.recall_unrecorded(in_flight[issuer], now)
            self._plan_probe(issuer, now)
        if self._restarts_every is not None:
            heapq.heappush(self._events, (now + self._restarts_every, _Kind.RESTART, 0, 0))

    def _plan_probe(self, issuer: int, now: datetime) -> None:
        """Wake the breaker for its next probe or trial, as `controllers/breakers.py` does."""
        circuit = self._circuits[issuer]
        at = circuit.probe_at or circuit.trial_at(now)
        if at is not None and at > now and at != self._planned[issuer]:
            self._planned[issuer] = at
            heapq.heappush(self._events, (at, _Kind.PROBE, issuer, 0))

    def _probe(self, issuer: int, now: datetime) -> None:
        circuit = self._circuits[issuer]
        if circuit.probe_at is not None and circuit.probe_at <= now:
            self._outcome.probes += 1
            away = any(
                now in outage and outage.retry_after is None for outage in self._authorities[issuer].outages
            )
            self._release(circuit.probed(now, is_answered=not away))
        self._release(circuit.call_trial(now))
        self._plan_probe(issuer, now)

    def _note_return(self, issuer: int, now: datetime) -> None:
        """Measure the time from an outage to the first certificate after it."""
        if not self._circuits[issuer].is_open:
            return
        ends = [outage.end for outage in self._authorities[issuer].outages if outage.end <= now]
        if ends:
            self._outcome.slowest_return = max(self._outcome.slowest_return, now - max(ends))

    # --- the machine ----------------------------------------------------------------------------------------

    def _circuit(self) -> Circuit[int]:
        return Circuit(has_probe=True)

    def _wake(self, certificate: Certificate, at: datetime) -> None:
        certificate.turn += 1
        heapq.heappush(self._events, (at, _Kind.WAKE, certificate.number, certificate.turn))

    def _release(self, released: Iterable[Released[int]]) -> None:
        for release in released:
            certificate = self._certificates[release.key]
            if certificate.is_held:
                self._wake(certificate, release.at)

    def _account(self, certificate: Certificate, until: datetime) -> None:
        """If its certificate ended before it was replaced."""
        if certificate.not_after >= until:
            return
        self._outcome.expired += 1
        self._outcome.down += until - certificate.not_after
        # The first answer that it could have had, and the last.
        since, last = certificate.due + self._answers_in, certificate.not_after
        troubles = self._authorities[certificate.issuer].troubles(certificate.number)
        if certificate.broken is not None:
            troubles.append(certificate.broken)
        if not _covered(since, last, troubles):
            self._outcome.avoidable += 1


def _covered(begin: datetime, end: datetime, troubles: Iterable[Times]) -> bool:
    """Whether at each moment from `begin` to `end` something was wrong."""
    for times in sorted(troubles, key=lambda trouble: trouble.begin):
        if times.begin <= begin < times.end:
            begin = times.end
    return begin > end


def _certificates(scenario: Scenario) -> list[Certificate]:
    """The fleet as it is found at the beginning: of all ages, but for those that were issued together."""
    drawn = random.Random(scenario.certificates)
    kinds, shares = scenario.kinds, [kind.share for kind in scenario.kinds]
    certificates = []
    for number in range(scenario.certificates):
        lives = span(drawn.choices(kinds, shares)[0].lives)
        age = 0.3 * lives if drawn.random() < scenario.together else drawn.random() * 0.66 * lives
        not_after = START - age + lives
        certificate = Certificate(number, number % scenario.issuers, lives, not_after, due=not_after)
        if scenario.broken is not None and drawn.random() < scenario.broken.share:
            begin = START + drawn.random() * span(scenario.lasts)
            certificate.broken = Times(begin, begin + span(scenario.broken.lasts))
        certificates.append(certificate)
    return certificates
