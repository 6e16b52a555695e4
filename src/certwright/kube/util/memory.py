"""Returning freed memory to the system, which the C library otherwise keeps for the process (glibc)."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

LARGE_BLOCK = 512 * 1024
"""Bytes from which a block is mapped separately, and thus returned to the system when it is freed.

More than the 256 KiB that asyncio's TLS transport allocates for every read: mapping and unmapping those costs
a third of the processor time of a small request.
"""
_M_MMAP_THRESHOLD = -3
CHECK_S = 30.0
"""Seconds between two checks of the process's memory, as long as returning some helps."""
LONGEST_CHECK_S = 3600.0
"""The same where it does not help: the process may need what it has."""
_NOTABLE = 32 * 1024 * 1024
_HELPFUL = 8 * 1024 * 1024


def map_large_blocks() -> None:
    """Have each large block mapped separately.

    By default glibc does so too, but raises the threshold to the size of the largest block freed so far, up
    to 32 MiB. From then on pages of large objects lie in the heap, between small objects that stay.

    Source: mallopt(3).
    """
    if (mallopt := _of_c_library("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK)


def give_back() -> None:
    """Let the C library return free pages to the system, where it can.

    By itself it returns only the memory at the end of its heap. A start reads some hundred megabytes of lists
    and keeps little of them, spread over the heap. Takes some milliseconds.

    Source: malloc_trim(3).
    """
    if (trim := _of_c_library("malloc_trim")) is not None:
        trim(0)


def _of_c_library(name: str) -> Callable[..., object] | None:
    """A function of the C library; None where it is not glibc."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def resident_bytes() -> int:
    """The memory of the process, as the system counts it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Trimmer:
    """Returns freed memory to the system after peaks.

    Call `check` again after the returned seconds. Nothing happens unless the process has grown by 32 MiB
    since its smallest size. If returning memory does not help, the next try waits twice as long, until the
    process has grown again.
    """

    def __init__(
        self, resident: Callable[[], int] = resident_bytes, trim: Callable[[], None] = give_back
    ) -> None:
        self._resident = resident
        self._trim = trim
        self._least = self._last = resident()
        self._wait_s = CHECK_S

    def check(self) -> float:
        """Return memory if there may be some to return; the seconds until the next check."""
        before = self._resident()
        if before > self._last + _NOTABLE:
            self._wait_s = CHECK_S
        self._last = before
        if before > self._least + _NOTABLE:
            self._trim()
            self._last = self._resident()
            helps = before - self._last >= _HELPFUL
            self._wait_s = CHECK_S if helps else min(2 * self._wait_s, LONGEST_CHECK_S)
        else:
            self._wait_s = CHECK_S
        self._least = min(self._least, self._last)
        return self._wait_s


async def keep_trimmed() -> None:
    """Return freed memory after peaks, for as long as the process runs, in a separate thread."""
    if sys.platform != "linux":
        return
    trimmer = Trimmer()
    wait_s = CHECK_S
    while True:
        await asyncio.sleep(wait_s)
        wait_s = await asyncio.to_thread(trimmer.check)
