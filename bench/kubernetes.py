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

from bench.issuance import issue, make_issuers
from bench.rig import Daemon, controllers, cpu_s, daemon, memory_mb, session, table, writes
from certwright.resources.table import CERTIFICATES
from support.etcd import running_etcd
from support.oracle import running_kubernetes
from support.programs import TOOLS, spawn, stop

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
    """A kube-apiserver over etcd that serves the definitions of `deploy/crds.yaml`."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder, begun = Path(name), time.perf_counter()
        with running_etcd(folder) as etcd, running_kubernetes(folder, f"http://{etcd.member}") as server:
            peer = Daemon(server.pid, server.url, folder, time.perf_counter() - begun)
            crds = str(Path(__file__).parents[1] / "deploy" / "crds.yaml")
            kubectl = ["kubectl", "--kubeconfig", str(folder / "kubeconfig")]
            wait = ["wait", "--for=condition=Established", "--timeout=60s"]
            for command in (["create"], wait):
                subprocess.run([*kubectl, *command, "-f", crds], check=True, stdout=subprocess.DEVNULL)
            yield peer, (server.pid, etcd.pid)


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
    with kubernetes() as (server, serving), controllers(server) as pid:
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


async def _measured(name: str, stack: Stack, number: int) -> list[str]:
    processes = (stack.controlling, stack.serving)
    async with session(stack.server) as client:
        await make_issuers(client)
        await asyncio.sleep(5)  # The controllers have started, and the issuers are Ready.
        spent, written = [sum(map(cpu_s, pids)) for pids in processes], await writes(stack.server)
        seconds = await issue([client], "fresh", number)
        await asyncio.sleep(2)  # Events follow.
        cpu_ms = [
            1_000 * (sum(map(cpu_s, pids)) - before) / number
            for pids, before in zip(processes, spent, strict=True)
        ]
        each = (await writes(stack.server) - written) / number
        certificates = (await client.list(CERTIFICATES, "default")).items
    twice = sum((certificate.status.revision or 1) - 1 for certificate in certificates)
    memory = [f"{sum(memory_mb(pid) for pid in pids):.0f}" for pids in processes]
    cells = [f"{value:.1f}" for value in (seconds, number / seconds, *cpu_ms)]
    return [name, *cells, *memory, f"{each:.1f}", str(twice)]


def main(arguments: Sequence[str] = ()) -> None:
    """Print a row for each case and round."""
    parser = argparse.ArgumentParser(prog="kubernetes", description=__doc__)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    if not all((TOOLS / name).exists() for name in ("kube-apiserver", "cert-manager-controller")):
        print("not measured: run `make kubernetes third-party ARGS=cert-manager`")
        return
    rows = []
    for _ in range(options.rounds):
        for name, start in CASES.items():
            with start() as stack:
                rows.append(asyncio.run(_measured(name, stack, options.number)))
    table(HEADINGS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
