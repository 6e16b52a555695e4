"""Memory of many certificates in `certwright serve`, and a start over them.

One process issues them in waves of 500; the first 1,000 more are not counted, because they fill what has a
bound (recent Events, pages of SQLite, uncompressed objects). Then `certwright serve` is started over the same
store.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from bench.issuance import issue, make_issuers
from bench.rig import Daemon, cpu_s, daemon, memory_mb, session, table
from certwright.kube.store.sqlite.file import SELECT_REVISION

WAVE = 500
WARM_UP = 1_000
REST_S = 20


async def _fill(server: Daemon, number: int) -> list[list[str]]:
    async with session(server) as client:
        await make_issuers(client)
        await issue([client], "warm", WARM_UP)
        _settle(server)
        empty_mb, spent = memory_mb(server.pid), cpu_s(server.pid)
        for begin in range(0, number, WAVE):
            await issue([client], f"wave{begin}", min(WAVE, number - begin))
    each_ms = 1_000 * (cpu_s(server.pid) - spent) / number
    _settle(server)
    each_kb = 1_000 * (memory_mb(server.pid) - empty_mb) / number
    return [
        ["issued: processor time each", f"{each_ms:.1f} ms"],
        ["issued: memory each / of the process", f"{each_kb:.2f} kB / {memory_mb(server.pid):.0f} MB"],
    ]


def _settle(server: Daemon) -> float:
    """Wait until the server hardly works any more; its processor seconds so far."""
    spent = cpu_s(server.pid)
    while True:
        time.sleep(2)
        before, spent = spent, cpu_s(server.pid)
        if spent - before < 0.1:
            return spent


def _start(folder: Path) -> list[list[str]]:
    """Rows of a start over what is stored."""
    with daemon(data_dir=folder) as server:
        ready_s, settled_s = cpu_s(server.pid), _settle(server)
        begun, before = time.perf_counter(), cpu_s(server.pid)
        time.sleep(REST_S)
        share = (cpu_s(server.pid) - before) / (time.perf_counter() - begun)
        memory = f"{memory_mb(server.pid):.0f} / {memory_mb(server.pid, peak=True):.0f} MB"
    return [
        ["start to ready", f"{server.started_s:.1f} s ({ready_s:.1f} s of processor time)"],
        ["until all are reconciled", f"{settled_s:.1f} s of processor time"],
        ["memory then / highest", memory],
        ["share of a core at rest", f"{100 * share:.2f} %"],
    ]


def _revision(folder: Path) -> int:
    """The last revision of the store: how many writes there were."""
    with closing(sqlite3.connect(f"file:{folder / 'store.sqlite'}?mode=ro", uri=True)) as connection:
        (revision,) = connection.execute(SELECT_REVISION).fetchone()
    return int(revision)


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="memory", description=__doc__)
    parser.add_argument("--number", type=int, default=10_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        with daemon(data_dir=folder) as server:
            rows = asyncio.run(_fill(server, options.number))
        before = _revision(folder)
        rows += _start(folder)
        # Another free port is one write, of the Service `kubernetes`.
        rows.append(["writes of that start (the new port, Leases)", str(_revision(folder) - before)])
    table([f"{options.number:,} certificates", "figure"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
