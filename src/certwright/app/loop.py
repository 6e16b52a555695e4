"""The event loop of a process and its lag; garbage collection and thread switching."""

from __future__ import annotations

import asyncio
import gc
import sys
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Any, Final, TypeVar

from certwright.kit import event_loop, exposition
from certwright.kube.util import memory
from certwright.kube.util.clock import Clock, SystemClock

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to completion on the fastest available event loop."""
    collect_rarely()
    shorten_switch_interval()
    memory.map_large_blocks()
    return event_loop.run(_attended(main))


async def _attended(main: Coroutine[Any, Any, T]) -> T:
    """Run `main`, return memory to the operating system after peaks, and measure the lag of the loop."""
    trimming = asyncio.create_task(memory.keep_trimmed(), name="memory")
    measuring = asyncio.create_task(LAG.keep_measured(SystemClock()), name="event loop lag")
    try:
        return await main
    finally:
        trimming.cancel()
        measuring.cancel()


class LoopLag:
    """A histogram of how late timers of the event loop are: what each request and reconcile waits as well."""

    _EVERY_S = 0.25
    _BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

    def __init__(self) -> None:
        self._counts = [0] * (len(self._BOUNDS_S) + 1)
        self._total_s = 0.0

    async def keep_measured(self, clock: Clock) -> None:
        """Measure four times a second, for as long as the loop runs."""
        while True:
            due = clock.monotonic() + self._EVERY_S
            await clock.sleep(self._EVERY_S)
            late_s = max(0.0, clock.monotonic() - due)
            self._counts[bisect_left(self._BOUNDS_S, late_s)] += 1
            self._total_s += late_s

    def take_metrics(self) -> Callable[[], bytes]:
        """Take a snapshot of the metric, and return a function that renders it, also in a thread."""
        counts, total_s = tuple(accumulate(self._counts)), self._total_s

        def render() -> bytes:
            name = "certwright_event_loop_lag_seconds"
            lines = [exposition.head(name, "histogram", "How late timers of the event loop are.")]
            for bound, count in zip((*map(str, self._BOUNDS_S), "+Inf"), counts, strict=True):
                lines.append(f'{name}_bucket{{le="{bound}"}} {count}\n')
            lines.append(f"{name}_sum {total_s}\n{name}_count {counts[-1]}\n")
            return "".join(lines).encode()

        return render


LAG: Final = LoopLag()
"""Of the event loop of this process."""


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


def freeze_heap() -> None:
    """Exclude all present objects from garbage collection, permanently.

    For a process that has just loaded its data, and keeps most of it: traversing the objects of 50,000
    certificates blocks everything for a third of a second. Objects without cycles are still freed.
    """
    gc.freeze()


def collect_frozen() -> None:
    """Collect garbage among the objects that `freeze_heap` has excluded, e.g. caches of former controllers.
    Blocks the loop as long as `freeze_heap` says, so only after an order of the operator."""
    gc.unfreeze()
    gc.collect()
