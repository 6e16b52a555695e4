"""Deadlines of requests, by a clock that is passed in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from certwright.kube.api.errors import Unreachable
from certwright.kube.util.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, within the given seconds of that clock. Raises `Unreachable` afterwards."""
    task, alarm = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Unreachable(f"the API server did not answer within {seconds:.0f} s")
    finally:
        alarm.cancel()
        task.cancel()
