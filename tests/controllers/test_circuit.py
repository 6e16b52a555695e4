"""The circuit of an issuer, on the virtual clock, with nothing but itself."""

from __future__ import annotations

import heapq
import pickle
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from certwright.controllers.retry.backoff import Hold, Limits, Standing, next_attempt
from certwright.controllers.retry.breaker import Circuit, Released
from certwright.controllers.retry.breaker_state import State
from certwright.resources.causes import Cause

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass
class Fleet:
    """Certificates that want to be issued, an issuer that answers within seconds, and a circuit between.

    `ends` are the ends of their certificates by number, `works` says whether the issuer works at a moment.
    Each that has failed comes back when its own backoff is over; each that has succeeded is done.
    """

    circuit: Circuit[int]
    ends: list[datetime]
    works: Callable[[datetime], bool]
    now: datetime = START
    took: timedelta = timedelta(seconds=20)
    tries: list[tuple[datetime, int]] = field(default_factory=list)
    issued: list[tuple[datetime, int]] = field(default_factory=list)
    _wakes: list[tuple[datetime, int]] = field(default_factory=list)
    _answers: list[tuple[datetime, int]] = field(default_factory=list)
    _last_wake: dict[int, datetime] = field(default_factory=dict)

    def wake(self, number: int, at: datetime) -> None:
        self._last_wake[number] = at
        heapq.heappush(self._wakes, (at, number))

    def all_want(self, at: datetime = START) -> None:
        for number in range(len(self.ends)):
            self.wake(number, at)

    def run_until(self, end: datetime) -> None:
        while True:
            moments = [queue[0][0] for queue in (self._wakes, self._answers) if queue]
            if not moments or min(moments) > end:
                self.now = end
                return
            self.now = min(moments)
            if self._answers and self._answers[0][0] == self.now:
                self._answered(heapq.heappop(self._answers)[1])
            else:
                at, number = heapq.heappop(self._wakes)
                if self._last_wake.get(number) == at:
                    self._asks(number)

    def _asks(self, number: int) -> None:
        hold = self.circuit.may_attempt(number, self.ends[number], self.now)
        if hold is not None:
            assert hold.until > self.now
            assert hold == self.circuit.may_attempt(number, self.ends[number], self.now)
            self.circuit.wait(number, self.ends[number], hold.until, self.now)
            self.wake(number, hold.until)
            return
        del self._last_wake[number]
        self.circuit.start_attempt(number, self.now)
        self.tries.append((self.now, number))
        heapq.heappush(self._answers, (self.now + self.took, number))

    def _answered(self, number: int) -> None:
        if not self.works(self.now):
            self._release(self.circuit.failed(number, Cause.UNAVAILABLE, self.now))
            self.wake(number, self._next_attempt(number))
            return
        self.issued.append((self.now, number))
        self._release(self.circuit.succeeded(number, self.now))

    def _next_attempt(self, number: int) -> datetime:
        standing = Standing(failures=1, last_failure=self.now, not_after=self.ends[number])
        return next_attempt(standing, Limits())

    def _release(self, released: Iterable[Released[int]]) -> None:
        for release in released:
            if release.key in self._last_wake:
                self.wake(release.key, release.at)

    def most_in_an_hour(self) -> int:
        times = [at for at, _ in self.tries]
        return max(sum(1 for later in times[i : i + 500] if later - at < HOUR) for i, at in enumerate(times))


def ends(count: int, first: timedelta = 20 * DAY) -> list[datetime]:
    """Ends of certificates, in another order than that of their numbers."""
    return [START + first + (number * 7919 % count) * MINUTE for number in range(count)]


@pytest.mark.parametrize("count", [20, 500, 10_000])
@pytest.mark.parametrize("took", [timedelta(milliseconds=50), timedelta(minutes=3)])
def test_an_issuer_that_is_out_is_asked_so_often_in_an_hour_whatever_the_number(
    count: int, took: timedelta
) -> None:
    fleet = Fleet(Circuit(12), ends(count), works=lambda _: False, took=took)
    fleet.all_want()
    fleet.run_until(START + 40 * HOUR)
    assert fleet.most_in_an_hour() <= 12
    assert len(fleet.tries) >= 40  # and somebody still looks whether it is back


def test_when_it_is_back_they_go_on_spread_out_and_those_that_end_first_go_first() -> None:
    back = START + 40 * HOUR
    fleet = Fleet(Circuit(12), ends(10_000), works=lambda now: now >= back)
    fleet.all_want()
    fleet.run_until(back + 3 * HOUR)
    assert len(fleet.issued) == 10_000
    per_minute = [0] * 200
    for at, _ in fleet.issued:
        per_minute[int((at - back) / MINUTE)] += 1
    assert max(per_minute) < 300  # 10,000 in an hour are 167
    probes = len(fleet.tries) - len(fleet.issued)
    order = [fleet.ends[number] for _, number in fleet.issued]
    rank = {end: place for place, end in enumerate(sorted(order))}
    early = [rank[end] - place for place, end in enumerate(order)]
    assert sum(1 for places in early if places > 2 * probes) < probes


def test_nobody_waits_longer_than_half_of_what_is_left_of_its_certificate() -> None:
    back = START + 2 * HOUR
    short = [START + 2 * HOUR + (15 + number) * MINUTE for number in range(40)]
    fleet = Fleet(Circuit(12), short + ends(3_000), works=lambda now: now >= back)
    fleet.all_want()
    fleet.run_until(back + 3 * HOUR)
    at = {number: moment for moment, number in fleet.issued}
    assert all(at[number] < fleet.ends[number] for number in range(40))


def test_one_that_ends_soon_is_worth_more_probes() -> None:
    def probes(first: timedelta) -> int:
        fleet = Fleet(Circuit(12), ends(50, first), works=lambda _: False)
        fleet.all_want()
        fleet.run_until(START + 20 * HOUR)
        return len(fleet.tries)

    assert probes(22 * HOUR) > probes(60 * DAY)


def test_a_failing_name_does_not_open_the_circuit() -> None:
    circuit: Circuit[int] = Circuit(12)
    for hour in range(100):
        now = START + hour * HOUR
        circuit.start_attempt(1, now)
        circuit.failed(1, Cause.UNKNOWN, now)
        circuit.start_attempt(2, now)
        circuit.failed(2, Cause.UNKNOWN, now)
        assert not circuit.is_open
        assert circuit.may_attempt(3, None, now) is None


@pytest.mark.parametrize("cause", [Cause.INVALID_REQUEST, Cause.DENIED])
def test_what_is_about_the_request_does_not_open_the_circuit(cause: Cause) -> None:
    circuit: Circuit[int] = Circuit(12)
    for number in range(100):
        assert circuit.may_attempt(number, None, START) is None
        circuit.start_attempt(number, START)
        circuit.failed(number, cause, START)
    assert not circuit.is_open


def test_a_success_between_keeps_it_closed() -> None:
    circuit: Circuit[int] = Circuit(12)
    for number in range(100):
        circuit.failed(number, Cause.UNKNOWN, START)
        if number % 2:
            circuit.succeeded(1000 + number, START)
    assert not circuit.is_open


def test_an_issuer_that_names_a_time_is_left_alone_until_then() -> None:
    circuit: Circuit[int] = Circuit(12)
    until = START + 7 * HOUR
    for number in range(3):
        circuit.start_attempt(number, START)
        circuit.failed(number, Cause.UNAVAILABLE, START, until)
    hold = circuit.may_attempt(7, START + 9 * DAY, START + HOUR)
    assert hold is not None
    assert hold.until == until
    assert circuit.may_attempt(7, START + 9 * DAY, until) is None


def test_one_that_was_let_through_and_does_not_come_loses_its_turn() -> None:
    circuit: Circuit[int] = Circuit(12)
    for number in range(3):
        circuit.start_attempt(number, START)
        circuit.failed(number, Cause.UNAVAILABLE, START)
    now = START + HOUR
    assert begin(circuit, 7, None, now) is None
    assert begin(circuit, 7, None, now + MINUTE) is None  # still its turn
    hold = begin(circuit, 8, None, now + MINUTE)
    assert hold is not None
    assert begin(circuit, 8, None, max(hold.until, now + 6 * MINUTE)) is None


def test_a_turn_is_taken_by_the_first_that_begins_not_by_a_question() -> None:
    circuit: Circuit[int] = Circuit(12)
    for number in range(3):
        circuit.start_attempt(number, START)
        circuit.failed(number, Cause.UNAVAILABLE, START)
    now = START + HOUR
    assert circuit.may_begin(7, None, now) is None
    assert begin(circuit, 8, None, now) is None
    assert circuit.may_begin(7, None, now) is not None


@pytest.mark.parametrize("has_probe", [False, True])
def test_questions_change_nothing(has_probe: bool) -> None:
    chance = random.Random(1)
    circuit: Circuit[int] = Circuit(12, has_probe=has_probe)
    seen: set[tuple[State, bool]] = set()
    for number in range(4000):
        now, key = START + number * 7 * MINUTE / 4, chance.randrange(30)
        end = START + chance.randrange(60) * DAY
        before = pickle.dumps(vars(circuit))
        answers = [ask(circuit, key, end, now) for _ in range(2)]
        assert answers[0] == answers[1]
        assert pickle.dumps(vars(circuit)) == before
        hold = circuit.may_attempt(key, end, now)
        seen.add((circuit.state, hold is None))
        if hold is not None:
            circuit.wait(key, end, hold.until, now)
        else:
            circuit.start_attempt(key, now)
            if number // 400 % 2 or chance.random() < 0.1:
                circuit.failed(key, Cause.UNAVAILABLE, now)
            elif chance.random() < 0.9:
                circuit.succeeded(key, now)
        if circuit.probe_at is not None and circuit.probe_at <= now:
            circuit.probed(now, is_answered=chance.random() < 0.5)
    assert seen >= {(State.CLOSED, True), (State.HALF_OPEN, True), (State.HALF_OPEN, False)}


def ask(circuit: Circuit[int], key: int, end: datetime, now: datetime) -> tuple[object, ...]:
    """The answers to all questions."""
    return (
        circuit.may_begin(key, end, now),
        circuit.may_attempt(key, end, now),
        circuit.may_continue(key, end, now),
        circuit.may_join(key, end, now),
        circuit.trial_at(now),
        circuit.check_at(key),
        circuit.is_called(key, now),
    )


def begin(circuit: Circuit[int], key: int, not_after: datetime | None, now: datetime) -> Hold | None:
    """Ask, and do what follows from the answer."""
    hold = circuit.may_begin(key, not_after, now)
    if hold is None:
        circuit.begin(key, now)
    else:
        circuit.wait(key, not_after, hold.until, now)
    return hold


def test_those_who_have_failed_leave_the_probe_to_others() -> None:
    circuit: Circuit[int] = Circuit(12)
    for number in range(3):
        circuit.start_attempt(number, START)
        circuit.failed(number, Cause.UNAVAILABLE, START)
    soon, later = START + DAY, START + 30 * DAY
    holds = {number: begin(circuit, number, soon, START + MINUTE) for number in range(3)}
    fresh = begin(circuit, 9, later, START + MINUTE)
    assert fresh is not None
    latest = max(hold.until for hold in (*holds.values(), fresh) if hold)
    assert circuit.may_begin(0, soon, latest) is not None
    assert circuit.may_begin(9, later, latest) is None


def test_a_deleted_certificate_is_forgotten() -> None:
    circuit: Circuit[int] = Circuit(12)
    for number in range(3):
        circuit.start_attempt(number, START)
        circuit.failed(number, Cause.UNAVAILABLE, START)
    begin(circuit, 9, None, START)
    assert circuit.waiting == 1
    circuit.forget(9)
    assert circuit.waiting == 0


def test_attempts_in_flight_when_the_issuer_begins_to_fail_are_no_trials() -> None:
    circuit: Circuit[int] = Circuit(12, has_probe=True)
    for number in range(6):
        assert circuit.may_attempt(number, None, START) is None
        circuit.start_attempt(number, START)
    for number in range(6):
        circuit.failed(number, Cause.UNAVAILABLE, START + MINUTE)
    # The first trial follows the answered probe immediately; the next ones 4 and 16 s after the last.
    now = START + 2 * MINUTE
    for pause_s in (0, 4, 16):
        first, *_ = circuit.probed(now, is_answered=True)
        assert first.at == now + timedelta(seconds=pause_s)
        now = first.at
        assert circuit.may_attempt(first.key, None, now) is None
        circuit.start_attempt(first.key, now)
        circuit.failed(first.key, Cause.UNAVAILABLE, now)


def half_open(failing: int, *, left: int = 0) -> Circuit[int]:
    """A breaker whose probe was answered at `START`. Of the certificates that failed, the first have gone to
    another issuer."""
    circuit: Circuit[int] = Circuit(12, has_probe=True)
    for number in range(failing):
        circuit.start_attempt(number, START - MINUTE)
        circuit.failed(number, Cause.UNAVAILABLE, START - MINUTE)
        if number < left:
            circuit.leave(number)
    return circuit


def called(released: Iterable[Released[int]]) -> list[int]:
    """The certificates that may make the next trial."""
    return [release.key for release in released]


def test_those_that_went_to_another_issuer_are_not_called() -> None:
    circuit = half_open(5, left=4)
    assert circuit.waiting == 1
    assert called(circuit.probed(START, is_answered=True)) == [4]
    assert circuit.may_continue(4, None, START) is None


def test_if_none_of_those_called_asks_the_next_are_called_after_a_minute() -> None:
    circuit = half_open(7)
    first = circuit.probed(START, is_answered=True)
    assert called(first) == [0, 1, 2]
    assert circuit.may_continue(5, None, START) is not None
    # Others may notify the same ones meanwhile; that does not prolong the minute.
    due = max(release.at for release in first)
    assert called(circuit.call_trial(due + MINUTE / 2)) == [0, 1, 2]
    assert called(circuit.call_trial(due + MINUTE)) == [3, 4, 5]
    assert circuit.may_continue(5, None, due + MINUTE) is None
    # They may still come back.
    assert circuit.may_continue(0, None, due + 2 * HOUR) is None


def test_one_that_was_called_and_asks_keeps_its_place() -> None:
    circuit = half_open(5)
    due = max(release.at for release in circuit.probed(START, is_answered=True))
    assert begin(circuit, 1, None, due) is None
    assert begin(circuit, 0, None, due) is not None
    circuit.start_attempt(1, due)
    circuit.failed(1, Cause.UNAVAILABLE, due + MINUTE)
    assert called(circuit.probed(due + 2 * MINUTE, is_answered=True))[0] == 0


def test_an_issuer_that_answers_is_asked_by_all() -> None:
    fleet = Fleet(Circuit(12), ends(10_000), works=lambda _: True)
    fleet.all_want()
    fleet.run_until(START + HOUR)
    assert len(fleet.issued) == 10_000


def test_zero_switches_it_off() -> None:
    fleet = Fleet(Circuit(0), ends(1000), works=lambda _: False)
    fleet.all_want()
    fleet.run_until(START + MINUTE)
    assert len(fleet.tries) == 1000
    with pytest.raises(ValueError, match="negative"):
        Circuit(-1)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 60])
def test_any_limit_is_kept(limit: int) -> None:
    fleet = Fleet(Circuit(limit), ends(300), works=lambda _: False)
    fleet.all_want()
    fleet.run_until(START + 30 * HOUR)
    # Three must fail before it is known that it is not about their names.
    assert fleet.most_in_an_hour() <= max(limit, 3)
    assert len(fleet.tries) >= 20
