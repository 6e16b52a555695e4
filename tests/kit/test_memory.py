"""Memory that is given back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Many pieces, every other one freed at the end: none of it lies at the end of the heap.
PROGRAM = """
import re
from certwright.kit.memory import give_back

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])

pieces = [bytes(60_000) for _ in range(1_000)]
del pieces[:-1]
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what glibc does")
def test_freed_memory_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 30_000
