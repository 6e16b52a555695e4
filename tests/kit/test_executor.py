"""Work in threads: whose answer it is, and what becomes of it when nobody wants it any more."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from certwright.kube.util.executor import Inline, Threads

_PATIENCE_S = 60.0


@pytest.fixture
def executor() -> Iterator[Threads]:
    threads = Threads(2)
    yield threads
    threads.close()
    threads.join()


class Bench:
    """Work that says when it has begun, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.is_done = threading.Event(), threading.Event(), False

    def __call__(self) -> str:
        self.begun.set()
        assert self.let_go.wait(_PATIENCE_S)
        self.is_done = True
        return "done"


async def until_begun(*benches: Bench) -> None:
    for bench in benches:
        assert await asyncio.to_thread(bench.begun.wait, _PATIENCE_S)


async def test_work_gives_its_result_and_its_error(executor: Threads) -> None:
    assert await executor.run(lambda: 6 * 7, "a") == 42
    with pytest.raises(ZeroDivisionError):
        await executor.run(lambda: 1 // 0, "a")
    assert await executor.run(threading.get_ident, "a") != threading.get_ident()
    assert await Inline().run(lambda: "here", "a") == "here"


async def test_an_error_that_ends_programs_reaches_the_caller_and_not_the_thread(executor: Threads) -> None:
    def leave() -> None:
        sys.exit("enough")

    for _ in range(3):
        waiting = executor.run(leave, "a")
        with pytest.raises(SystemExit, match="enough"):
            await waiting
    assert await executor.run(lambda: "still here", "a") == "still here"


async def test_many_callers_get_each_their_own_answer(executor: Threads) -> None:
    answers = await asyncio.gather(*(executor.run(partial(pow, n, 2), "a") for n in range(500)))
    assert answers == [n * n for n in range(500)]


async def test_there_are_no_more_threads_than_were_asked_for_and_one_for_other_flows() -> None:
    executor = Threads(3)
    before = set(threading.enumerate())
    for _ in range(5):
        await executor.run(lambda: None, "a")
        assert len(set(threading.enumerate()) - before) <= 4
    benches = [Bench() for _ in range(5)]
    waiting = [asyncio.ensure_future(executor.run(bench, "a")) for bench in benches]
    await until_begun(*benches[:3])
    assert not any(bench.begun.is_set() for bench in benches[3:])
    for bench in benches:
        bench.let_go.set()
    assert await asyncio.gather(*waiting) == ["done"] * 5
    executor.close()
    executor.join()


async def test_the_work_of_one_flow_takes_turns_with_that_of_others() -> None:
    executor = Threads(1)
    gate, order = Bench(), list[str]()
    waiting = [asyncio.ensure_future(executor.run(gate, "first"))]
    await until_begun(gate)
    other = Bench()
    waiting.append(asyncio.ensure_future(executor.run(other, "second")))
    await until_begun(other)  # Both threads are occupied.
    for name in ("a1", "a2", "a3"):
        waiting.append(asyncio.ensure_future(executor.run(partial(_note, order, name), "a")))
    waiting.append(asyncio.ensure_future(executor.run(partial(_note, order, "b1"), "b")))
    await asyncio.sleep(0)
    gate.let_go.set()
    await asyncio.gather(waiting[0], *waiting[2:])
    other.let_go.set()
    await waiting[1]
    assert order == ["a1", "b1", "a2", "a3"]
    executor.close()
    executor.join()


async def test_a_short_job_does_not_wait_for_the_long_ones_of_another_flow(executor: Threads) -> None:
    long = [Bench() for _ in range(4)]
    waiting = [asyncio.ensure_future(executor.run(bench, "tenant")) for bench in long]
    await until_begun(*long[:2])
    assert await executor.run(lambda: "short", "another") == "short"
    assert not any(bench.begun.is_set() for bench in long[2:])
    for bench in long:
        bench.let_go.set()
    assert await asyncio.gather(*waiting) == ["done"] * 4


def _note(order: list[str], name: str) -> str:
    order.append(name)
    return name


async def test_a_cancelled_caller_leaves_the_thread_to_finish(executor: Threads) -> None:
    bench = Bench()
    caller = asyncio.ensure_future(executor.run(bench, "a"))
    await until_begun(bench)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    bench.let_go.set()
    # The answer that nobody wants comes before this one's.
    assert await executor.run(lambda: 1, "a") + await executor.run(lambda: 2, "a") == 3
    executor.close()
    executor.join()
    assert bench.is_done


async def test_work_of_a_cancelled_caller_that_has_not_begun_is_not_done(executor: Threads) -> None:
    first, second, unwanted = Bench(), Bench(), Bench()
    busy = [asyncio.ensure_future(executor.run(bench, "a")) for bench in (first, second)]
    await until_begun(first, second)
    caller = asyncio.ensure_future(executor.run(unwanted, "a"))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    first.let_go.set()
    second.let_go.set()
    await asyncio.gather(*busy)
    assert await executor.run(lambda: "next", "a") == "next"
    assert not unwanted.begun.is_set()


async def test_closing_drops_what_has_not_begun_and_does_not_wait_for_what_has() -> None:
    executor = Threads(1)
    bench = Bench()
    begun = asyncio.ensure_future(executor.run(bench, "a"))
    await until_begun(bench)
    late = asyncio.ensure_future(executor.run(lambda: "late", "a"))
    await asyncio.sleep(0)
    executor.close()
    executor.close()
    with pytest.raises(asyncio.CancelledError):
        await late
    assert not begun.done()
    with pytest.raises(RuntimeError, match="shutdown"):
        await executor.run(lambda: "too late", "a")
    bench.let_go.set()
    assert await begun == "done"
    executor.join()


def test_a_loop_that_is_closed_meanwhile_is_no_error(executor: Threads) -> None:
    bench = Bench()

    async def ask_and_leave() -> None:
        asking = asyncio.ensure_future(executor.run(bench, "a"))
        await until_begun(bench)
        assert not asking.done()

    asyncio.run(ask_and_leave())
    bench.let_go.set()
    assert asyncio.run(executor.run(lambda: "another loop", "a")) == "another loop"
    executor.close()
    executor.join()
    assert bench.is_done


def test_each_loop_gets_its_own_answers(executor: Threads) -> None:
    async def ask(begin: int) -> list[int]:
        return await asyncio.gather(*(executor.run(partial(int, n), "a") for n in range(begin, begin + 200)))

    numbers: dict[int, list[int]] = {}

    def be_a_loop(begin: int) -> None:
        numbers[begin] = asyncio.run(ask(begin))

    loops = [threading.Thread(target=be_a_loop, args=(begin,)) for begin in (0, 1000, 2000)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(_PATIENCE_S)
    assert numbers == {n: list(range(n, n + 200)) for n in (0, 1000, 2000)}


async def test_what_was_worked_on_is_held_by_nobody_afterwards(executor: Threads) -> None:
    class Secret:
        def look(self) -> int:
            return 1

        def fail(self) -> None:
            raise LookupError

    gc.disable()
    try:
        for method in ("look", "fail"):
            secret = Secret()
            gone, work = weakref.ref(secret), getattr(secret, method)
            del secret
            with suppress(LookupError):
                await executor.run(work, "a")
            del work
            # The thread may be about to let go; with the collector off, a cycle stays for ever.
            for _ in range(10_000):
                if gone() is None:
                    break
                await executor.run(lambda: None, "a")
            assert gone() is None, method
    finally:
        gc.enable()


_PROGRAM = """
import asyncio, threading
from certwright.kube.util.executor import Threads

begun, ending = threading.Event(), threading.Event()

def work():
    begun.set()
    ending.wait()
    print("finished")

async def main():
    asking = asyncio.ensure_future(Threads(1).run(work, ""))
    while not begun.is_set():
        await asyncio.sleep(0)

asyncio.run(main())
threading.Timer(0.1, ending.set).start()
print("end")
"""


def test_a_process_ends_though_nobody_closed_its_threads_when_they_have_finished_what_they_began() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
    )
    assert (ended.stderr, set(ended.stdout.split())) == ("", {"end", "finished"})
