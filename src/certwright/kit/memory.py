"""Memory that the process has freed, and the system has not got back."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Let the C library return free pages to the system, where it can (glibc).

    By itself it returns only what lies at the end of its heap. A start reads some hundred megabytes of lists
    and keeps little of them, and what it keeps lies in between. Takes some milliseconds.

    Source: malloc_trim(3).
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
