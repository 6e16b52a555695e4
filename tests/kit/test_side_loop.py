"""An event loop beside the program's own."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from certwright.kit.side_loop import SideLoop


async def where() -> tuple[str, asyncio.AbstractEventLoop]:
    return threading.current_thread().name, asyncio.get_running_loop()


async def test_work_runs_in_a_thread_of_its_own() -> None:
    beside = SideLoop("beside")
    (first, loop), (second, same) = await beside.run(where()), await beside.run(where())
    assert first == second == "beside"
    assert loop is same is not asyncio.get_running_loop()
    beside.close()


async def test_work_goes_on_while_the_program_is_busy() -> None:
    beside, done = SideLoop("beside"), threading.Event()

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.set()

    waiting = asyncio.create_task(beside.run(work()))
    await asyncio.sleep(0)
    # The loop of the test stands still here.
    assert done.wait(timeout=30)
    await waiting
    beside.close()


async def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise OSError("taken")

    beside = SideLoop("beside")
    with pytest.raises(OSError, match="taken"):
        await beside.run(work())
    beside.close()


async def test_the_thread_ends_when_it_is_closed() -> None:
    beside = SideLoop("ends soon")
    await beside.run(where())
    beside.close()
    beside.close()
    until = time.monotonic() + 30
    while any(thread.name == "ends soon" for thread in threading.enumerate()):
        assert time.monotonic() < until
        await asyncio.sleep(0.001)
