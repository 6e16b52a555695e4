"""Controllers in a process of their own, as in a cluster: `certwright controllers` over TLS against
`certwright serve --controllers ''`. What they take, and what they ask for."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.rig import Daemon, cpu_s, memory_mb
from certwright.cli import access
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import whole_body

_LOOK_EVERY_S = 0.5
# So little processor time between two looks is that of a process at rest.
_REST_S = 0.03
_MANY = ("certificates", "certificaterequests", "secrets")
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Resting:
    """How a process was when it had done all that there was to do. Times from its start."""

    wall_s: float
    cpu_s: float
    memory_mb: float
    peak_mb: float


@asynccontextmanager
async def session(server: Daemon) -> AsyncIterator[Client]:
    """A client with the administrator's rights, over TLS."""
    choice = access.choose(server.data_dir / "kubeconfig", os.environ, Path.cwd())
    client = Client(access.connect(choice, access.load(choice, None)), user_agent="bench")
    try:
        yield client
    finally:
        await client.close()


@contextmanager
def controllers(server: Daemon, *flags: str) -> Iterator[int]:
    """Start `certwright controllers` against that server; the process id. Stopped at the end."""
    command = [
        sys.executable,
        "-m",
        "certwright",
        "controllers",
        "--kubeconfig",
        str(server.data_dir / "kubeconfig"),
    ]
    with subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def rest(server: Daemon, pid: int, *, since: float, seconds: float = 5.0, within: float = 900.0) -> Resting:
    """Wait until the controllers follow the server, and have hardly worked for `seconds`.

    `since` is the moment (`time.perf_counter`) of their start.
    """
    deadline, spent = time.perf_counter() + within, cpu_s(pid)
    # On a machine with other work a process may stand still before it has begun.
    while not asyncio.run(_is_followed(server)):
        _give_up_after(deadline)
        time.sleep(_LOOK_EVERY_S)
    done = (time.perf_counter(), spent)
    while time.perf_counter() - done[0] < seconds:
        _give_up_after(deadline)
        time.sleep(_LOOK_EVERY_S)
        before, spent = spent, cpu_s(pid)
        if spent - before > _REST_S:
            done = (time.perf_counter(), spent)
    return Resting(done[0] - since, done[1], pss_mb(pid), memory_mb(pid, peak=True))


def _give_up_after(deadline: float) -> None:
    if time.perf_counter() > deadline:
        raise SystemExit("the controllers did not come to rest")


async def _is_followed(server: Daemon) -> bool:
    """Whether somebody watches what there may be many of, which is after all of it was listed."""
    counts = await requests(server)
    return all(counts["WATCH", kind] for kind in _MANY)


def pss_mb(pid: int) -> float:
    """Memory of a process in MB (10^6 bytes); what it shares with others counts in part."""
    match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024 / 1e6


def share_of_a_core(pid: int, seconds: float) -> float:
    """The part of a processor that the process takes, measured over that time."""
    begun, spent = time.perf_counter(), cpu_s(pid)
    time.sleep(seconds)
    return (cpu_s(pid) - spent) / (time.perf_counter() - begun)


async def requests(server: Daemon) -> Counter[tuple[str, str]]:
    """How many requests the API server has answered so far, by verb and resource."""
    async with session(server) as client:
        text = (await whole_body(await client.raw("GET", "/metrics"))).decode()
    counts: Counter[tuple[str, str]] = Counter()
    for labels, number in _REQUESTS.findall(text):
        about = dict(_LABEL.findall(labels))
        resource = "/".join(part for part in (about.get("resource"), about.get("subresource")) if part)
        counts[about.get("verb", ""), resource] += round(float(number))
    return counts
