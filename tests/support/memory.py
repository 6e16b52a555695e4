"""The most memory that this process has taken since a moment."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

_PROCESS = Path("/proc/self")


def reset_peak() -> int:
    """Forget the peak until now (proc(5), `clear_refs`), which may be that of another test.

    Returns the new one in kB. Elsewhere than on Linux the peak is that since the start.
    """
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")
    return peak_kb()


def peak_kb() -> int:
    """The most resident memory since the last reset."""
    try:
        lines = (_PROCESS / "status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
