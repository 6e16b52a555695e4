"""Work of many tasks, one per turn of the event loop."""

from __future__ import annotations

import asyncio

from certwright.kube.util.loop_turns import LoopTurns


async def test_one_task_works_per_turn_of_the_loop_in_the_order_of_arrival() -> None:
    turns, now, seen = LoopTurns(), 0, list[tuple[int, int]]()

    async def work(number: int) -> None:
        await turns.take()
        seen.append((number, now))

    tasks = [asyncio.create_task(work(number)) for number in range(20)]
    while not all(task.done() for task in tasks):
        now += 1
        await asyncio.sleep(0)
    assert [number for number, _ in seen] == list(range(20))
    assert len({turn for _, turn in seen}) == 20


async def test_a_cancelled_task_takes_no_turn() -> None:
    turns = LoopTurns()
    first, cancelled, *others = (asyncio.create_task(turns.take()) for _ in range(4))
    await asyncio.sleep(0)
    assert first.done()
    assert cancelled.cancel()
    async with asyncio.timeout(60):
        await asyncio.gather(*others)
        await turns.take()
    assert cancelled.cancelled()
