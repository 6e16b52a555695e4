"""Waiting for what has no event to wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(true: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Return when it is so. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - see the module's text
            await asyncio.sleep(0.002)


def until_so(true: Callable[[], bool], *, within_s: float = 200.0) -> None:
    """Return when it is so, for tests of other processes. Raises `TimeoutError`."""
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s} s")
        time.sleep(0.02)


async def turns(number: int = 100) -> None:
    """Let the loop turn so often: enough for every task to go on until it waits for something else."""
    for _ in range(number):
        await asyncio.sleep(0)
