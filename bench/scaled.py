"""Certificates issued by several servers and shards over one etcd, beside one server on SQLite.

    make bench ARGS=scaled                                    all cases
    make bench ARGS="scaled --cases 1-1-1+1 --number 300"     one of them
    make bench ARGS="scaled --python OTHER/bin/python .venv/bin/python"  two versions in turns, case by case

A case is `sqlite`, or MEMBERS-SERVERS-SHARDS: etcd members, API servers, shards of controllers. `+N` adds N
servers that nothing asks for anything: what they spend is what following the store costs. The Certificates
are created at all servers in turns; shard N is a client of server N.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.beside import controllers, requests, session
from bench.issuance import create_certificate, make_issuers, wait_ready
from bench.rig import Daemon, cpu_s, daemon, table
from certwright.kube.api.core import LEASES
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import RANGE, RangeRequest
from certwright.resources.table import CERTIFICATES
from support.etcd import Etcd, running_cluster

CASES = ("sqlite", "1-1-1", "3-3-2", "3-3-4")
NUMBER = 500
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_WRITERS = 20
HEADINGS = [
    "etcd-servers-shards",
    "certificates/s",
    "CPU ms each: etcd",
    "servers",
    "idle server",
    "controllers",
    "writes each",
    "revisions each",
]


@dataclass(frozen=True, slots=True)
class Case:
    """What runs: etcd members (0: SQLite), servers, idle servers, shards."""

    members: int
    servers: int
    shards: int
    idle: int

    @classmethod
    def of(cls, text: str) -> Case:
        """Read `sqlite` or `3-3-2+1`. Raises `SystemExit`."""
        if text == "sqlite":
            return cls(0, 1, 1, 0)
        match = re.fullmatch(r"(\d+)-(\d+)-(\d+)(?:\+(\d+))?", text)
        if match is None:
            raise SystemExit(f"{text!r} is neither `sqlite` nor MEMBERS-SERVERS-SHARDS[+IDLE]")
        return cls(int(match[1]), int(match[2]), int(match[3]), int(match[4] or 0))


def main(options: Sequence[str] = ()) -> None:
    """Print one row for each case."""
    parser = argparse.ArgumentParser(prog="scaled")
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], help="the Pythons whose certwright is measured"
    )
    chosen = parser.parse_args(options)
    cases, rows = {text: Case.of(text) for text in chosen.cases}, []
    for text, case in cases.items():
        for python in chosen.python:
            sys.executable = python  # which servers and controllers are started with
            label = text if len(chosen.python) == 1 else f"{text}, {python}"
            rows.append([label, *_measured(case, chosen.number)])
    table(HEADINGS, rows)


@contextmanager
def _etcds(folder: Path, case: Case) -> Iterator[list[Etcd]]:
    if not case.members:
        yield []
        return
    with running_cluster(folder, case.members) as etcds:
        yield etcds


def _measured(case: Case, number: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name, ExitStack() as running:
        folder = Path(name)
        etcds = running.enter_context(_etcds(folder, case))
        members = tuple(etcd.member for etcd in etcds)
        flags = ["--controllers", ""]
        if members:
            flags += ["--store", f"etcd://{','.join(members)}", "--encryption-key-file", str(folder / "key")]
        servers = [
            running.enter_context(daemon(*flags, data_dir=_made(folder / f"s{n}")))
            for n in range(case.servers + case.idle)
        ]
        asyncio.run(make_issuers(servers[0], has_label=True))
        shards = [_start(running, servers[n % case.servers], case.shards) for n in range(case.shards)]
        asyncio.run(_wait_leading(servers[0], case.shards))
        time.sleep(3)
        return _issue(case, number, servers, [etcd.pid for etcd in etcds], shards, members)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _start(running: ExitStack, server: Daemon, shards: int) -> int:
    return running.enter_context(controllers(server, "--log-level", "warning", "--shards", str(shards)))


def _issue(
    case: Case,
    number: int,
    servers: list[Daemon],
    etcds: list[int],
    shards: list[int],
    members: tuple[str, ...],
) -> list[str]:
    busy, idle = servers[: case.servers], servers[case.servers :]
    groups = [etcds, [process.pid for process in busy], [process.pid for process in idle], shards]
    for n, server in enumerate(busy):  # one write at a time: e712f13 does not survive two first ones
        asyncio.run(_load([server], f"warm{n}", 10, writers=1))
    time.sleep(2)
    before, written = [sum(map(cpu_s, group)) for group in groups], _writes(busy)
    revision = asyncio.run(_revision(members)) if members else 0
    seconds = asyncio.run(_load(busy, "fresh", number))
    time.sleep(2)  # Events follow
    spent = [sum(map(cpu_s, group)) - was for group, was in zip(groups, before, strict=True)]
    spent[2] /= len(idle) or 1
    revisions = asyncio.run(_revision(members)) - revision if members else _writes(busy) - written
    figures = [number / seconds, *(1_000 * cpu_time / number for cpu_time in spent)]
    cells = [f"{figure:.1f}" for figure in figures]
    return [*cells, f"{(_writes(busy) - written) / number:.1f}", f"{revisions / number:.1f}"]


def _writes(servers: list[Daemon]) -> int:
    """The writes that the servers have answered, Leases left out."""
    return sum(
        count
        for server in servers
        for (verb, kind), count in asyncio.run(requests(server)).items()
        if verb in _WRITES and kind != "leases"
    )


async def _revision(members: tuple[str, ...]) -> int:
    client = EtcdClient(Access(members))
    answer = await client.call(RANGE, RangeRequest(key=b"x"))
    await client.close()
    return int(answer.header.revision)


async def _load(servers: list[Daemon], prefix: str, number: int, writers: int = _WRITERS) -> float:
    """Create so many Certificates with some clients over all servers; the seconds until all were Ready."""
    numbers = iter(range(number))

    async def write(server: Daemon) -> None:
        async with session(server) as client:
            for n in numbers:
                await create_certificate(client, n, prefix)

    async with session(servers[0]) as client, asyncio.timeout(600), asyncio.TaskGroup() as group:
        listing = await client.list(CERTIFICATES, "default")
        begun = time.perf_counter()
        seen = group.create_task(wait_ready(client, listing.resource_version, number, prefix))
        for n in range(writers):
            group.create_task(write(servers[n % len(servers)]))
    return seen.result() - begun


async def _wait_leading(server: Daemon, shards: int) -> None:
    """Return when each shard has a replica of its own."""
    async with session(server) as client, asyncio.timeout(120):
        while shards > 1:
            leases = (await client.list(LEASES, "kube-system")).items
            holders = [lease.spec.holder_identity for lease in leases if "-shard-" in lease.metadata.name]
            if len({holder for holder in holders if holder}) == len(holders) == shards:
                return
            await asyncio.sleep(0.5)
