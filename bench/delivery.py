"""From issuance to served: 100 renewals with real servers, each with its hook."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.rig import median, table
from support.live import LiveWorld
from support.supplied import SERVERS, Server, renew, served, supplied_servers

_RENEWALS = int(os.environ.get("BENCH_RENEWALS", "100"))
_PAUSE_S = 0.002


def main() -> None:
    """Print p50 and p99 for each server."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        # PostgreSQL runs as another user.
        folder.chmod(0o755)
        (folder / "tls").mkdir()
        asyncio.run(_measure(folder))


async def _measure(folder: Path) -> None:
    times: dict[str, list[float]] = {server.name: [] for server in SERVERS}
    async with supplied_servers(folder, SERVERS) as (world, ports):
        for _ in range(_RENEWALS):
            for name, seconds in (await _seconds_to_served(world, ports)).items():
                times[name].append(seconds)
    rows = [[name, _ms(median(durations)), _ms(_p99(durations))] for name, durations in times.items()]
    table([f"from the Secret to served, {_RENEWALS} renewals", "p50", "p99"], rows)


async def _seconds_to_served(world: LiveWorld, ports: Mapping[str, int]) -> dict[str, float]:
    expected = await renew(world)
    began = time.perf_counter()

    async def wait(server: Server) -> float:
        async with asyncio.timeout(60):
            while await served(server, ports[server.name]) != expected:  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(_PAUSE_S)
        return time.perf_counter() - began

    durations = await asyncio.gather(*map(wait, SERVERS))
    return dict(zip((server.name for server in SERVERS), durations, strict=True))


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.99 * len(values)))]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
