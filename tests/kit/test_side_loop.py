"""An event loop beside the program's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from certwright.kit.loop_thread import SideLoop
from support.waiting import until


@pytest.fixture
def beside() -> Iterator[SideLoop]:
    """One that is closed after the test."""
    made = SideLoop("beside")
    yield made
    made.close()


async def where() -> tuple[str, asyncio.AbstractEventLoop]:
    return threading.current_thread().name, asyncio.get_running_loop()


async def test_work_runs_in_a_thread_of_its_own(beside: SideLoop) -> None:
    (first, loop), (second, same) = await beside.run(where()), await beside.run(where())
    assert first == second == "beside"
    assert loop is same is not asyncio.get_running_loop()


async def test_work_goes_on_while_the_program_is_busy(beside: SideLoop) -> None:
    done = threading.Event()

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.set()

    waiting = asyncio.create_task(beside.run(work()))
    await asyncio.sleep(0)
    # The loop of the test stands still here.
    assert done.wait(timeout=60)
    await waiting


async def test_what_the_work_raises_is_raised(beside: SideLoop) -> None:
    async def work() -> None:
        raise OSError("taken")

    with pytest.raises(OSError, match="taken"):
        await beside.run(work())


async def test_the_thread_ends_when_it_is_closed() -> None:
    beside = SideLoop("ends soon")
    await beside.run(where())
    beside.close()
    beside.close()
    await until(lambda: all(thread.name != "ends soon" for thread in threading.enumerate()))


async def test_what_still_runs_is_cancelled_when_it_is_closed() -> None:
    beside, ended, kept = SideLoop("beside"), threading.Event(), list[asyncio.Task[None]]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def begin() -> None:
        kept.append(asyncio.create_task(work()))
        await asyncio.sleep(0)

    await beside.run(begin())
    beside.close()
    await until(ended.is_set)
