"""The event loop of a process; garbage collection and thread switching."""

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
    """Run `main` to completion on the fastest available event loop."""
    collect_rarely()
    shorten_switch_interval()
    memory.map_large_blocks()
    return event_loop.run(_trimmed(main))


async def _trimmed(main: Coroutine[Any, Any, T]) -> T:
    """Run `main`, and return memory to the operating system after peaks."""
    trimming = asyncio.create_task(memory.keep_trimmed(), name="memory")
    try:
        return await main
    finally:
        trimming.cancel()


def collect_rarely() -> None:
    """Make garbage collection rare: only after very many allocations."""
    # The caches contain many long-lived objects without cycles: traversing them after every
    # 700 allocations, Python's default, costs a fifth of the CPU time of an issuance, and
    # more with every certificate.
    gc.set_threshold(20_000, 20, 20)


def shorten_switch_interval() -> None:
    """Let a waiting thread take the interpreter within half a millisecond."""
    # Python's default is 5 ms. The thread that commits releases the interpreter at each call into SQLite,
    # and with a busy loop it would wait those 5 ms several times per commit: a hundred concurrent
    # certificates would mostly wait for commits, with an idle processor.
    sys.setswitchinterval(0.0005)


def keep_what_is_there() -> None:
    """Exclude all present objects from garbage collection, permanently.

    For a process that has just loaded its data, and keeps most of it: traversing the objects of 50,000
    certificates blocks everything for a third of a second. Objects without cycles are still freed.
    """
    gc.freeze()
