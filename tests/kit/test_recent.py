"""Answers that are remembered for a while."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.util.caches import Recent


class Asked:
    """Counts how often it was asked, and answers when it is told to."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.times = 0
        self.wrong = wrong
        self.go = asyncio.Event()

    async def __call__(self) -> int:
        """The number of the question."""
        self.times += 1
        number = self.times
        await self.go.wait()
        if self.wrong:
            raise OSError("nobody answers")
        return number


async def test_an_answer_is_remembered_until_its_time_is_over() -> None:
    clock, asked = [0.0], Asked()
    asked.go.set()
    recent: Recent[str, int] = Recent(30, now=lambda: clock[0])
    assert [await recent.get("a", asked), await recent.get("a", asked), await recent.get("b", asked)] == [
        1,
        1,
        2,
    ]
    clock[0] = 30.0
    assert await recent.get("a", asked) == 3


async def test_all_who_ask_at_once_wait_for_one_answer_and_one_who_gives_up_takes_it_from_nobody() -> None:
    asked = Asked()
    recent: Recent[str, int] = Recent(30)
    waiting = [asyncio.create_task(recent.get("a", asked)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    asked.go.set()
    assert await asyncio.gather(*waiting[1:]) == [1, 1]


async def test_a_failure_is_not_remembered() -> None:
    asked = Asked(wrong=True)
    asked.go.set()
    recent: Recent[str, int] = Recent(30)
    for _ in range(2):
        with pytest.raises(OSError, match="nobody answers"):
            await recent.get("a", asked)
    assert asked.times == 2


async def test_what_is_over_is_dropped_where_there_is_much() -> None:
    clock, asked = [0.0], Asked()
    asked.go.set()
    recent: Recent[int, int] = Recent(30, now=lambda: clock[0])
    for number in range(2_000):
        clock[0] += 0.1
        await recent.get(number, asked)
    assert len(recent) < 1_100
