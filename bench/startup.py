"""Cold start to ready, and memory of the idle process: API server, store and controllers together."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from bench.rig import daemon, memory_mb, percentile, table

SETTLE_S = 3.0


def main(arguments: Sequence[str] = ()) -> None:
    """Print the median of several starts, each with an empty data directory."""
    parser = argparse.ArgumentParser(prog="startup", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    starts, idle = [], []
    for _ in range(options.runs):
        with daemon() as server:
            time.sleep(SETTLE_S)
            starts.append(server.started_s)
            idle.append(memory_mb(server.pid))
    rows = [
        [name, *(f"{value:.{digits}f}" for value in (percentile(values), min(values), max(values)))]
        for name, values, digits in (("start to ready, s", starts, 2), ("idle memory, MB", idle, 0))
    ]
    table(["figure", "median", "lowest", "highest"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
