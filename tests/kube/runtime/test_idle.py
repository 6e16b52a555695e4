from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from certwright.kube.runtime.idle_priority import AT_MOST_S, IdleTurns
from certwright.kube.util.clock import TestClock
from kube.runtime.busy import busy, busy_for
from support.waiting import turns

NEARLY = timedelta(seconds=AT_MOST_S - 0.5)
A_SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def idle(clock: TestClock) -> IdleTurns:
    return IdleTurns(clock)


async def test_on_an_idle_loop_calls_are_made_at_once_and_in_order(idle: IdleTurns) -> None:
    made: list[int] = []
    for number in range(3):
        idle.call(partial(made.append, number))
    assert made == []
    await turns(10)
    assert made == [0, 1, 2]


async def test_one_call_is_made_in_each_idle_turn(idle: IdleTurns) -> None:
    made: list[int] = []
    for number in range(50):
        idle.call(partial(made.append, number))
    await turns(10)
    assert 0 < len(made) <= 10


async def test_while_the_loop_is_busy_calls_wait_and_no_longer_than_they_may(
    idle: IdleTurns, clock: TestClock
) -> None:
    made: list[str] = []
    async with busy(clock):
        idle.call(partial(made.append, "first"))
        await busy_for(A_SECOND)
        idle.call(partial(made.append, "second"))
        await busy_for(NEARLY - A_SECOND)
        assert made == []
        await busy_for(A_SECOND)
        assert made == ["first"]
        await busy_for(A_SECOND)
        assert made == ["first", "second"]


async def test_those_whose_time_is_up_do_not_wait_for_each_other(idle: IdleTurns, clock: TestClock) -> None:
    made: list[int] = []
    async with busy(clock):
        for number in range(1000):
            idle.call(partial(made.append, number))
        await busy_for(NEARLY + A_SECOND)
    assert made == list(range(1000))


async def test_what_may_wait_for_a_shorter_time_goes_first(idle: IdleTurns) -> None:
    made: list[str] = []
    idle.call(partial(made.append, "long"), at_most_s=60)
    idle.call(partial(made.append, "short"), at_most_s=1)
    await turns(10)
    assert made == ["short", "long"]


async def test_a_wait_ends_as_soon_as_the_loop_has_a_moment(idle: IdleTurns, clock: TestClock) -> None:
    waiting = asyncio.create_task(idle.wait())
    async with busy(clock):
        await busy_for(NEARLY)
        assert not waiting.done()
    await turns(10)
    assert waiting.done()


async def test_in_a_hurry_all_calls_are_made_though_the_loop_is_busy(
    idle: IdleTurns, clock: TestClock
) -> None:
    made: list[int] = []
    async with busy(clock):
        for number in range(50):
            idle.call(partial(made.append, number))
        idle.hurry()
        await turns(2)
        assert made == list(range(50))


async def test_a_call_that_fails_keeps_no_other_from_being_made(idle: IdleTurns) -> None:
    made: list[str] = []
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: errors.append(str(context["exception"]))
    )

    def fail() -> None:
        raise ValueError("broken")

    idle.call(fail)
    idle.call(partial(made.append, "other"))
    await turns(10)
    assert (errors, made) == (["broken"], ["other"])


async def test_a_wait_that_is_given_up_keeps_no_other_from_ending(idle: IdleTurns) -> None:
    first, second = asyncio.create_task(idle.wait()), asyncio.create_task(idle.wait())
    await turns(1)
    first.cancel()
    await turns(10)
    assert (first.cancelled(), second.done()) == (True, True)


async def test_nothing_runs_where_nothing_waits() -> None:
    class Watched(TestClock):
        looks = 0

        def monotonic(self) -> float:
            self.looks += 1
            return super().monotonic()

    clock = Watched()
    IdleTurns(clock).call(lambda: None)
    await turns(10)
    looks = clock.looks
    await turns(10)
    assert clock.looks == looks


async def test_once_closed_nothing_is_called(clock: TestClock) -> None:
    idle, made = IdleTurns(clock), list[str]()
    idle.call(partial(made.append, "too late"))
    idle.close()
    await turns(10)
    assert made == []
