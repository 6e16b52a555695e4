"""Our API server beside Kubernetes' own: the same load, the same processors, one run.

Ours over SQLite (durable), over memory and over etcd; Kubernetes' kube-apiserver over an etcd of its own
(`make kubernetes`; the etcd is an installed one, which syncs to disk). For each figure the servers take
turns, so that what else the machine does meets all of them. Objects hold 2 KB where nothing else is said.

    make bench ARGS="apiserver"                     everything, in about five minutes
    make bench ARGS="apiserver --only rates"        one part: rates, lists, large, watch, memory
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import watched
from bench.contenders import GROUP, KINDS, Contender, is_etcd_there, is_kubernetes_there, kubernetes, ours
from bench.load import Target, Verb, creating, getting, listing, measure, updating
from bench.rig import memory_mb, table
from certwright.kit.event_loop import run

CONNECTIONS = (1, 8, 64)
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_KEPT = 1_000
_OBJECTS = 30_000
_MB = 1_000_000
_MEMORY = ("before", f"with {_OBJECTS:,} more", "growth", "its etcd")

Part = Callable[[Sequence[Contender]], Coroutine[Any, Any, None]]


async def fill(target: Target, count: int, prefix: str = "") -> None:
    """Have so many objects there."""
    await measure(target, creating(target, prefix), connections=8, seconds=600.0, most=count)


async def prepare(contender: Contender) -> None:
    """Make the kinds, and wait until each is served."""
    definitions = contender.definitions()
    names = iter(f"{plural}.{GROUP}" for plural in KINDS)
    await measure(
        definitions, lambda c: c.ask(definitions.create(next(names))), connections=1, most=len(KINDS)
    )
    for plural in KINDS:
        target = contender.target(plural)
        async with target.connections(1) as (connection,):
            while await connection.ask(target.get()) != 200:  # noqa: ASYNC110 - it is another process's doing
                await asyncio.sleep(0.1)


async def rates(contenders: Sequence[Contender]) -> None:
    """Creates, gets and updates per second."""
    for contender in contenders:
        await fill(contender.target(), _KEPT)
    rows: list[list[str]] = []
    for verb in ("create", "get", "update"):
        for connections in CONNECTIONS:
            per_second = []
            for contender in contenders:
                target = contender.target()
                does = _doing(verb, target, connections)
                per_second.append((await measure(target, does, connections=connections))["rate"])
            rows.append([verb, str(connections), *_beside(per_second)])
    table(["per second", "connections", *_headings(contenders)], rows)


def _doing(verb: str, target: Target, connections: int) -> Verb:
    if verb == "create":
        return creating(target, f"c{connections}-")
    return getting(target, _KEPT) if verb == "get" else updating(target, _KEPT)


async def lists(contenders: Sequence[Contender]) -> None:
    """How long a list of 1,000 and one of 10,000 take."""
    rows = []
    for plural, count in (("small", 1_000), ("large", 10_000)):
        medians = []
        for contender in contenders:
            await fill(contender.target(plural), count)
        for contender in contenders:
            target = contender.target(plural)
            figures = await measure(target, listing(target), connections=1, seconds=5.0, most=20)
            medians.append(figures["p50_ms"])
        rows.append([f"{count:,}", *_beside(medians, smaller=True)])
    table(["objects listed, ms", *_headings(contenders)], rows)


async def large(contenders: Sequence[Contender]) -> None:
    """A metadata-only list of 300 objects of 1 MB."""
    rows = []
    for contender in contenders:
        target = contender.target("huge", _MB)
        await fill(target, 300)
        await asyncio.sleep(1.0)
        before, read = _reset_peak(contender), _bytes_read(contender)
        figures = await measure(target, listing(target, METADATA), connections=1, most=1)
        grown, read = memory_mb(contender.pids[0], peak=True) - before, _bytes_read(contender) - read
        again = await measure(target, listing(target, METADATA), connections=1, most=10)
        rows.append(
            [
                contender.name,
                f"{figures['p50_ms']:.1f}",
                f"{again['p50_ms']:.1f}",
                f"{read / 1e6:.2f}",
                f"{grown:.1f}",
            ]
        )
    table(
        ["metadata of 300 × 1 MB", "first, ms", "later, ms", "MB read for it", "memory peak, MB more"], rows
    )


async def memory(contenders: Sequence[Contender]) -> None:
    """Resident memory, idle and with 30,000 more objects."""
    rows = []
    for contender in contenders:
        before = [memory_mb(pid) for pid in contender.pids]
        await fill(contender.target("notes"), _OBJECTS)
        await asyncio.sleep(2.0)
        after = [memory_mb(pid) for pid in contender.pids]
        cells = [f"{size:.0f}" for size in (before[0], after[0], after[0] - before[0])]
        beside = f"{before[1]:.0f} → {after[1]:.0f}" if len(before) > 1 else ""
        rows.append([contender.name, *cells, beside])
    table(["memory, MB", *_MEMORY], rows)


async def watch(contenders: Sequence[Contender]) -> None:
    """How soon 1 and 100 watchers hear of a write, at 50 and 1,000 writes a second."""
    for contender in contenders:
        await watched.prepare(contender)
    rows = []
    for watchers in (1, 100):
        for rate in (50, 1_000):
            for contender in contenders:
                delays = await watched.delays(contender, watchers=watchers, rate=rate)
                rows.append([str(watchers), str(rate), contender.name, *delays.shown()])
    headings = ["watchers", "asked/s", "server", "written/s", "since asked: p50 ms", "p99 ms"]
    answered = ["since answered: p50 ms", "p99 ms", "server busy", "watchers away, ms"]
    table([*headings, *answered], rows)


PARTS: dict[str, Part] = {
    "rates": rates,
    "lists": lists,
    "large": large,
    "watch": watch,
    "memory": memory,
}


def _headings(contenders: Sequence[Contender]) -> list[str]:
    return [contender.name for contender in contenders] + ["ours, sqlite : kube-apiserver"]


def _beside(figures: Sequence[float], *, smaller: bool = False) -> list[str]:
    # The first is ours over SQLite, the last Kubernetes', where it is built.
    ratio = figures[-1] / figures[0] if smaller else figures[0] / figures[-1]
    return [f"{figure:,.1f}" if smaller else f"{figure:,.0f}" for figure in figures] + [f"{ratio:.1f} ×"]


def _reset_peak(contender: Contender) -> float:
    Path(f"/proc/{contender.pids[0]}/clear_refs").write_text("5")
    return memory_mb(contender.pids[0], peak=True)


def _bytes_read(contender: Contender) -> int:
    """By its system calls, files and connections alike: of kube-apiserver, that is what etcd sent."""
    text = Path(f"/proc/{contender.pids[0]}/io").read_text()
    return int(text.partition("rchar: ")[2].partition("\n")[0])


async def _main(only: str, contenders: Sequence[Contender]) -> None:
    idle = [
        f"{server.name} {'+'.join(f'{memory_mb(pid):.0f}' for pid in server.pids)} MB"
        for server in contenders
    ]
    print(f"idle: {'; '.join(idle)}\n", flush=True)
    for contender in contenders:
        await prepare(contender)
    for name, part in PARTS.items():
        if only in ("", name):
            begun = time.perf_counter()
            await part(contenders)
            print(
                f"\n({name}: {time.perf_counter() - begun:.0f} s; load {os.getloadavg()[0]:.1f})\n",
                flush=True,
            )


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="apiserver", description=__doc__)
    parser.add_argument("--only", choices=[*PARTS], default="", help="one part of it")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        stores = ["sqlite", "memory", *(["etcd"] if is_etcd_there() else [])]
        contenders = [stack.enter_context(ours(store)) for store in stores]
        if is_kubernetes_there():
            contenders.append(stack.enter_context(kubernetes()))
        else:
            print("no kube-apiserver: run `make kubernetes` and install etcd-server", file=sys.stderr)
        run(_main(options.only, contenders))


if __name__ == "__main__":
    main(sys.argv[1:])
