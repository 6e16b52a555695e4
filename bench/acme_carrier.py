"""What the process costs that carries requests to ACME servers: it is a child of the one that is measured."""

from __future__ import annotations

import os
from pathlib import Path

from bench import rig

_MODULE = b"certwright.acme.carrier"


def cpu_s() -> float:
    """Processor seconds of the child so far; 0 where there is none."""
    return sum(rig.cpu_s(pid) for pid in _carriers())


def memory_of_carrier_mb() -> float:
    """Its resident memory in MB; what it shares with its parent is counted in both."""
    return sum(rig.memory_mb(pid) for pid in _carriers())


def _carriers() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if _MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()]
