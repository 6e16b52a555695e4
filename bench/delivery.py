"""From the Secret to the served certificate: renewals with eight real servers, each with its hook."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.rig import percentile, table
from support.supplied import SERVERS, Server, renew, served, supplied_servers

_PAUSE_S = 0.002


async def _measure(folder: Path, renewals: int) -> dict[str, list[float]]:
    """The seconds from each renewal until each server presents the new certificate."""
    times: dict[str, list[float]] = {server.name: [] for server in SERVERS}
    async with supplied_servers(folder, SERVERS) as (world, ports):
        for _ in range(renewals):
            expected = await renew(world)
            began = time.perf_counter()

            async def wait(server: Server, expected: bytes = expected, began: float = began) -> None:
                async with asyncio.timeout(60):
                    while await served(server, ports[server.name]) != expected:  # noqa: ASYNC110
                        await asyncio.sleep(_PAUSE_S)
                times[server.name].append(time.perf_counter() - began)

            await asyncio.gather(*map(wait, SERVERS))
    return times


def main(arguments: Sequence[str] = ()) -> None:
    """Print p50 and p99 for each server."""
    parser = argparse.ArgumentParser(prog="delivery", description=__doc__)
    parser.add_argument("--renewals", type=int, default=100)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user.
        (folder / "tls").mkdir()
        times = asyncio.run(_measure(folder, options.renewals))
    rows = [
        [name, *(f"{1_000 * percentile(durations, part):.0f} ms" for part in (50, 99))]
        for name, durations in times.items()
    ]
    table([f"from the Secret to served, {options.renewals} renewals", "p50", "p99"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
