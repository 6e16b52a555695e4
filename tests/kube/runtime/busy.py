"""An event loop that has a lot to do, by a clock that stands still otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from certwright.kube.util.clock import TestClock

TURN = timedelta(milliseconds=1)


@asynccontextmanager
async def busy(clock: TestClock) -> AsyncIterator[None]:
    """Meanwhile each turn of the loop takes a millisecond."""

    async def work() -> None:
        while True:
            clock.advance(TURN)
            await asyncio.sleep(0)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()


async def busy_for(time: timedelta) -> None:
    """While the loop is busy, let it be so for that long."""
    for _ in range(time // TURN):
        await asyncio.sleep(0)
