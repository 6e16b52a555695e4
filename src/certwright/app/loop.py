"""The event loop that a process runs on; when Python looks for garbage, and when threads take turns."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from certwright.kit import event_loop
from certwright.kube.util import memory

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on the fastest event loop there is."""
    collect_seldom()
    take_turns_often()
    memory.map_large_blocks()
    return event_loop.run(_trimmed(main))


async def _trimmed(main: Coroutine[Any, Any, T]) -> T:
    """Run `main`, and meanwhile return memory that peaks leave behind."""
    trimming = asyncio.create_task(memory.keep_trimmed(), name="memory")
    try:
        return await main
    finally:
        trimming.cancel()


def collect_seldom() -> None:
    """Have Python look for garbage after very many allocations only."""
    # The objects in the caches are many, long-lived and without cycles: looking through them after every
    # 700 allocations, as Python does by default, costs a fifth of the processor time of an issuance, and
    # more with every certificate there is.
    gc.set_threshold(20_000, 20, 20)


def take_turns_often() -> None:
    """Let a thread that waits for the interpreter have it within half a millisecond."""
    # Python's default is 5 ms. The thread that commits gives the interpreter away with each call into SQLite,
    # and where the loop is busy it would wait those 5 ms for it several times in each commit: a hundred
    # certificates at once would mostly wait for commits, with a processor idle.
    sys.setswitchinterval(0.0005)


def keep_what_is_there() -> None:
    """Have the garbage collector pass over all objects of this moment, for good.

    For a process that has just read what it works on, and keeps most of it: to look through the objects of
    50,000 certificates holds everything up for a third of a second. What is not in a cycle is freed as ever.
    """
    gc.freeze()
