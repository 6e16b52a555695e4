"""Creates and gets of 2 KB Secrets over loopback TLS with 1, 8 and 64 connections, every write durable.

The load generator is a process of its own (bench/load.py) and shares the machine with the server.
"""

from __future__ import annotations

import json
import subprocess
import sys

from bench.rig import Daemon, daemon, table

SECONDS = 3.0


def load(server: Daemon, verb: str, *options: str) -> dict[str, float]:
    """One run of the load generator."""
    command = [sys.executable, "-m", "bench.load", verb, "--server", server.address]
    done = subprocess.run(
        [*command, "--ca", str(server.ca), "--token-file", str(server.token_file), *options],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Print rates and latencies."""
    rows = []
    with daemon("--controllers", "") as server:
        load(server, "create", "--most", "1000", "--connections", "8")
        for connections in (1, 8, 64):
            shared = ("--connections", str(connections), "--seconds", str(SECONDS))
            created = load(server, "create", *shared, "--prefix", f"c{connections}-")
            got = load(server, "get", *shared, "--existing", "1000")
            for verb, figures in (("create", created), ("get", got)):
                rows.append(
                    [
                        verb,
                        str(connections),
                        f"{figures['rate']:,.0f}",
                        f"{figures['p50_ms']:.2f}",
                        f"{figures['p99_ms']:.2f}",
                    ]
                )
    table(["operation", "connections", "per second", "p50 ms", "p99 ms"], sorted(rows))


if __name__ == "__main__":
    main()
