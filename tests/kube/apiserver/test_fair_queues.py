"""Seats and queues alone: time is what the test says."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.apiserver.http.fair_queues import (
    CONCURRENCY,
    QUEUE_FULL,
    TIME_OUT,
    Bounds,
    FairQueues,
    Flow,
    Refused,
    Waiter,
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("abcd"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.integers(0, 20), st.none()),
        st.tuples(st.just("go away"), st.integers(0, 20), st.none()),
        st.tuples(st.just("turn"), st.none(), st.none()),
        st.tuples(st.just("wait"), st.integers(1, 5), st.none()),
    ),
    max_size=120,
)


@dataclass(eq=False)
class Asked:
    """A request as the test sees it."""

    user: str
    seats: int
    since: float
    flow: Flow | None = None
    waiter: Waiter | None = None
    # Requests of other users that were let go while it was the first of its user to wait.
    passed_by: dict[str, int] = field(default_factory=dict)


class Scene:
    """A level with requests that come, wait, are answered and go away."""

    def __init__(self, bounds: Bounds) -> None:
        self.turns_asked = 0
        self.queues = FairQueues(bounds, self._turn_asked)
        self.now = 0.0
        self.running: list[Asked] = []
        self.waiting: dict[str, deque[Asked]] = {}
        self.refused: list[str] = []

    def _turn_asked(self) -> None:
        self.turns_asked += 1

    def ask(self, user: str, seats: int = 1) -> Asked:
        asked = Asked(user, seats, self.now)
        asked.flow = self.queues.take(user, seats)
        if asked.flow is not None:
            assert not self.waiting.get(user), "it went past one of its own user"
            self.running.append(asked)
            return asked
        mine = self.waiting.setdefault(user, deque())
        mine.append(asked)
        try:
            waiter = self.queues.wait(user, seats, self.now, lambda ok: self._settled(asked, ok=ok))
        except Refused as refused:
            mine.remove(asked)
            self.refused.append(str(refused))
        else:
            asked.waiter, asked.flow = waiter, waiter.flow
        return asked

    def _settled(self, asked: Asked, *, ok: bool) -> None:
        first = self.waiting[asked.user].popleft()
        assert first is asked, "first come, first served"
        if not ok:
            self.refused.append(TIME_OUT)
            return
        self.running.append(asked)
        for other in self.waiting.values():
            if other and other[0].user != asked.user:
                passed = other[0].passed_by
                passed[asked.user] = passed.get(asked.user, 0) + asked.seats

    def answer(self, asked: Asked) -> None:
        self.running.remove(asked)
        assert asked.flow is not None
        self.queues.give_back(asked.flow, asked.seats)

    def go_away(self, asked: Asked) -> None:
        assert asked.waiter is not None
        self.waiting[asked.user].remove(asked)
        self.queues.leave(asked.waiter)

    def new_turn(self) -> None:
        if self.turns_asked:
            self.turns_asked = 0
            self.queues.new_turn()

    def all_waiting(self) -> list[Asked]:
        return [asked for mine in self.waiting.values() for asked in mine]


def _perform(scene: Scene, what: str, who: str | int | None, seats: int | None) -> None:
    match what, who:
        case "ask", str(user):
            scene.ask(user, seats or 1)
        case "answer", int(index) if scene.running:
            scene.answer(scene.running[index % len(scene.running)])
        case "go away", int(index) if waiting := scene.all_waiting():
            scene.go_away(waiting[index % len(waiting)])
        case "turn", _:
            scene.new_turn()
        case "wait", int(seconds):
            scene.now += seconds
            scene.queues.send_away(scene.now - 10)


def _check(scene: Scene, bounds: Bounds) -> None:
    queues = scene.queues
    assert queues.in_use == sum(asked.seats for asked in scene.running)
    assert queues.executing == len(scene.running)
    assert queues.waiting == len(scene.all_waiting())
    # More than there are seats only for one that asks for more than that, alone.
    assert queues.in_use <= bounds.seats or len(scene.running) == 1
    for user in "abcd":
        mine = [asked.seats for asked in scene.running if asked.user == user]
        assert sum(mine) <= bounds.per_flow or len(mine) == 1
        assert len(scene.waiting.get(user, ())) <= bounds.waiting
    assert queues.waiting <= bounds.waiting_in_all
    assert all(scene.now - asked.since < 10 for asked in scene.all_waiting())


@given(
    STEPS,
    st.integers(1, 6),
    st.integers(1, 4),
    st.one_of(st.just(math.inf), st.integers(1, 6)),
)
def test_whatever_comes_is_bounded_and_everyone_gets_a_turn(
    steps: list[tuple[str, str | int | None, int | None]], seats: int, per_flow: int, per_turn: float
) -> None:
    bounds = Bounds(seats=seats, per_flow=per_flow, per_turn=per_turn, waiting=5, waiting_in_all=12)
    scene = Scene(bounds)
    for what, who, cost in steps:
        _perform(scene, what, who, cost)
        _check(scene, bounds)
    for _ in range(1000):
        if not (scene.running or scene.all_waiting()):
            break
        assert scene.running or scene.turns_asked, "seats are free, and nobody comes to take them"
        if scene.running:
            scene.answer(scene.running[0])
        scene.new_turn()
        _check(scene, bounds)
    assert not scene.running
    assert not scene.all_waiting()
    assert scene.queues.in_use == 0


@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 3))
def test_one_user_among_greedy_ones_is_passed_by_each_of_them_once_at_most(
    greed: int, seats: int, cost: int
) -> None:
    scene = Scene(Bounds(seats=seats, waiting=100))
    for user in "abc":
        for _ in range(greed):
            scene.ask(user, cost)
    polite = scene.ask("d")
    while polite in scene.all_waiting():
        scene.answer(scene.running[0])
        for user in "abc":
            scene.ask(user, cost)
    assert all(seats_taken <= cost for seats_taken in polite.passed_by.values())


def test_users_share_by_what_their_requests_cost() -> None:
    scene = Scene(Bounds(seats=1, waiting=100))
    for _ in range(100):
        scene.ask("lists", 4)
        scene.ask("gets", 1)
    served = {"lists": 0, "gets": 0}
    for _ in range(50):
        asked = scene.running[0]
        served[asked.user] += 1
        scene.answer(asked)
    assert 3 <= served["gets"] / served["lists"] <= 5


def test_a_full_queue_refuses_and_says_why() -> None:
    scene = Scene(Bounds(seats=1, waiting=2, waiting_in_all=3))
    for user in "aaaabbb":
        scene.ask(user)
    assert scene.refused == [QUEUE_FULL] * 3  # of a the fourth; of b the second, for all queues are full
    assert scene.queues.rejected == {QUEUE_FULL: 3}
    without = Scene(Bounds(seats=1))
    without.ask("a")
    without.ask("b")
    assert without.refused == [CONCURRENCY]


def test_who_has_waited_too_long_is_sent_away_and_counted() -> None:
    scene = Scene(Bounds(seats=1, waiting=10))
    scene.ask("a")
    scene.ask("a")
    scene.now = 5
    scene.ask("b")
    scene.queues.send_away(4)
    assert (scene.refused, scene.queues.waiting) == ([TIME_OUT], 1)
    assert scene.queues.rejected == {TIME_OUT: 1}


def test_a_turn_of_the_loop_gets_so_many_seats_though_all_are_given_back_at_once() -> None:
    scene = Scene(Bounds(seats=100, per_turn=8, waiting=100))
    for _ in range(30):
        asked = scene.ask("a")
        if asked in scene.running:
            scene.answer(asked)
    assert (scene.queues.dispatched, scene.queues.waiting) == (8, 22)
    polite = scene.ask("b")
    assert polite in scene.all_waiting()
    scene.new_turn()
    assert polite in scene.running
    assert scene.queues.dispatched == 16


def test_a_request_for_more_seats_than_there_are_gets_all_of_them() -> None:
    scene = Scene(Bounds(seats=3, per_flow=2, waiting=10))
    first, large, last = scene.ask("a"), scene.ask("b", 10), scene.ask("c")
    assert first in scene.running
    assert [asked in scene.running for asked in (large, last)] == [False, False]  # nobody slips past it
    scene.answer(first)
    assert scene.running == [large]
    scene.answer(large)
    assert scene.running == [last]


def test_users_that_are_gone_are_forgotten() -> None:
    scene = Scene(Bounds(seats=10))
    for number in range(5000):
        scene.answer(scene.ask(f"user-{number}"))
    assert len(scene.queues._flows) <= 1001


@pytest.mark.parametrize("granted", [True, False])
def test_leaving_frees_what_was_had_or_wanted(granted: bool) -> None:
    scene = Scene(Bounds(seats=1, waiting=10))
    first = scene.ask("a")
    second = scene.ask("a")
    if granted:
        scene.answer(first)
    assert second.waiter is not None
    scene.queues.leave(second.waiter)
    assert scene.queues.in_use == (0 if granted else 1)
    assert scene.queues.waiting == 0


def test_when_a_large_request_gives_up_the_small_one_behind_it_goes() -> None:
    scene = Scene(Bounds(seats=10, per_flow=2, waiting=10))
    _, large, small = scene.ask("a", 1), scene.ask("a", 2), scene.ask("a", 1)
    assert scene.all_waiting() == [large, small]
    scene.go_away(large)
    assert small in scene.running
