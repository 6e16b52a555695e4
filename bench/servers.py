"""Certificates issued by several servers and shards over one etcd, beside one server on SQLite.

    make bench ARGS=servers                                    all cases
    make bench ARGS="servers --cases 1-1-1+1 --number 300"     one of them

A case is `sqlite`, or MEMBERS-SERVERS-SHARDS: etcd members, API servers, shards of controllers. `+N` adds N
servers without clients: what they spend is what following the store costs. The Certificates are created at
all servers in turns; shard N is a client of server N.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from bench.issuance import issue, make_issuers
from bench.rig import Daemon, controllers, cpu_s, daemon, session, table, writes
from certwright.kube.api.core import LEASES
from certwright.kube.client.rest import Client
from support.etcd import running_cluster

CASES = ("sqlite", "1-1-1", "3-3-2", "3-3-4")
_WRITERS = 20
HEADINGS = [
    "etcd-servers-shards",
    "certificates/s",
    "CPU ms each: etcd",
    "servers",
    "idle server",
    "controllers",
    "writes each",
]


def _measured(case: str, number: int) -> list[str]:
    """The row of one case. Raises `SystemExit` if it is none."""
    match = re.fullmatch(r"(\d+)-(\d+)-(\d+)(?:\+(\d+))?", "0-1-1" if case == "sqlite" else case)
    if match is None:
        raise SystemExit(f"{case!r} is neither `sqlite` nor MEMBERS-SERVERS-SHARDS[+IDLE]")
    members, busy, shards, idle = (int(group or 0) for group in match.groups())
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name, ExitStack() as running:
        folder = Path(name)
        etcds = running.enter_context(running_cluster(folder, members)) if members else []
        flags = ["--controllers", ""]
        if etcds:
            store = f"etcd://{','.join(etcd.member for etcd in etcds)}"
            flags += ["--store", store, "--encryption-key-file", str(folder / "key")]
        servers = []
        for n in range(busy + idle):
            (data_dir := folder / f"server{n}").mkdir()
            servers.append(running.enter_context(daemon(*flags, data_dir=data_dir)))
        pids = [
            running.enter_context(controllers(servers[n % busy], "--shards", str(shards)))
            for n in range(shards)
        ]
        groups = [
            [etcd.pid for etcd in etcds],
            [server.pid for server in servers[:busy]],
            [server.pid for server in servers[busy:]],
            pids,
        ]
        return [case, *asyncio.run(_issued(servers[:busy], groups, number))]


async def _issued(servers: list[Daemon], groups: list[list[int]], number: int) -> list[str]:
    """Issue so many certificates; the rate, and what each group of processes spent on each of them."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(session(server)) for server in servers]
        await make_issuers(clients[0])
        await _wait_leading(clients[0], len(groups[-1]))
        await issue(clients, "warm", 10, writers=len(clients))
        await asyncio.sleep(2)
        before, written = [sum(map(cpu_s, group)) for group in groups], await writes(*servers)
        seconds = await issue(clients, "fresh", number, writers=_WRITERS)
        await asyncio.sleep(2)  # Events follow.
    spent = [sum(map(cpu_s, group)) - was for group, was in zip(groups, before, strict=True)]
    spent[2] /= len(groups[2]) or 1
    figures = [number / seconds, *(1_000 * cpu_time / number for cpu_time in spent)]
    return [f"{figure:.1f}" for figure in (*figures, (await writes(*servers) - written) / number)]


async def _wait_leading(client: Client, shards: int) -> None:
    """Return when each shard has a replica of its own."""
    async with asyncio.timeout(120):
        while shards > 1:
            leases = (await client.list(LEASES, "kube-system")).items
            holders = [lease.spec.holder_identity for lease in leases if "-shard-" in lease.metadata.name]
            if len({holder for holder in holders if holder}) == len(holders) == shards:
                return
            await asyncio.sleep(0.5)


def main(arguments: Sequence[str] = ()) -> None:
    """Print one row for each case."""
    parser = argparse.ArgumentParser(prog="servers", description=__doc__)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--number", type=int, default=500)
    options = parser.parse_args(arguments)
    table(HEADINGS, [_measured(case, options.number) for case in options.cases])


if __name__ == "__main__":
    main(sys.argv[1:])
