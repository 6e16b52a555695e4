"""The fair queue: whose turn it is, how many run, and what becomes of tasks that give up."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.util.fair_queue import FairQueue, FairSemaphore


def started(queue: FairQueue[str]) -> list[str]:
    keys = []
    while (key := queue.pop()) is not None:
        keys.append(key)
    return keys


def one_by_one(queue: FairQueue[str]) -> list[str]:
    """What starts if each ends before the next."""
    keys = []
    while (key := queue.pop()) is not None:
        keys.append(key)
        queue.done(key)
    return keys


def test_flows_take_turns_and_within_a_flow_the_first_comes_first() -> None:
    queue: FairQueue[str] = FairQueue()
    for key in ("a1", "a2", "a3", "b1", "a4", "c1", "b2"):
        queue.add(key, key[0])
    assert started(queue) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_any_value_may_name_a_flow() -> None:
    queue: FairQueue[str] = FairQueue()
    for flow in (None, "", 0, ()):
        queue.add(repr(flow), flow)
    assert started(queue) == ["None", "''", "0", "()"]


def test_a_flow_that_comes_later_does_not_stand_behind_all_of_a_busy_one() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.add(f"a{number}", "a")
    assert [queue.pop(), queue.pop()] == ["a0", "a1"]
    queue.add("b0", "b")
    assert [queue.pop(), queue.pop()] == ["a2", "b0"]


def test_parts_of_a_flow_take_turns_within_the_turns_of_the_flow() -> None:
    queue: FairQueue[str] = FairQueue()
    for key in ("ax1", "ax2", "ax3", "ay1", "bz1", "bz2", "a-0"):
        namespace, order, _ = key
        queue.add(key, *((namespace,) if order == "-" else (namespace, order)))
    assert started(queue) == ["ax1", "bz1", "ay1", "bz2", "a-0", "ax2", "ax3"]


def test_the_lowest_priority_goes_first_and_a_key_can_move_up() -> None:
    queue: FairQueue[str] = FairQueue()
    for key, priority in (("late", 9.0), ("soon", 1.0), ("too", 1.0), ("never", 99.0)):
        queue.add(key, priority=priority)
    queue.add("never", priority=0.0)
    queue.add("soon", priority=50.0)
    assert len(queue) == 4
    assert started(queue) == ["never", "soon", "too", "late"]


def test_no_more_run_than_the_capacity_and_than_a_flow_may() -> None:
    queue: FairQueue[str] = FairQueue(3, per_flow=2)
    for key in ("a1", "a2", "a3", "b1", "b2"):
        queue.add(key, key[0])
    assert started(queue) == ["a1", "b1", "a2"]
    queue.done("b1")
    assert started(queue) == ["b2"]
    queue.done("b2")
    assert started(queue) == []
    assert (queue.running, len(queue), queue.waiting_of("a"), "a3" in queue) == (2, 1, 1, True)
    queue.done("a1")
    assert started(queue) == ["a3"]


def test_keys_of_a_flow_at_its_limit_keep_no_key_of_lower_precedence_waiting() -> None:
    queue: FairQueue[str] = FairQueue(per_flow=1)
    for key, priority in (("a1", 0), ("a2", 0), ("b1", 5)):
        queue.add(key, key[0], priority=priority)
    assert started(queue) == ["a1", "b1"]


def test_a_dear_key_waits_for_all_that_it_needs_and_its_flow_then_misses_turns() -> None:
    queue: FairQueue[str] = FairQueue(4)
    queue.add("dear", "a", cost=3)
    for key in ("a1", "b1", "b2", "b3", "b4"):
        queue.add(key, key[0])
    assert started(queue) == ["dear", "b1"]
    queue.done("b1")
    queue.add("dearer", "c", cost=4)
    assert one_by_one(queue) == ["b2"]  # then it is the turn of "dearer"
    queue.done("dear")
    assert one_by_one(queue) == ["dearer", "b3", "a1", "b4"]


def test_a_key_that_needs_more_than_there_is_runs_alone() -> None:
    queue: FairQueue[str] = FairQueue(2)
    assert queue.start("huge", "a", cost=9)
    assert not queue.start("b1", "b")
    queue.done("huge")
    assert queue.start("b1", "b")


def test_a_key_that_waits_no_longer_is_forgotten() -> None:
    queue: FairQueue[str] = FairQueue(1)
    for key in ("a1", "a2", "b1"):
        queue.add(key, key[0])
    queue.done("a2")
    queue.done("a2")
    assert one_by_one(queue) == ["a1", "b1"]


def test_a_key_is_in_it_once() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("a")
    queue.add("a")
    assert started(queue) == ["a"]
    queue.add("a")
    assert started(queue) == []
    assert queue.is_running("a")


Steps = st.lists(
    st.tuples(st.sampled_from(["add", "pop", "done"]), st.integers(0, 7), st.integers(1, 3)), max_size=80
)


@given(Steps, st.integers(1, 4), st.integers(1, 4))
def test_no_key_is_lost_and_no_limit_exceeded(
    steps: list[tuple[str, int, int]], capacity: int, per_flow: int
) -> None:
    queue: FairQueue[int] = FairQueue(capacity, per_flow=per_flow)
    waiting: set[int] = set()
    running: dict[int, int] = {}
    costs: dict[int, int] = {}
    for step, key, cost in steps:
        if step == "add" and key not in waiting and key not in running:
            queue.add(key, key % 3, key, priority=key % 2, cost=cost)
            waiting.add(key)
            costs[key] = cost
        elif step == "pop" and (popped := queue.pop()) is not None:
            waiting.remove(popped)
            running[popped] = costs[popped]
        elif step == "done":
            queue.done(key)
            waiting.discard(key)
            running.pop(key, None)
        assert len(queue) == len(waiting)
        assert queue.running == sum(running.values())
        assert len(running) <= 1 or sum(running.values()) <= capacity
        of_flow = Counter(key % 3 for key in running)
        for flow, number in of_flow.items():
            assert number == 1 or sum(c for k, c in running.items() if k % 3 == flow) <= per_flow
    for key in list(running):
        queue.done(key)
    while (popped := queue.pop()) is not None:
        waiting.remove(popped)
        queue.done(popped)
    assert not waiting


async def test_tasks_wait_for_their_turn_and_one_that_gives_up_keeps_no_slot() -> None:
    slots, order = FairSemaphore(1), list[str]()

    async def work(name: str) -> None:
        async with slots.slot(name[0]):
            order.append(name)
            await asyncio.sleep(0)

    tasks = {name: asyncio.create_task(work(name)) for name in ("a1", "a2", "a3", "b1", "c1")}
    await asyncio.sleep(0)
    tasks["c1"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert order == ["a1", "a2", "b1", "a3"]
    async with asyncio.timeout(60), slots.slot():
        pass


async def test_a_slot_that_comes_too_late_goes_to_the_next() -> None:
    slots = FairSemaphore(1)
    async with slots.slot():
        first, second = (asyncio.create_task(slots.loop_turn()) for _ in range(2))
        await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(60):
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
        await slots.loop_turn()


async def test_one_task_works_per_turn_of_the_loop_in_the_order_of_arrival() -> None:
    turns, now, seen = FairSemaphore(1), 0, list[tuple[int, int]]()

    async def work(number: int) -> None:
        await turns.loop_turn()
        seen.append((number, now))

    tasks = [asyncio.create_task(work(number)) for number in range(20)]
    while not all(task.done() for task in tasks):
        now += 1
        await asyncio.sleep(0)
    assert [number for number, _ in seen] == list(range(20))
    assert len({turn for _, turn in seen}) == 20


async def test_a_cancelled_task_takes_no_turn() -> None:
    turns = FairSemaphore(1)
    first, cancelled, *others = (asyncio.create_task(turns.loop_turn()) for _ in range(4))
    await asyncio.sleep(0)
    assert first.done()
    assert cancelled.cancel()
    async with asyncio.timeout(60):
        await asyncio.gather(*others)
        await turns.loop_turn()
    assert cancelled.cancelled()
