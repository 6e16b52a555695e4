"""What many certificates cost: each of them, and a process that has 50,000 of them and nothing to do.

make bench ARGS=scale                     500, 5,000 and 50,000 certificates: about ten minutes
CERTWRIGHT_SCALE=2000 make bench ARGS=scale   up to 2,000, for a first look

A process for each size issues them in waves of 500, all in the way that users have them issued: nothing is
prepared. Then the processes issue some more in turns, and each turn's cost is held against that of the
smallest in the same turn. Last, `certwright serve` is started over what the largest has stored.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.rig import Daemon, cpu_s, daemon, median, memory_mb, table
from certwright.kube.store.sqlite.file import SELECT_REVISION

SIZES = (500, 5_000, 50_000)
TURNS = 12
REST_S = 60


def sizes() -> list[int]:
    """The sizes to measure at, as far as `CERTWRIGHT_SCALE` allows."""
    most = int(os.environ.get("CERTWRIGHT_SCALE") or SIZES[-1])
    return sorted({min(size, most) for size in SIZES})


@dataclass(slots=True)
class Member:
    """A `bench.scale_member`, filled with `size` certificates."""

    size: int
    process: subprocess.Popen[str]
    memory_kb: float = 0.0
    turns: list[dict[str, Any]] = field(default_factory=list)

    def response(self) -> dict[str, Any]:
        """The next line of its output."""
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit(f"the process with {self.size:,} certificates has ended")
        response: dict[str, Any] = json.loads(line)
        return response

    def request(self, command: str) -> dict[str, Any]:
        """Send a command, and return the response."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.response()

    def row(self, smallest: Member) -> list[str]:
        """For the table."""
        middle = {what: median([turn[what] for turn in self.turns]) for what in self.turns[0]}
        ratios = [
            turn["cpu_ms"] / other["cpu_ms"] for turn, other in zip(self.turns, smallest.turns, strict=True)
        ]
        return [
            f"{self.size:,}",
            f"{middle['requests']:.2f}",
            f"{middle['writes']:.2f}",
            f"{middle['events']:.2f}",
            f"{middle['cpu_ms']:.2f}",
            f"{median(ratios):.2f}",
            f"{middle['read_kb']:.0f}",
            f"{self.memory_kb:.1f}",
        ]


HEADINGS = [
    "certificates",
    "requests each",
    "object writes",
    "events",
    "CPU ms",
    "CPU / first",
    "kB read",
    "memory kB",
]


@contextmanager
def member(folder: Path, size: int) -> Iterator[Member]:
    """A process with so many certificates."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "bench.scale_member", str(folder), str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        started = Member(size, process)
        try:
            started.memory_kb = started.response()["memory_kb"]
            yield started
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)


def in_turns(members: list[Member]) -> None:
    """Have each issue a wave, again and again."""
    for turn in range(TURNS + 1):
        # One that comes after a large one finds the processor's caches cold: not always the same.
        for measured_member in members if turn % 2 else reversed(members):
            figures = measured_member.request("wave")
            if turn:
                measured_member.turns.append(figures)


def side_by_side(folder: Path, store_sizes: list[int]) -> None:
    """Fill the stores, measure, print. The largest one's store is left in `folder`."""
    with ExitStack() as stack:
        members = [
            stack.enter_context(member(folder if size == store_sizes[-1] else folder / str(size), size))
            for size in store_sizes
        ]
        in_turns(members)
        table(HEADINGS, [measured_member.row(members[0]) for measured_member in members])
        rest = members[-1].request("quiet")
    share = f"{100 * rest['share']:.2f} % of a core"
    print(f"\nquiet with {store_sizes[-1]:,}: {share}, requests {rest['requests'] or 'none'}\n", flush=True)


def revision(store: Path) -> int:
    """The last revision in a store: whether there was any write."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        (last_revision,) = connection.execute(SELECT_REVISION).fetchone()
    return int(last_revision)


def settled(server: Daemon) -> float:
    """Wait until the daemon has looked at everything; the processor seconds that it has used by then."""
    spent = cpu_s(server.pid)
    while True:
        time.sleep(2)
        before, spent = spent, cpu_s(server.pid)
        if spent - before < 0.1:
            return spent


def start_again(folder: Path) -> list[list[str]]:
    """A daemon over what is stored: its start, its rest."""
    store = folder / "store.sqlite"
    before = revision(store)
    with daemon(data_dir=folder) as server:
        ready_cpu = cpu_s(server.pid)
        all_cpu = settled(server)
        seen = time.perf_counter(), cpu_s(server.pid)
        time.sleep(REST_S)
        share = (cpu_s(server.pid) - seen[1]) / (time.perf_counter() - seen[0])
        rows = [
            ["start to ready", f"{server.started_s:.1f} s ({ready_cpu:.1f} s of processor time)"],
            ["until all were looked at", f"{all_cpu:.1f} s of processor time"],
            [
                "memory then / highest",
                f"{memory_mb(server.pid):.0f} / {memory_mb(server.pid, peak=True):.0f} MB",
            ],
            ["share of a core in rest", f"{100 * share:.2f} %"],
        ]
    # With a free port chosen anew the Service `kubernetes` is written once; nothing else may be.
    rows.append(["writes (1 is the new port)", str(revision(store) - before)])
    return rows


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory(prefix="certwright-scale-") as name:
        folder = Path(name)
        with daemon(data_dir=folder):
            pass  # It makes its own authority, and what every store holds, so that later starts need not.
        side_by_side(folder, sizes())
        table(["a daemon over all of them", "figure"], start_again(folder))


if __name__ == "__main__":
    main()
