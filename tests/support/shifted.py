"""A clock that goes as the wall clock does, but can be put forward: for tests with programs that go by the
wall clock, such as Pebble.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from certwright.kube.util.clock import SystemClock


class ShiftedClock:
    """The system's clock, and what has been added to it. `jump` wakes all who sleep, so that those whose time
    has come go on."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._offset = timedelta(0)
        self._jumped = asyncio.Event()

    def now(self) -> datetime:
        """See `Clock`."""
        return self._system.now() + self._offset

    def monotonic(self) -> float:
        """See `Clock`; a jump counts."""
        return self._system.monotonic() + self._offset.total_seconds()

    def jump(self, delta: timedelta) -> None:
        """Put the clock forward."""
        self._offset += delta
        self._jumped.set()
        self._jumped = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await self.sleep_until(self.now() + timedelta(seconds=seconds))

    async def sleep_until(self, moment: datetime) -> None:
        """See `Clock`."""
        await asyncio.sleep(0)
        while (left := (moment - self.now()).total_seconds()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._jumped.wait()
            except TimeoutError:
                continue
