"""Certificates issued by one replica, and by several that share the work: how the rate grows.

At a server without priority and fairness each replica is bound by its own limit (`--kube-api-qps` and burst),
so that several are faster until the processors, or the API server, are the bound. At one that has it they are
from the beginning.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.beside import controllers, pss_mb, rest, session
from bench.issuance import issue, make_issuers
from bench.rig import Daemon, cpu_s, daemon
from certwright.kube.api.core import LEASES

LIMITS = {"20/50": ("--enable-priority-and-fairness", "false"), "none": ()}
"""The flags of the server."""
PACED = 120
CASES = [(limit, shards) for limit in LIMITS for shards in (1, 2, 4)]
HEADINGS = [
    "QPS/burst of each",
    "replicas",
    "certificates/s",
    "CPU ms each, controllers",
    "CPU ms each, API server",
    "MB of a replica",
]
# Soon shared out, and then seldom looked at: of N replicas each looks at N leases.
_RETRY = "5s"
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Sharded:
    """What so many replicas did together."""

    limit: str
    shards: int
    rate: float
    controllers_ms: float
    server_ms: float
    memory_mb: float

    @property
    def name(self) -> str:
        """The run, in some words."""
        return f"{self.shards} shards, limit {self.limit}, certificates a second"

    def cells(self) -> list[str]:
        """For the table."""
        figures = (self.rate, self.controllers_ms, self.server_ms, self.memory_mb)
        return [self.limit, str(self.shards), *(f"{figure:.1f}" for figure in figures)]


def sharded(folder: Path, limit: str, shards: int, number: int) -> Sharded:
    """Issue so many certificates with so many replicas, each of which has a part of the Certificates. With a
    limit it is `PACED` of them at most, which takes a minute."""
    number = number if limit == "none" else min(number, PACED)
    flags = ["--leader-election-retry-period", _RETRY, "--shards", str(shards)]
    with daemon("--controllers", "", *LIMITS[limit], data_dir=folder) as server, ExitStack() as running:
        asyncio.run(make_issuers(server, has_label=True))
        begun = time.perf_counter()
        pids = [running.enter_context(controllers(server, *flags)) for _ in range(shards)]
        asyncio.run(_shared_out(server, shards if shards > 1 else 0))
        for pid in pids:
            rest(server, pid, since=begun, seconds=2)
        before, served = sum(map(cpu_s, pids)), cpu_s(server.pid)
        seconds = asyncio.run(issue(server, number))
        spent, served = sum(map(cpu_s, pids)) - before, cpu_s(server.pid) - served
        memory_mb = sum(map(pss_mb, pids)) / shards
    each_ms = 1_000 / number
    return Sharded(limit, shards, number / seconds, each_ms * spent, each_ms * served, memory_mb)


async def _shared_out(server: Daemon, shards: int) -> None:
    """Return when so many shards are held, by as many replicas."""
    async with session(server) as client, asyncio.timeout(120):
        while True:
            leases = (await client.list(LEASES, "kube-system")).items
            holders = [lease.spec.holder_identity for lease in leases if "-shard-" in lease.metadata.name]
            if len({holder for holder in holders if holder}) == len(holders) == shards:
                return
            await asyncio.sleep(_LOOK_EVERY_S)
