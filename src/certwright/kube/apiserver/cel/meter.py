"""Processor time budget of CEL expressions, checked in each iteration of their loops."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PAUSE_EVERY_S, _PAUSE_S = 0.002, 0.001
"""Seconds of processor time between pauses, and their length."""


class Meter:
    """A budget of processor time for the thread that evaluates.

    Not of wall time: on a machine that stalls, that would refuse objects that are cheap to check. `clock`
    returns the seconds of processor time that the thread has used. `pauses`: yield the interpreter to other
    threads; not for the event loop's thread, because the others wait for it.
    """

    def __init__(
        self, budget_s: float, clock: Callable[[], float] = time.thread_time, *, pauses: bool = True
    ) -> None:
        self.budget_s = budget_s
        self._clock = clock
        now = clock()
        self._deadline = now + budget_s
        self._pause_at = now + _PAUSE_EVERY_S if pauses else math.inf

    @property
    def shown(self) -> str:
        """The budget, as messages show it."""
        return f"{self.budget_s:g} s"

    @property
    def is_exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self._clock() > self._deadline

    def tick(self) -> None:
        """Pause now and then to yield to other threads. Raises `ValueError` once the budget is used up."""
        now = self._clock()
        if now > self._deadline:
            raise ValueError("no processor time is left")
        if now > self._pause_at:
            self._pause_at = now + _PAUSE_EVERY_S
            # The event loop wants the interpreter several times for one request, so one turn is not enough.
            time.sleep(_PAUSE_S)


class _Current(threading.local):
    meter: Meter | None = None


_current = _Current()


@contextmanager
def metered(meter: Meter | None) -> Iterator[None]:
    """Let `tick` check this budget in the present thread."""
    before, _current.meter = _current.meter, meter
    try:
        yield
    finally:
        _current.meter = before


def tick(condition: bool) -> bool:
    """The condition of a loop's next iteration, unchanged. Raises `ValueError` once the budget is used up."""
    if _current.meter is not None:
        _current.meter.tick()
    return condition
