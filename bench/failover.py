"""How long certificates wait when a part of examples/scale fails: everything of its Procfile on this machine.

    make bench ARGS=failover                                  all faults
    make bench ARGS="failover --only 'shard killed'"          one of them

A Certificate is created every 0.5 s through HAProxy, from two seconds before the fault on. The figures are of
those created from one second before it until five seconds after it. Faults of servers hit the one with the
most connections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.rig import table
from certwright.cli import access
from certwright.kube.api import codec, conditions
from certwright.kube.api.core import LEASES
from certwright.kube.api.errors import AlreadyExists, ApiError, Unreachable
from certwright.kube.client.rest import Client
from certwright.resources.table import CERTIFICATES, ISSUERS
from support.scale import Running, client_of, running
from support.waiting import until

_EVERY_S, _BEFORE_S, _AFTER_S = 0.5, 2.25, 5.0
_POLL_S = 0.1
_PATIENCE_S = 180.0
_ESTABLISHED = "01"
_SERVERS = ("api1", "api2", "api3")
HEADINGS = ["what fails", "create → Ready, longest (s)", "create answered, longest (s)", "failed requests"]
Victim = Callable[[Running], str]


@dataclass(slots=True)
class Probe:
    """One Certificate: when it was created, when the create was answered, when it was Ready."""

    created: float
    answered: float = 0.0
    ready: float = 0.0


@dataclass(slots=True)
class Load:
    """The Certificates of one fault."""

    prefix: str
    probes: dict[str, Probe] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def _server(processes: Running) -> str:
    """The API server with the most connections."""
    local = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [int(here.rpartition(":")[2], 16) for here, _, state in local if state == _ESTABLISHED]
    return max(_SERVERS, key=lambda name: ports.count(int(processes.ports[name.upper()])))


def _leader(processes: Running) -> str:
    """The etcd member that leads. Source: etcd's gRPC gateway."""
    for name in ("etcd1", "etcd2", "etcd3"):
        url = f"http://127.0.0.1:{processes.ports[name.upper()]}/v3/maintenance/status"
        request = urllib.request.Request(url, data=b"{}")
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
            status = json.load(answer)
        if status["leader"] == status["header"]["member_id"]:
            return name
    raise SystemExit("etcd has no leader")


def _second_shard(_processes: Running) -> str:
    return "shard2"


FAULTS: dict[str, tuple[Victim | None, signal.Signals]] = {
    "nothing": (None, signal.SIGCONT),
    "server killed": (_server, signal.SIGKILL),
    "server ended in good order": (_server, signal.SIGTERM),
    "server stands still": (_server, signal.SIGSTOP),
    "etcd leader killed": (_leader, signal.SIGKILL),
    "etcd leader stands still": (_leader, signal.SIGSTOP),
    "shard ended in good order": (_second_shard, signal.SIGTERM),
    "shard killed": (_second_shard, signal.SIGKILL),
    "shard stands still": (_second_shard, signal.SIGSTOP),
}


def main(options: Sequence[str] = ()) -> None:
    """Print one row for each fault."""
    parser = argparse.ArgumentParser(prog="failover")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    chosen = parser.parse_args(options).only
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name, running(Path(name)) as processes:
        table(HEADINGS, asyncio.run(_measured(processes, chosen)))


async def _measured(processes: Running, chosen: Sequence[str]) -> list[list[str]]:
    client = await client_of(processes.folder)
    try:
        await _ready(client)
        for name in _SERVERS:
            kubeconfig = processes.folder / name / "kubeconfig"
            await until(partial(_is_written, kubeconfig))
        await asyncio.sleep(_AFTER_S)  # HAProxy checks them
        rows = []
        for number, name in enumerate(chosen):
            rows.append([name, *await _measure_fault(processes, client, f"f{number}", *FAULTS[name])])
            print(f"{rows[-1]}", flush=True)
    finally:
        await client.close()
    return rows


def _is_written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


async def _ready(client: Client) -> None:
    """Create the issuer, once a server answers; return when both shards work."""
    issuer = {"metadata": {"name": "self", "namespace": "default"}, "spec": {"selfSigned": {}}}
    await _retried(partial(client.create, ISSUERS, codec.from_dict(ISSUERS, issuer)), Load(""))
    await _both_shards(client)


async def _both_shards(client: Client) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                leases = (await client.list(LEASES, "kube-system")).items
            except (ApiError, Unreachable):
                leases = []
            holders = {lease.spec.holder_identity for lease in leases if "-shard-" in lease.metadata.name}
            if holders == {"shard1", "shard2"}:
                return
            await asyncio.sleep(0.5)


async def _retried(write: Callable[[], Awaitable[object]], load: Load) -> None:
    """Write until it is done, counting failures."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                await write()
            except AlreadyExists:
                return
            except (ApiError, Unreachable) as error:
                load.errors.append(str(error))
                await asyncio.sleep(_EVERY_S)
            else:
                return


async def _measure_fault(
    processes: Running, client: Client, prefix: str, victim: Victim | None, number: signal.Signals
) -> list[str]:
    name = victim(processes) if victim is not None else ""
    load = Load(prefix)
    async with _observed(processes, name, load):
        creating = asyncio.create_task(_create(client, load))
        await asyncio.sleep(_BEFORE_S)
        fault = time.monotonic()
        # In a thread: a client that stands still meanwhile would not see its connections close.
        await asyncio.to_thread(_inflict, processes, name, number)
        await creating
        await until(lambda: all(probe.ready for probe in load.probes.values()), within_s=_PATIENCE_S)
    _mend(processes, name, number)
    await asyncio.sleep(_AFTER_S)
    await _both_shards(client)
    hit = [probe for probe in load.probes.values() if probe.created > fault - 1]
    longest = max(probe.ready - probe.created for probe in hit)
    answered = max(probe.answered - probe.created for probe in hit)
    for error in load.errors:
        print(f"  {error}", flush=True)
    return [f"{longest:.1f}", f"{answered:.1f}", str(len(load.errors))]


def _inflict(processes: Running, name: str, number: signal.Signals) -> None:
    if number is signal.SIGSTOP:
        processes.send(name, number)
    elif name:
        processes.end(name, number)


def _mend(processes: Running, name: str, number: signal.Signals) -> None:
    if number is signal.SIGSTOP:
        processes.send(name, signal.SIGCONT)
    elif name:
        processes.start_one(name)


async def _create(client: Client, load: Load) -> None:
    """Create a Certificate every 0.5 s, whatever became of those before."""
    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for count in range(int((_BEFORE_S + _AFTER_S) / _EVERY_S)):
            await asyncio.sleep(max(0.0, begun + count * _EVERY_S - time.monotonic()))
            name = f"{load.prefix}-{count}"
            load.probes[name] = Probe(time.monotonic())
            group.create_task(_create_certificate(client, load, name))


async def _create_certificate(client: Client, load: Load, name: str) -> None:
    spec = {"secretName": name, "dnsNames": [f"{name}.example"], "issuerRef": {"name": "self"}}
    made = codec.from_dict(CERTIFICATES, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    await _retried(partial(client.create, CERTIFICATES, made), load)
    load.probes[name].answered = time.monotonic()


@asynccontextmanager
async def _observed(processes: Running, victim: str, load: Load) -> AsyncIterator[None]:
    """Note when each Certificate is Ready, by a server that does not fail, until the end of the block."""
    server = next(name for name in ("api3", "api2") if name != victim)
    kubeconfig = processes.folder / server / "kubeconfig"
    choice = access.choose(kubeconfig, os.environ, processes.folder)
    client = Client(access.connect(choice, access.load(choice, None)), user_agent="bench")
    task = asyncio.create_task(_observe(client, load))
    try:
        yield
    finally:
        task.cancel()
        await client.close()


async def _observe(client: Client, load: Load) -> None:
    while True:
        try:
            for certificate in (await client.list(CERTIFICATES, "default")).items:
                probe = load.probes.get(certificate.metadata.name)
                if probe and not probe.ready and conditions.is_true(certificate.status.conditions, "Ready"):
                    probe.ready = time.monotonic()
        except (ApiError, Unreachable):
            pass  # etcd without a leader
        await asyncio.sleep(_POLL_S)
