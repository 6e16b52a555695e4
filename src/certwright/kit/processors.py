"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_processors(cpu_max: Path = _CPU_MAX) -> float:
    """Those that it may run on, or less where a container's limit is lower (1.5 is three halves of the time).

    `cpu_max` is that limit as Linux tells it (Control Group v2: `cpu.max`): microseconds, or `max`, of so
    many.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    there = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(there, _limit(cpu_max))


def _limit(cpu_max: Path) -> float:
    try:
        quota, period = cpu_max.read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
