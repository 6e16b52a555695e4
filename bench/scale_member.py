"""One process that has a certain number of certificates and issues some more when it is told to.

`bench/scale.py` starts several of them and has them work in turns, so that whatever else the machine does
meets all sizes alike. Each line on standard input says what to do, each line on standard output is a JSON
object that answers it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.certificates import Bench, cpu_s, make_certificate, make_issuers, ready, running
from bench.rig import memory_mb
from certwright import app

FILL = 500
WAVE = 100
CA_ISSUERS = 10
QUIET_S = 60
# The first certificates pay for what is loaded on first use, and for what is kept up to some bound: the
# window of recent events, SQLite's pages, objects not yet packed.
WARM_UP = 1_000


async def wave(bench: Bench, begin: int, number: int) -> None:
    """Issue certificates number `begin` and following."""

    async def create() -> None:
        await asyncio.gather(
            *(
                make_certificate(bench, f"web-{n}", n % CA_ISSUERS, "ECDSA")
                for n in range(begin, begin + number)
            )
        )

    names = {f"web-{n}" for n in range(begin, begin + number)}
    await ready(bench, names.__contains__, number, create)


def bytes_read() -> int:
    """What this process has read from files so far, from the system's cache or not (Linux)."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("rchar"))


async def measured(bench: Bench, begin: int) -> dict[str, Any]:
    """One wave, up to its clean-up and its events: what each of its certificates costs."""
    counts, spent, read = bench.counted.counts.copy(), cpu_s(), bytes_read()
    await wave(bench, begin, WAVE)
    await asyncio.sleep(0.5)
    spent, read = cpu_s() - spent, bytes_read() - read
    counts = bench.counted.counts - counts
    return {
        "cpu_ms": 1e3 * spent / WAVE,
        "read_kb": read / 1e3 / WAVE,
        "requests": _all(counts) / WAVE,
        "writes": counts["object writes"] / WAVE,
        "events": counts["events"] / WAVE,
    }


def _all(counts: Counter[str]) -> int:
    return sum(number for what, number in counts.items() if what != "watches and lists")


async def quiet(bench: Bench) -> dict[str, Any]:
    """The share of a core that is used while nothing is to be done, and the requests in that time."""
    await asyncio.sleep(5)
    before, spent = bench.counted.counts.copy(), cpu_s()
    await asyncio.sleep(QUIET_S)
    return {"share": (cpu_s() - spent) / QUIET_S, "requests": dict(bench.counted.counts - before)}


async def filled(bench: Bench, size: int) -> float:
    """Issue `size` certificates; the memory that each of them has taken, in kB."""
    await make_issuers(bench)
    await wave(bench, 10**6, WARM_UP)
    await asyncio.sleep(2)
    gc.collect()
    empty = memory_mb()
    for begin in range(0, size, FILL):
        await wave(bench, begin, min(FILL, size - begin))
    await asyncio.sleep(2)
    gc.collect()
    return 1e3 * (memory_mb() - empty) / size


async def follow(folder: Path, size: int) -> None:
    """Fill the store, then do as told: `wave`, `quiet`; the end of the input is the end."""
    async with running(folder) as bench:
        print(json.dumps({"memory_kb": await filled(bench, size)}), flush=True)
        done = size
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "quiet":
                figures = await quiet(bench)
            else:
                figures, done = await measured(bench, done), done + WAVE
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    app.run(follow(Path(sys.argv[1]), int(sys.argv[2])))
