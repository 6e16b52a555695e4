"""The API server beside Kubernetes' own: the same load, the same processors, one run.

Ours over SQLite (durable), over memory and over etcd; Kubernetes' kube-apiserver over an etcd of its own
(`make kubernetes`; the etcd is an installed one, which syncs to disk). For each figure the servers take
turns, so that other load on the machine affects all of them. Objects have 2 KB where nothing else is said.

    make bench ARGS="apiserver"                     everything, in about five minutes
    make bench ARGS="apiserver --only rates"        one part: rates, lists, large, watch, memory
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load import Connection, Target, creating, getting, measure, updating
from bench.rig import cpu_s, daemon, memory_mb, percentile, table
from certwright.kit.event_loop import run
from support.etcd import running_etcd
from support.oracle import client_context, running_kubernetes, write_credentials
from support.programs import TOOLS

GROUP = "bench.certwright.test"
KINDS = ("things", "small", "large", "huge", "notes", "watched")
"""Plurals of the kinds that are defined in each server; each has the same schema."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
CONNECTIONS = (1, 8, 64)
WATCHED_S = 4.0
_KEPT = 1_000
_OBJECTS = 30_000
_WRITTEN = 64
_AT = re.compile(rb'"at":"(\d+)"')


@dataclass(frozen=True, slots=True)
class Contender:
    """A running server. `pids`: its own process first, then its etcd's, if it has one to itself."""

    name: str
    url: str
    pids: tuple[int, ...]
    certificate: Path

    @property
    def tls(self) -> ssl.SSLContext:
        """A context with the administrator's certificate."""
        return client_context(self.certificate)

    def target(self, plural: str = "things", size: int = 2_048) -> Target:
        """The collection of that kind, with objects of so many bytes."""

        def make(name: str) -> dict[str, Any]:
            # Data that cannot be compressed, and the moment when it was made.
            spec = {"data": os.urandom(size // 2).hex(), "at": str(time.monotonic_ns())}
            meta = {"name": name, "labels": {"bench": "load"}}
            kind = plural.capitalize()
            return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, "spec": spec}

        return Target(self.url, self.tls, _path(plural), make)

    async def fill(self, count: int, plural: str = "things", size: int = 2_048) -> None:
        """Create so many objects."""
        target = self.target(plural, size)
        await measure(target, creating(target, ""), connections=8, seconds=600.0, most=count)

    async def define(self) -> None:
        """Create the kinds, and wait until each is served."""
        definitions, names = Target(self.url, self.tls, CRDS, _definition), iter(KINDS)
        await measure(definitions, lambda c: c.send(definitions.create(next(names))), most=len(KINDS))
        for plural in KINDS:
            target = self.target(plural)
            async with target.connections(1) as (connection,):
                while await connection.send(target.get()) != 200:  # noqa: ASYNC110 - another process's doing
                    await asyncio.sleep(0.1)


def _path(plural: str) -> str:
    return f"/apis/{GROUP}/v1/namespaces/default/{plural}"


def _definition(plural: str) -> dict[str, Any]:
    text = {"type": "string"}
    spec = {"type": "object", "properties": {"data": text, "at": text}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": plural.capitalize()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@contextmanager
def ours(store: str) -> Iterator[Contender]:
    """`certwright serve` without controllers, over `sqlite`, `memory` or `etcd`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="certwright-bench-")))
        ca, certificate = write_credentials(folder)
        flags = ["--controllers", "", "--client-ca-file", str(ca)]
        beside: tuple[int, ...] = ()
        if store == "etcd":
            etcd = stack.enter_context(running_etcd(folder))
            flags, beside = [*flags, "--store", etcd.url], (etcd.pid,)
        elif store == "memory":
            flags += ["--store", "memory"]
        server = stack.enter_context(daemon(*flags, data_dir=folder / "data"))
        yield Contender(f"ours, {store}", server.address, (server.pid, *beside), certificate)


@contextmanager
def kubernetes() -> Iterator[Contender]:
    """Kubernetes' kube-apiserver, over an etcd that syncs its log to disk."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        with running_etcd(folder) as etcd, running_kubernetes(folder, f"http://{etcd.member}") as server:
            pids = (server.pid, etcd.pid)
            yield Contender("kube-apiserver, etcd", server.url, pids, folder / "admin.pem")


async def rates(contenders: Sequence[Contender]) -> None:
    """Creates, gets and updates per second, and the server's processor time of each."""
    for contender in contenders:
        await contender.fill(_KEPT)
    rows: list[list[str]] = []
    for verb in ("create", "get", "update"):
        for connections in CONNECTIONS:
            per_second, spent = [], []
            for contender in contenders:
                target = contender.target()
                if verb == "create":
                    load = creating(target, f"c{connections}-")
                else:
                    load = getting(target, _KEPT) if verb == "get" else updating(target, _KEPT)
                before, seconds = sum(map(cpu_s, contender.pids)), 3.0
                per_second.append((await measure(target, load, connections=connections, seconds=seconds))[0])
                spent.append(1e6 * (sum(map(cpu_s, contender.pids)) - before) / seconds / per_second[-1])
            cells = [f"{rate:,.0f} ({each:,.0f} µs)" for rate, each in zip(per_second, spent, strict=True)]
            rows.append([verb, str(connections), *cells, f"{per_second[0] / per_second[-1]:.1f} ×"])
    headings = [contender.name for contender in contenders]
    table(["per second (processor time)", "connections", *headings, "ours, sqlite : the last"], rows)


async def lists(contenders: Sequence[Contender]) -> None:
    """How long a list of 1,000 and one of 10,000 take."""
    rows = []
    for plural, count in (("small", 1_000), ("large", 10_000)):
        medians = []
        for contender in contenders:
            await contender.fill(count, plural)
        for contender in contenders:
            target = contender.target(plural)
            medians.append((await measure(target, _listing(target), seconds=5.0, most=20))[1])
        ratio = f"{medians[-1] / medians[0]:.1f} ×"
        rows.append([f"{count:,}", *(f"{median:,.1f}" for median in medians), ratio])
    headings = [contender.name for contender in contenders]
    table(["objects listed, ms", *headings, "ours, sqlite : the last"], rows)


def _listing(target: Target, accept: str = "application/json") -> Callable[[Connection], Any]:
    request = target.get(accept=accept)
    return lambda connection: connection.send(request)


async def large(contenders: Sequence[Contender]) -> None:
    """A metadata-only list of 300 objects of 1 MB."""
    rows = []
    for contender in contenders:
        await contender.fill(300, "huge", 1_000_000)
        await asyncio.sleep(1.0)
        target, server = contender.target("huge"), Path(f"/proc/{contender.pids[0]}")
        (server / "clear_refs").write_text("5")  # resets the peak
        before, read = memory_mb(contender.pids[0], peak=True), _bytes_read(server)
        first = (await measure(target, _listing(target, METADATA), most=1))[1]
        grown, read = memory_mb(contender.pids[0], peak=True) - before, _bytes_read(server) - read
        later = (await measure(target, _listing(target, METADATA), most=10))[1]
        cells = [f"{first:.1f}", f"{later:.1f}", f"{read / 1e6:.2f}", f"{grown:.1f}"]
        rows.append([contender.name, *cells])
    headings = ["metadata of 300 × 1 MB", "first, ms", "later, ms", "MB read for it", "memory peak, MB more"]
    table(headings, rows)


def _bytes_read(server: Path) -> int:
    """By its system calls, from files and connections alike, such as what etcd sent to kube-apiserver."""
    return int((server / "io").read_text().partition("rchar: ")[2].partition("\n")[0])


async def memory(contenders: Sequence[Contender]) -> None:
    """Resident memory, idle and with 30,000 more objects."""
    rows = []
    for contender in contenders:
        before = [memory_mb(pid) for pid in contender.pids]
        await contender.fill(_OBJECTS, "notes")
        await asyncio.sleep(2.0)
        after = [memory_mb(pid) for pid in contender.pids]
        cells = [f"{size:.0f}" for size in (before[0], after[0], after[0] - before[0])]
        beside = f"{before[1]:.0f} → {after[1]:.0f}" if len(before) > 1 else ""
        rows.append([contender.name, *cells, beside])
    table(["memory, MB", "before", f"with {_OBJECTS:,} more", "growth", "its etcd"], rows)


async def watch(contenders: Sequence[Contender]) -> None:
    """How soon 1 and 100 watchers receive a write, at 50 and 1,000 writes a second."""
    for contender in contenders:
        await contender.fill(_WRITTEN, "watched", 512)
    rows = []
    for watchers in (1, 100):
        for rate in (50, 1_000):
            for contender in contenders:
                cells = await _delays(contender, watchers, rate)
                rows.append([str(watchers), str(rate), contender.name, *cells])
    headings = ["watchers", "requested/s", "server", "written/s", "from the request: p50 ms", "p99 ms"]
    table([*headings, "from the response: p50 ms", "p99 ms", "server busy"], rows)


async def _delays(contender: Contender, watchers: int, rate: int) -> list[str]:
    """Cells for so many watchers and writes a second. An event that comes before the response counts as 0."""
    target = contender.target("watched", 512)
    async with target.connections(1) as (connection,):
        await connection.send(target.get(query="?limit=1"))
        revision = json.loads(connection.body)["metadata"]["resourceVersion"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load", "--server", contender.url, "--path", _path("watched")),
        *("--revision", revision, "--count", str(watchers), "--certificate", str(contender.certificate)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 28,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdout.readline()
    spent, begun = sum(map(cpu_s, contender.pids)), time.perf_counter()
    answered = await _write_evenly(target, rate)
    took = time.perf_counter() - begun
    process.stdin.write(f"{len(answered) * watchers}\n".encode())
    report = json.loads(await process.stdout.readline())
    busy = (sum(map(cpu_s, contender.pids)) - spent) / took
    received = [(stamp, at) for stamp, at in report if stamp in answered]
    await process.wait()
    if len(received) != len(answered) * watchers:
        raise SystemExit(f"{contender.name}: {len(received)} events of {len(answered)} × {watchers} came")
    delays = (
        [(at - stamp) / 1e6 for stamp, at in received],
        [max(0, at - answered[stamp]) / 1e6 for stamp, at in received],
    )
    cells = [f"{percentile(values, part):.2f}" for values in delays for part in (50, 99)]
    return [f"{len(answered) / took:,.0f}", *cells, f"{busy:.0%}"]


async def _write_evenly(target: Target, rate: int) -> dict[int, int]:
    """Replace objects at an even pace: when the response to each write came, by the stamp in the object."""
    answered: dict[int, int] = {}
    loop = asyncio.get_running_loop()
    begun, numbers = loop.time(), iter(range(round(rate * WATCHED_S)))

    async def drive(connection: Connection, own: int) -> None:
        await connection.send(target.get(f"load-{own}"))
        for number in numbers:
            if (early := begun + number / rate - loop.time()) > 0:
                await asyncio.sleep(early)
            request = target.replace(f"load-{own}", connection.revision)
            assert await connection.send(request) == 200, connection.body
            stamp = _AT.search(request)
            assert stamp is not None
            answered[int(stamp[1])] = time.monotonic_ns()

    async with target.connections(min(_WRITTEN, max(1, rate // 50))) as opened:
        await asyncio.gather(*(drive(connection, own) for own, connection in enumerate(opened)))
    return answered


PARTS: dict[str, Callable[[Sequence[Contender]], Coroutine[Any, Any, None]]] = {
    "rates": rates,
    "lists": lists,
    "large": large,
    "watch": watch,
    "memory": memory,
}


async def _run(parts: Sequence[str], contenders: Sequence[Contender]) -> None:
    idle = [f"{each.name} {'+'.join(f'{memory_mb(pid):.0f}' for pid in each.pids)} MB" for each in contenders]
    print(f"idle: {'; '.join(idle)}\n", flush=True)
    for contender in contenders:
        await contender.define()
    for name in parts:
        begun = time.perf_counter()
        await PARTS[name](contenders)
        seconds, load = time.perf_counter() - begun, os.getloadavg()[0]
        print(f"({name}: {seconds:.0f} s; load {load:.1f})\n", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="apiserver", description=__doc__, formatter_class=formatter)
    parser.add_argument("--only", choices=[*PARTS], nargs="+", default=[*PARTS], help="some parts")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        stores = ["sqlite", "memory", *(["etcd"] if shutil.which("etcd") else [])]
        contenders = [stack.enter_context(ours(store)) for store in stores]
        if (TOOLS / "kube-apiserver").exists() and shutil.which("etcd"):
            contenders.append(stack.enter_context(kubernetes()))
        else:
            print("no kube-apiserver: run `make kubernetes` and install etcd-server", file=sys.stderr)
        run(_run(options.only, contenders))


if __name__ == "__main__":
    main(sys.argv[1:])
