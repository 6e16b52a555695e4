"""cert-manager's controllers and ours on Kubernetes' own API server, beside `certwright serve`.

    make kubernetes third-party ARGS=cert-manager    build what is compared (ten minutes)
    make bench ARGS=kubernetes                       500 ECDSA certificates from 10 CA issuers, in turns

Every program runs with its default flags, but for the client limits of cert-manager, which are lifted. The
kube-apiserver keeps its objects in an etcd that syncs its log to disk, `certwright serve` in SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.beside import controllers, requests, session
from bench.issuance import issue, make_issuers
from bench.rig import Daemon, cpu_s, daemon, memory_mb, table
from certwright.resources.table import CERTIFICATES
from support.etcd import running_etcd
from support.oracle import running_kubernetes
from support.programs import TOOLS, spawn, stop

NUMBER, ROUNDS = 500, 2
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
HEADINGS = [
    "controllers, API server",
    "seconds",
    "certificates/s",
    "CPU ms each: controllers",
    "server and store",
    "memory, MB: controllers",
    "server and store",
    "writes each",
    "issued twice",
]


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs: a server with its store, and controllers (none where the server has its own)."""

    server: Daemon
    serving: tuple[int, ...]
    controlling: tuple[int, ...]


@contextmanager
def kubernetes() -> Iterator[tuple[Daemon, tuple[int, ...]]]:
    """A kube-apiserver over etcd with the definitions of `deploy/crds.yaml`."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder, begun = Path(name), time.perf_counter()
        with running_etcd(folder) as etcd, running_kubernetes(folder, f"http://{etcd.member}") as server:
            peer = Daemon(server.pid, server.url, folder, time.perf_counter() - begun)
            _define(peer)
            yield peer, (server.pid, etcd.pid)


def _define(server: Daemon) -> None:
    """Create the definitions, and wait until the server serves them."""
    kubectl = ["kubectl", "--kubeconfig", str(server.data_dir / "kubeconfig")]
    crds = str(Path(__file__).parents[1] / "deploy" / "crds.yaml")
    subprocess.run([*kubectl, "create", "-f", crds], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        [*kubectl, "wait", "--for=condition=Established", "--timeout=60s", "-f", crds],
        check=True,
        stdout=subprocess.DEVNULL,
    )


@contextmanager
def cert_manager_on_kubernetes() -> Iterator[Stack]:
    """cert-manager's controllers on kube-apiserver."""
    with kubernetes() as (server, serving), tempfile.TemporaryFile() as log:
        program = TOOLS / "cert-manager-controller"
        process = spawn([str(program), str(server.data_dir / "kubeconfig")], log)
        try:
            yield Stack(server, serving, (process.pid,))
        finally:
            stop(process)


@contextmanager
def certwright_on_kubernetes() -> Iterator[Stack]:
    """Our controllers on kube-apiserver."""
    with kubernetes() as (server, serving), controllers(server, "--log-level", "warning") as pid:
        yield Stack(server, serving, (pid,))


@contextmanager
def certwright_alone() -> Iterator[Stack]:
    """`certwright serve`, which has both."""
    with daemon() as server:
        yield Stack(server, (server.pid,), ())


CASES: dict[str, Callable[[], AbstractContextManager[Stack]]] = {
    "cert-manager, kube-apiserver": cert_manager_on_kubernetes,
    "certwright controllers, kube-apiserver": certwright_on_kubernetes,
    "certwright serve": certwright_alone,
}


def _measured(name: str, stack: Stack, number: int) -> list[str]:
    asyncio.run(make_issuers(stack.server, has_label=True))
    time.sleep(5)  # The controllers have started, and the issuers are Ready.
    processes = (stack.controlling, stack.serving)
    spent, written = [sum(map(cpu_s, pids)) for pids in processes], _writes(stack.server)
    seconds = asyncio.run(issue(stack.server, number))
    time.sleep(2)  # Events follow.
    cpu_ms = [
        1_000 * (sum(map(cpu_s, pids)) - before) / number
        for pids, before in zip(processes, spent, strict=True)
    ]
    memory = [sum(memory_mb(pid) for pid in pids) for pids in processes]
    writes, twice = (_writes(stack.server) - written) / number, asyncio.run(_issued_again(stack.server))
    cells = [f"{value:.1f}" for value in (seconds, number / seconds, *cpu_ms)]
    return [name, *cells, *(f"{value:.0f}" for value in memory), f"{writes:.1f}", str(twice)]


def _writes(server: Daemon) -> int:
    """The writes that the server has answered, Leases left out; Events count."""
    counts = asyncio.run(requests(server))
    return sum(count for (verb, kind), count in counts.items() if verb in _WRITES and kind != "leases")


async def _issued_again(server: Daemon) -> int:
    async with session(server) as client:
        certificates = (await client.list(CERTIFICATES, "default")).items
    return sum((certificate.status.revision or 1) - 1 for certificate in certificates)


def main(options: Sequence[str] = ()) -> None:
    """Print a row for each case and round."""
    parser = argparse.ArgumentParser(prog="kubernetes")
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args(options)
    rows = []
    for _ in range(chosen.rounds):
        for name, start in CASES.items():
            with start() as stack:
                rows.append(_measured(name, stack, chosen.number))
    table(HEADINGS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
