"""What many certificates cost: each of them, and a process that has 50,000 of them and nothing to do.

make bench ARGS=scale                     500, 5,000 and 50,000 certificates: about ten minutes
CERTWRIGHT_SCALE=2000 make bench ARGS=scale   up to 2,000, for a first look

One process issues them in waves of 500, all in the way that users have them issued: nothing is prepared. Then
`certwright serve` is started over what is stored, as a process of its own.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bench.certificates import Bench, cpu_s, make_certificate, make_issuers, ready, running
from bench.rig import Daemon, daemon, memory_mb, table
from certwright import app
from certwright.store.sqlite_file import SELECT_REVISION

SIZES = (500, 5_000, 50_000)
WAVE = 500
CA_ISSUERS = 10
QUIET_S = 60
# The first certificates pay for what is loaded and compiled on first use.
WARM_UP = 100


@dataclass(slots=True)
class Figures:
    """What was measured when so many certificates were there."""

    certificates: int
    cpu_ms: float
    wall_s: float
    memory_kb: float
    counts: Counter[str] = field(default_factory=Counter)

    def row(self) -> list[str]:
        """For the table."""
        requests = sum(number for what, number in self.counts.items() if what != "watches and lists")
        return [
            f"{self.certificates:,}",
            f"{requests / WAVE:.2f}",
            f"{self.counts['object writes'] / WAVE:.2f}",
            f"{self.cpu_ms:.2f}",
            f"{WAVE / self.wall_s:.0f}",
            f"{self.memory_kb:.1f}",
        ]


def sizes() -> list[int]:
    """The sizes to measure at, as far as `CERTWRIGHT_SCALE` allows."""
    most = int(os.environ.get("CERTWRIGHT_SCALE") or SIZES[-1])
    return sorted({min(size, most) for size in SIZES})


async def wave(bench: Bench, begin: int, number: int) -> float:
    """Issue certificates number `begin` and following; how long it took."""

    async def create() -> None:
        await asyncio.gather(
            *(
                make_certificate(bench, f"web-{n}", n % CA_ISSUERS, "ECDSA")
                for n in range(begin, begin + number)
            )
        )

    wanted = {f"web-{n}" for n in range(begin, begin + number)}
    return await ready(bench, wanted.__contains__, number, create)


async def measured(bench: Bench, begin: int, at: int, empty_mb: float) -> Figures:
    """One wave, up to its clean-up and its events, as the last of `at` certificates."""
    before, spent = bench.counted.counts.copy(), cpu_s()
    took = await wave(bench, begin, at - begin)
    await asyncio.sleep(1)
    spent = cpu_s() - spent
    counts = bench.counted.counts - before
    gc.collect()
    kilobytes = 1_000 * (memory_mb() - empty_mb) / at
    return Figures(at, 1_000 * spent / (at - begin), took, kilobytes, counts)


async def quiet(bench: Bench, seconds: float) -> tuple[float, Counter[str]]:
    """The share of a core that is used while nothing is to be done, and the requests in that time."""
    await asyncio.sleep(5)
    before, spent = bench.counted.counts.copy(), cpu_s()
    await asyncio.sleep(seconds)
    return (cpu_s() - spent) / seconds, bench.counted.counts - before


async def issue_all(folder: Path) -> list[list[str]]:
    """Certificates up to the largest size; a row for each size."""
    rows = []
    with daemon(data_dir=folder):
        pass  # It makes its own authority, and what every store holds, so that later starts need not.
    async with running(folder) as bench:
        await make_issuers(bench)
        await wave(bench, 10**6, WARM_UP)
        empty, done = memory_mb(), 0
        for size in sizes():
            while done < size - WAVE:
                await wave(bench, done, WAVE)
                done += WAVE
            figures = await measured(bench, done, size, empty)
            done = size
            rows.append(figures.row())
            print(".", " ".join(figures.row()), dict(figures.counts), flush=True)
        share, counts = await quiet(bench, QUIET_S)
    print(f"\nquiet after {done:,}: {100 * share:.2f} % of a core, requests {dict(counts) or 'none'}\n")
    return rows


def daemon_cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def revision(store: Path) -> int:
    """The last revision in a store: whether there was any write."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        (found,) = connection.execute(SELECT_REVISION).fetchone()
    return int(found)


def settled(server: Daemon) -> float:
    """Wait until the daemon has looked at everything; the processor seconds that it has used by then."""
    spent = daemon_cpu_s(server.pid)
    while True:
        time.sleep(2)
        before, spent = spent, daemon_cpu_s(server.pid)
        if spent - before < 0.1:
            return spent


def start_again(folder: Path) -> list[list[str]]:
    """A daemon over what is stored: its start, its rest."""
    store = folder / "store.sqlite"
    before = revision(store)
    with daemon(data_dir=folder) as server:
        ready_cpu = daemon_cpu_s(server.pid)
        all_cpu = settled(server)
        seen = time.perf_counter(), daemon_cpu_s(server.pid)
        time.sleep(QUIET_S)
        share = (daemon_cpu_s(server.pid) - seen[1]) / (time.perf_counter() - seen[0])
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
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="certwright-scale-") as name:
        folder = Path(name)
        rows = app.run(issue_all(folder))
        headings = ["certificates", "requests", "object writes", "CPU ms", "per second", "memory kB"]
        table([headings[0], *(f"{heading} each" for heading in headings[1:4]), *headings[4:]], rows)
        print()
        table(["a daemon over all of them", "figure"], start_again(folder))


if __name__ == "__main__":
    main()
