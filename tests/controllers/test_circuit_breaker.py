"""The circuit breaker of an issuer, on the virtual clock, with nothing but itself."""

from __future__ import annotations

import heapq
import pickle
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from certwright.controllers.backoff import BackoffLimits, FailedIssuance, next_attempt
from certwright.controllers.circuit_breaker import CircuitBreaker, Hold, State
from certwright.kube.api.meta import ObjectKey
from certwright.resources.causes import Cause

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def key(number: int) -> ObjectKey:
    return ObjectKey("default", f"web{number}")


@dataclass
class Fleet:
    """Certificates that want to be issued, an issuer that answers within seconds, and a breaker between.

    `works` says whether the issuer works at a moment; with `answers_probes` it always answers those. A
    certificate that has failed comes back when its own backoff is over; one that has succeeded is done.
    `restarts` replaces the breaker by one restored from its record at each of these moments.
    """

    breaker: CircuitBreaker
    count: int
    works: Callable[[datetime], bool]
    took: timedelta = 20 * SECOND
    answers_probes: bool = False
    restarts: tuple[datetime, ...] = ()
    now: datetime = START
    tries: list[datetime] = field(default_factory=list)
    issued: list[datetime] = field(default_factory=list)
    _wakes: list[tuple[datetime, ObjectKey]] = field(default_factory=list)
    _answers: list[tuple[datetime, ObjectKey]] = field(default_factory=list)
    _next: dict[ObjectKey, datetime] = field(default_factory=dict)

    def run(self, length: timedelta) -> None:
        for number in range(self.count):
            self._wake(key(number), START)
        end, restarts = START + length, list(self.restarts)
        while True:
            breaker = self.breaker
            own = breaker.probe_at or breaker.trial_at(self.now)
            if own is not None and own <= self.now and breaker.probe_at is None:
                own = self.now + MINUTE
            moments = [queue[0][0] for queue in (self._wakes, self._answers) if queue]
            moments += [own] if own is not None else []
            moments += restarts[:1]
            if not moments or min(moments) > end:
                return
            self.now = max(min(moments), self.now)
            if restarts and restarts[0] <= self.now:
                record = breaker.record(restarts.pop(0))
                self.breaker = CircuitBreaker(12)
                if record is not None:
                    self.breaker.restore(record, self.now)
                for name in list(self._next):
                    self._wake(name, self.now)
            elif breaker.probe_at is not None and breaker.probe_at <= self.now:
                self._release(
                    breaker.probed(self.now, is_answered=self.answers_probes or self.works(self.now))
                )
            elif self._answers and self._answers[0][0] <= self.now:
                self._answered(heapq.heappop(self._answers)[1])
            elif self._wakes and self._wakes[0][0] <= self.now:
                at, name = heapq.heappop(self._wakes)
                if self._next.get(name) == at:
                    self._asks(name)
            self._release(self.breaker.call_trial(self.now))

    def _wake(self, name: ObjectKey, at: datetime) -> None:
        self._next[name] = at
        heapq.heappush(self._wakes, (at, name))

    def _asks(self, name: ObjectKey) -> None:
        hold = self.breaker.may_attempt(name, self.now)
        if hold is not None:
            assert hold.until > self.now
            assert hold == self.breaker.may_attempt(name, self.now)
            self.breaker.wait(name)
            self._wake(name, hold.until)
            return
        del self._next[name]
        self.breaker.start_attempt(name, self.now)
        self.tries.append(self.now)
        heapq.heappush(self._answers, (self.now + self.took, name))

    def _answered(self, name: ObjectKey) -> None:
        if self.works(self.now):
            self.issued.append(self.now)
            self._release(self.breaker.record_success(name, self.now))
            return
        self._release(self.breaker.record_failure(name, Cause.UNAVAILABLE, self.now))
        self._wake(name, next_attempt(FailedIssuance(failures=1, last_failure=self.now), BackoffLimits()))

    def _release(self, released: Iterable[ObjectKey]) -> None:
        for name in released:
            if name in self._next:
                self._wake(name, self.now)

    def most_in_an_hour(self) -> int:
        return max(sum(1 for later in self.tries if START <= at <= later < at + HOUR) for at in self.tries)


@pytest.mark.parametrize("count", [20, 500, 10_000])
@pytest.mark.parametrize("took", [timedelta(milliseconds=50), timedelta(minutes=3)])
def test_an_issuer_that_is_out_is_asked_so_often_in_an_hour_whatever_the_number(
    count: int, took: timedelta
) -> None:
    fleet = Fleet(CircuitBreaker(12), count, works=lambda _: False, took=took)
    fleet.run(20 * HOUR)
    assert fleet.most_in_an_hour() <= 12
    assert len(fleet.tries) <= 20


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 12, 60])
def test_an_issuer_that_answers_probes_and_fails_is_asked_as_often_as_the_limit_says(limit: int) -> None:
    fleet = Fleet(CircuitBreaker(limit), 300, works=lambda _: False, answers_probes=True)
    fleet.run(20 * HOUR)
    # Three must fail before it is known that it is not about their names.
    assert fleet.most_in_an_hour() <= max(limit, 3)
    assert len(fleet.tries) >= 20 * min(limit, 3)


def test_a_restart_changes_nothing() -> None:
    restarts = tuple(START + number * 7 * MINUTE + SECOND for number in range(1, 120))
    fleet = Fleet(CircuitBreaker(12), 50, works=lambda now: now > START + 12 * HOUR, restarts=restarts)
    fleet.run(14 * HOUR)
    failed = [at for at in fleet.tries if at <= START + 12 * HOUR]
    assert max(sum(1 for later in failed if at <= later < at + HOUR) for at in failed) <= 12
    assert len(fleet.issued) == 50


@pytest.mark.parametrize(("outage", "all_after"), [(10 * SECOND, 90 * SECOND), (40 * HOUR, 4 * MINUTE)])
def test_after_an_outage_all_are_issued(outage: timedelta, all_after: timedelta) -> None:
    back = START + outage
    fleet = Fleet(CircuitBreaker(12), 25, works=lambda now: now >= back)
    fleet.run(outage + HOUR)
    assert len(fleet.issued) == 25
    assert max(fleet.issued) <= back + all_after


def test_an_issuer_that_answers_is_asked_by_all() -> None:
    fleet = Fleet(CircuitBreaker(12), 10_000, works=lambda _: True)
    fleet.run(HOUR)
    assert len(fleet.issued) == 10_000


def broken(failing: int = 3, *, limit: int = 12, until: datetime | None = None) -> CircuitBreaker:
    """A breaker for which so many certificates have failed at `START`."""
    breaker = CircuitBreaker(limit)
    for number in range(failing):
        breaker.start_attempt(key(number), START)
        breaker.record_failure(key(number), Cause.UNAVAILABLE, START, until)
    return breaker


@pytest.mark.parametrize(
    ("cause", "failures", "state"),
    {
        "three that the issuer failed": (Cause.UNAVAILABLE, 3, State.OPEN),
        "two that the issuer failed": (Cause.UNAVAILABLE, 2, State.CLOSED),
        "a rate limit of the account": (Cause.RATE_LIMITED, 3, State.OPEN),
        "requests that the issuer refused": (Cause.INVALID_REQUEST, 100, State.CLOSED),
    }.values(),
)
def test_only_failures_of_the_issuer_open_the_breaker(cause: Cause, failures: int, state: State) -> None:
    breaker = CircuitBreaker()
    for number in range(failures):
        assert breaker.may_attempt(key(number), START) is None
        breaker.start_attempt(key(number), START)
        breaker.record_failure(key(number), cause, START)
    assert breaker.state is state


def test_one_that_fails_four_times_in_a_row_opens_the_breaker() -> None:
    breaker = CircuitBreaker()
    states = []
    for hour in range(4):
        breaker.start_attempt(key(1), START + hour * HOUR)
        breaker.record_failure(key(1), Cause.UNAVAILABLE, START + hour * HOUR)
        states.append(breaker.state)
    assert states == [State.CLOSED, State.CLOSED, State.CLOSED, State.OPEN]


def test_a_success_between_keeps_it_closed() -> None:
    breaker = CircuitBreaker()
    for number in range(100):
        breaker.record_failure(key(number), Cause.UNAVAILABLE, START)
        if number % 2:
            breaker.record_success(key(1000 + number), START)
    assert not breaker.is_open


def test_an_issuer_that_names_a_time_is_left_alone_until_then() -> None:
    until = START + 7 * HOUR
    breaker = broken(until=until)
    breaker.probed(START + MINUTE, is_answered=True)
    hold = breaker.may_attempt(key(0), START + HOUR)
    assert hold is not None
    assert (hold.until, hold.is_exact) == (until, True)
    assert breaker.may_attempt(key(7), until) is None


def half_open(failing: int = 3, *, left: int = 0) -> tuple[CircuitBreaker, list[ObjectKey]]:
    """A breaker whose probe was answered a minute after `START`, and the certificates called for the trial.
    Of those that failed, the first have gone to another issuer."""
    breaker = broken(failing)
    for number in range(left):
        breaker.leave(key(number))
    return breaker, breaker.probed(START + MINUTE, is_answered=True)


def test_the_first_that_asks_makes_the_trial_and_loses_its_turn_after_a_minute() -> None:
    breaker, _ = half_open()
    now = START + MINUTE
    breaker.begin_trial(key(7), now)
    assert breaker.may_begin(key(7), now + MINUTE / 2) is None
    assert breaker.may_begin(key(8), now + MINUTE / 2) is not None
    assert breaker.may_begin(key(8), now + MINUTE) is None


def test_trials_follow_after_0_4_and_16_seconds_each_after_an_answered_probe() -> None:
    breaker, called = half_open(6)
    now = START + MINUTE
    for pause_s in (0, 4, 16):
        now += pause_s * SECOND
        (name, *_) = called or breaker.call_trial(now)
        assert breaker.may_attempt(name, now) is None
        breaker.start_attempt(name, now)
        breaker.record_failure(name, Cause.UNAVAILABLE, now)
        assert breaker.state is State.OPEN
        called = breaker.probed(now, is_answered=True)
        assert called == []


def test_those_that_went_to_another_issuer_are_not_called() -> None:
    breaker, called = half_open(5, left=4)
    assert (called, breaker.waiting) == ([key(4)], 1)
    assert breaker.may_continue(key(4), START + MINUTE) is None


def test_if_none_of_those_called_asks_the_next_are_called() -> None:
    breaker, called = half_open(7)
    assert called == [key(number) for number in range(3)]
    assert breaker.call_trial(START + 2 * MINUTE) == [key(number) for number in range(3, 6)]
    assert breaker.call_trial(START + 3 * MINUTE) == [key(6), key(0), key(1)]


def test_a_taken_request_goes_on_while_others_fail_after_being_taken() -> None:
    breaker = CircuitBreaker()
    for number in range(3):
        breaker.start_attempt(key(number), START)
        breaker.record_acceptance(key(number), START)
        breaker.record_failure(key(number), Cause.UNAVAILABLE, START, is_taken=True)
    assert breaker.is_open
    breaker.probed(START + MINUTE, is_answered=True)
    breaker.start_attempt(key(3), START + MINUTE)
    breaker.record_acceptance(key(3), START + MINUTE)
    assert breaker.is_open
    assert breaker.may_continue(key(3), START + 10 * MINUTE) is None
    assert breaker.record_success(key(3), START + 10 * MINUTE) == [key(number) for number in range(3)]


def test_a_deleted_certificate_is_forgotten() -> None:
    breaker = broken()
    breaker.wait(key(9))
    assert breaker.waiting == 4
    for number in (0, 9):
        breaker.forget(key(number))
    assert breaker.waiting == 2


def test_questions_change_nothing() -> None:
    chance = random.Random(1)
    breaker = CircuitBreaker()
    seen: set[tuple[State, bool]] = set()
    for number in range(4000):
        now, name = START + number * 7 * MINUTE / 4, key(chance.randrange(30))
        before = pickle.dumps({k: v for k, v in vars(breaker).items() if k != "_in_flight"})
        answers = [ask(breaker, name, now) for _ in range(2)]
        assert answers[0] == answers[1]
        assert pickle.dumps({k: v for k, v in vars(breaker).items() if k != "_in_flight"}) == before
        hold = breaker.may_attempt(name, now)
        seen.add((breaker.state, hold is None))
        if hold is not None:
            breaker.wait(name)
        else:
            breaker.start_attempt(name, now)
            if number // 400 % 2 or chance.random() < 0.1:
                breaker.record_failure(name, Cause.UNAVAILABLE, now)
            elif chance.random() < 0.9:
                breaker.record_success(name, now)
        if breaker.probe_at is not None and breaker.probe_at <= now:
            breaker.probed(now, is_answered=chance.random() < 0.5)
    assert seen >= {
        (State.CLOSED, True),
        (State.OPEN, False),
        (State.HALF_OPEN, True),
        (State.HALF_OPEN, False),
    }


def ask(breaker: CircuitBreaker, name: ObjectKey, now: datetime) -> tuple[Hold | datetime | None, ...]:
    """The answers to all questions."""
    return (
        breaker.may_begin(name, now),
        breaker.may_attempt(name, now),
        breaker.may_continue(name, now),
        breaker.trial_at(now),
    )


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_positive(limit: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        CircuitBreaker(limit)


# --- replicas -----------------------------------------------------------------------------------------


def pair() -> tuple[CircuitBreaker, CircuitBreaker]:
    """The breakers of two replicas; the second has followed the record of the first, which is open."""
    first, second = broken(), CircuitBreaker()
    second.wait(key(9))
    second.follow(None, first.record(START), START)
    return first, second


def test_a_replica_follows_another_through_all_states() -> None:
    first, second = pair()
    assert (second.state, second.opened_at) == (State.OPEN, first.opened_at)
    opened, now = first.record(START), START + MINUTE
    first.probed(now, is_answered=True)
    assert second.follow(opened, first.record(now), now) == [key(9)]
    half = first.record(now)
    first.start_attempt(key(0), now)
    first.record_failure(key(0), Cause.UNAVAILABLE, now)
    second.follow(half, first.record(now), now)
    assert second.probe_at is not None
    assert second.follow(first.record(now), None, now + MINUTE) == [key(9)]
    assert not second.is_open


def test_a_late_event_starts_no_trial_without_a_probe() -> None:
    breaker, now = broken(), START + MINUTE
    opened = breaker.record(now)
    breaker.probed(now, is_answered=True)
    probed = breaker.record(now)
    breaker.start_attempt(key(0), now)
    attempted = breaker.record(now)
    breaker.record_failure(key(0), Cause.UNAVAILABLE, now + SECOND)
    failed = breaker.record(now + SECOND)
    assert probed is not None
    assert failed is not None
    for before, after in ((opened, probed), (probed, attempted), (attempted, failed)):
        assert breaker.follow(before, after, now + SECOND) == []
        assert breaker.state is State.OPEN
    # Another replica has probed since.
    half_open = replace(failed, state=State.HALF_OPEN.value)
    assert key(0) in breaker.follow(failed, half_open, now + MINUTE)
    assert breaker.state is State.HALF_OPEN


def test_the_attempts_of_another_replica_count() -> None:
    first, second = pair()
    own = first.record(START)
    assert own is not None
    for minute in range(1, 9):
        now = START + minute * MINUTE
        second.start_attempt(key(100 + minute), now, out_of_turn=True)
        first.follow(own, second.record(now), now)
    record = first.record(now)
    assert record is not None
    assert len(record.attempts) == len(own.attempts) + 8


def test_a_replica_does_not_follow_what_it_knows_better() -> None:
    first, _ = pair()
    opened = first.record(START)
    first.record_success(key(0), START + MINUTE)
    # The event of its own former write arrives late.
    first.follow(None, opened, START + MINUTE)
    assert not first.is_open
    for number in range(3):
        first.start_attempt(key(number), START + HOUR)
        first.record_failure(key(number), Cause.UNAVAILABLE, START + HOUR)
    first.follow(opened, None, START + HOUR)
    assert first.is_open


def test_a_restart_counts_attempts_that_may_have_been_in_flight() -> None:
    breaker = CircuitBreaker(12)
    breaker.add_unrecorded(100, START)
    record = breaker.record(START)
    assert record is not None
    assert record.attempts == (START,) * 6
