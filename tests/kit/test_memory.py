"""Memory that is given back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from certwright.kube.util.memory import CHECK_S, LONGEST_CHECK_S, Trimmer

# Many pieces, every other one freed at the end: none of it lies at the end of the heap.
PROGRAM = """
import re
from certwright.kube.util.memory import give_back

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


LARGE = """
import re
from certwright.kube.util.memory import map_large_blocks

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])

map_large_blocks()
del bytearray(30_000_000)[:]
before = resident()
kept = []
for _ in range(100):
    large = bytes(1_000_000)
    kept.append(bytes(2_000))
    large2 = [bytes(1_000_000) for _ in range(2)]
del large, large2
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what glibc does")
def test_large_blocks_go_back_when_they_are_freed_also_after_larger_ones() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_500


class Memory:
    """The memory of a process, in megabytes: what it uses, and what it has freed and not returned."""

    def __init__(self) -> None:
        self.used, self.free, self.trims = 70, 0, 0

    def resident(self) -> int:
        return (self.used + self.free) << 20

    def trim(self) -> None:
        self.free, self.trims = 0, self.trims + 1


def test_memory_is_returned_after_a_peak_also_where_the_peak_lasted() -> None:
    memory = Memory()
    trimmer = Trimmer(memory.resident, memory.trim)
    assert (trimmer.check(), memory.trims) == (CHECK_S, 0)
    memory.used = 300
    assert [trimmer.check() for _ in range(3)] == [2 * CHECK_S, 4 * CHECK_S, 8 * CHECK_S]
    memory.used, memory.free = 75, 225
    assert trimmer.check() == CHECK_S
    assert memory.free == 0
    trims = memory.trims
    assert [trimmer.check() for _ in range(3)] == [CHECK_S] * 3
    assert memory.trims == trims


def test_a_process_that_needs_its_memory_is_trimmed_ever_more_rarely_until_it_grows() -> None:
    memory = Memory()
    trimmer = Trimmer(memory.resident, memory.trim)
    memory.used = 300
    waits = [trimmer.check() for _ in range(12)]
    assert waits[-1] == LONGEST_CHECK_S
    memory.free = 100
    assert trimmer.check() == CHECK_S
    assert memory.free == 0
