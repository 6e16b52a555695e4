from __future__ import annotations

import asyncio
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import TestClock
from support.waiting import turns


async def test_a_key_added_twice_is_given_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue(TestClock())
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_whose_rank_gets_lower_moves_up_and_is_given_out_once() -> None:
    ranks = {"a": 1.0, "b": 1.0, "c": 1.0}
    queue: WorkQueue[str] = WorkQueue(TestClock(), rank=ranks.__getitem__)
    for key in ranks:
        queue.add(key)
    ranks["c"] = 0.0
    queue.add("c")
    ranks["a"] = 5.0
    queue.add("a")
    assert len(queue) == 3
    assert [await queue.take() for _ in ranks] == ["c", "a", "b"]
    assert len(queue) == 0


def shared_queue(most: int) -> WorkQueue[str]:
    """A queue of keys whose flow is their first letter."""
    return WorkQueue(TestClock(), flow=lambda key: (key[0],), most_per_flow=most)


async def test_an_owner_whose_work_never_ends_leaves_workers_to_others() -> None:
    queue = shared_queue(2)
    for key in ("a1", "a2", "a3", "a4"):
        queue.add(key)
    assert [await queue.take(), await queue.take()] == ["a1", "a2"]
    third = asyncio.create_task(queue.take())
    await turns()
    assert not third.done()
    queue.add("b1")
    assert await third == "b1"
    assert not queue.idle
    assert len(queue) == 2


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["a1", "a2", "a3", "b1", "b2", "c1"])), max_size=60),
    st.integers(1, 3),
)
def test_with_limits_of_owners_no_key_is_lost(steps: list[tuple[bool, str]], most: int) -> None:
    async def check() -> None:
        queue = shared_queue(most)
        taken: asyncio.Queue[str] = asyncio.Queue()

        async def work() -> None:
            while True:
                taken.put_nowait(await queue.take())

        workers = [asyncio.create_task(work()) for _ in range(2)]
        working: list[str] = []
        added: set[str] = set()

        async def settle() -> None:
            await turns()
            while not taken.empty():
                working.append(key := taken.get_nowait())
                added.discard(key)
            assert len(set(working)) == len(working)
            assert all(sum(item[0] == owner for item in working) <= most for owner in "abc")

        for is_added, key in steps:
            if is_added:
                queue.add(key)
                added.add(key)
            elif working:
                queue.done(working.pop(0))
            await settle()
        while working:
            queue.done(working.pop(0))
            await settle()
        assert not added
        assert queue.idle
        for worker in workers:
            worker.cancel()

    asyncio.run(check())


async def test_flows_of_one_rank_take_turns() -> None:
    queue: WorkQueue[str] = WorkQueue(TestClock(), flow=lambda key: (key[0],))
    for number in range(100):
        queue.add(f"a{number}")
    first = [await queue.take() for _ in range(10)]
    # One that comes later does not stand behind what the others have waiting.
    for number in range(3):
        queue.add(f"b{number}")
    assert first == [f"a{number}" for number in range(10)]
    assert [await queue.take() for _ in range(6)] == ["a10", "b0", "a11", "b1", "a12", "b2"]


async def test_a_key_added_while_worked_on_is_given_out_once_more_after() -> None:
    queue: WorkQueue[str] = WorkQueue(TestClock())
    queue.add("a")
    await queue.take()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert queue.idle


async def test_it_is_idle_when_all_that_is_left_waits_for_its_time() -> None:
    queue: WorkQueue[str] = WorkQueue(TestClock())
    idle = [queue.idle]
    queue.add("a")
    idle.append(queue.idle)
    await queue.take()
    idle.append(queue.idle)
    queue.done("a")
    queue.add_after("a", timedelta(seconds=1))
    idle.append(queue.idle)
    assert idle == [True, False, False, True]
    assert queue.waiting == 1
    await queue.close()


async def test_failures_double_the_wait_and_a_success_forgets_them() -> None:
    clock = TestClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    delays = [queue.retry_delay("a", n).total_seconds() for n in range(1, 8)]
    assert [round(d / delays[0]) for d in delays] == [1, 2, 4, 8, 16, 30, 30]
    assert 0.9 <= delays[0] <= 1
    assert queue.retry_delay("a", 1) != queue.retry_delay("b", 1)
    assert [queue.failed("a"), queue.failed("a")] == [1, 2]
    queue.succeeded("a")
    assert queue.failed("a") == 1
    await queue.close()


async def test_what_failed_comes_back_after_its_wait() -> None:
    clock = TestClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a")
    key = await queue.take()
    queue.failed(key)
    queue.done(key)
    await turns()
    clock.advance(timedelta(seconds=0.8))
    await turns()
    assert len(queue) == 0
    clock.advance(timedelta(seconds=0.2))
    await turns()
    assert await queue.take() == "a"
    await queue.close()


Steps = st.lists(st.tuples(st.sampled_from(["add", "take", "done"]), st.integers(0, 3)), max_size=40)


@given(Steps)
def test_no_key_is_lost_and_none_given_to_two_workers(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        queue: WorkQueue[int] = WorkQueue(TestClock())
        pending: set[int] = set()
        working: set[int] = set()
        for what, key in steps:
            if what == "add":
                queue.add(key)
                pending.add(key)
            elif what == "take" and len(queue):
                taken = await queue.take()
                assert taken not in working
                working.add(taken)
                pending.discard(taken)
            elif what == "done" and key in working:
                working.discard(key)
                queue.done(key)
        for key in list(working):
            queue.done(key)
        left = set()
        while len(queue):
            left.add(await queue.take())
        assert left == pending

    asyncio.run(run())


async def test_keys_that_are_not_admitted_are_dropped_and_those_not_known_yet_are_asked_about_again() -> None:
    clock = TestClock()
    verdicts: dict[str, bool | None] = {"mine": True, "theirs": False, "unknown": None}
    queue: WorkQueue[str] = WorkQueue(clock, admit=verdicts.__getitem__)
    for key in verdicts:
        queue.add(key)
    assert [await queue.take()] == ["mine"]
    assert len(queue) == 0
    verdicts["unknown"] = True
    clock.advance(timedelta(seconds=1))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await queue.take() == "unknown"
    await queue.close()


async def test_who_has_waited_longest_is_given_the_first_key() -> None:
    queue: WorkQueue[str] = WorkQueue(TestClock())
    waiting = [asyncio.create_task(queue.take()) for _ in range(3)]
    await turns(2)
    for key in ("a", "b", "c"):
        queue.add(key)
    assert await asyncio.gather(*waiting) == ["a", "b", "c"]


async def test_what_one_was_woken_for_and_does_not_take_is_for_the_next() -> None:
    queue: WorkQueue[str] = WorkQueue(TestClock())
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await turns(2)
    queue.add("a")
    first.cancel()
    await turns(5)
    assert first.cancelled()
    assert second.result() == "a"


async def test_one_that_gave_up_waiting_is_not_woken_instead_of_another() -> None:
    queue: WorkQueue[str] = WorkQueue(TestClock())
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await turns(2)
    first.cancel()
    await turns(2)
    queue.add("a")
    await turns(5)
    assert second.result() == "a"
