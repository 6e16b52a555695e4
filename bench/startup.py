"""Cold start to ready, and the memory of the idle process: API server, store and controllers together."""

from __future__ import annotations

import time

from bench.rig import daemon, median, memory_mb, table

RUNS = 5
SETTLE_S = 3.0


def main() -> None:
    """Print the median of several starts, each with an empty data directory."""
    starts, idle = [], []
    for _ in range(RUNS):
        with daemon() as server:
            time.sleep(SETTLE_S)
            starts.append(server.started_s)
            idle.append(memory_mb(server.pid))
    table(
        ["figure", "median", "lowest", "highest"],
        [
            ["start to ready, s", *(f"{x:.2f}" for x in (median(starts), min(starts), max(starts)))],
            ["idle memory, MB", *(f"{x:.0f}" for x in (median(idle), min(idle), max(idle)))],
        ],
    )


if __name__ == "__main__":
    main()
