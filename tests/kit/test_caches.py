"""What is remembered: the values asked for last, results of functions of texts, answers for a while."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.util.caches import Lru, Recent, remembering


def test_what_was_asked_for_last_stays_when_there_are_too_many() -> None:
    lru: Lru[str, int] = Lru(2)
    assert [lru.put(name, number) for number, name in enumerate("ab")] == [0, 1]
    assert lru.get("a") == 0
    lru.put("c", 2)
    assert [lru.get(name) for name in "abc"] == [0, None, 2]


def test_a_value_that_is_kept_anew_takes_the_place_of_the_one_before() -> None:
    lru: Lru[str, int] = Lru(2)
    for name, number in (("a", 0), ("b", 1), ("a", 2), ("c", 3)):
        lru.put(name, number)
    assert [lru.get(name) for name in "abc"] == [2, None, 3]


def test_what_is_dropped_is_forgotten_also_where_it_was_never_there() -> None:
    lru: Lru[str, int] = Lru(2)
    lru.put("a", 0)
    lru.drop("a")
    lru.drop("a")
    assert lru.get("a") is None


class Counted:
    """A function that notes what it is asked; remembered are three results, of up to five characters."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.remembered = remembering(most=3, longest=5)(self._shout)

    def _shout(self, text: str) -> str:
        self.asked.append(text)
        if not text:
            raise ValueError("nothing to say")
        return text.upper()


def test_a_result_is_worked_out_once() -> None:
    counted = Counted()
    assert [counted.remembered("hello") for _ in range(3)] == ["HELLO"] * 3
    assert counted.asked == ["hello"]


def test_the_result_of_a_long_text_is_not_kept() -> None:
    counted = Counted()
    assert [counted.remembered("hello!") for _ in range(2)] == ["HELLO!"] * 2
    assert counted.asked == ["hello!"] * 2


def test_what_is_raised_is_not_remembered() -> None:
    counted = Counted()
    for _ in range(2):
        with pytest.raises(ValueError, match="nothing to say"):
            counted.remembered("")
    assert counted.asked == ["", ""]


def test_there_are_never_more_results_than_said() -> None:
    counted = Counted()
    for text in "abcd":
        counted.remembered(text)
    counted.remembered("d")
    assert counted.asked == list("abcd")
    counted.remembered("a")
    assert counted.asked == list("abcda")


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
