"""What the process costs that carries requests to ACME servers: it is a child of the one that is measured."""

from __future__ import annotations

import os
from pathlib import Path

from bench.rig import memory_mb

_MODULE = b"certwright.acme.carrier"
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """Processor seconds of the child so far; 0 where there is none."""
    return sum(_cpu_s(pid) for pid in _carriers())


def memory_of_carrier_mb() -> float:
    """Its resident memory in MB; what it shares with its parent is counted in both."""
    return sum(memory_mb(pid) for pid in _carriers())


def _carriers() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if _MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _cpu_s(pid: int) -> float:
    # Behind the name, which may hold anything: utime and stime are the 14th and 15th member of all.
    members = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(members[11]) + int(members[12])) / _TICKS
