"""What the benchmarks share: servers and controllers in processes of their own, their memory and processor
time, and tables."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from certwright.cli import access
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import whole_body

WRITES = ("POST", "PUT", "PATCH", "DELETE")
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Daemon:
    """An API server in a process of its own, with an administrator's kubeconfig in its data directory.
    `started_s`: from exec until it is ready."""

    pid: int
    address: str
    data_dir: Path
    started_s: float


@contextmanager
def daemon(*arguments: str, data_dir: Path | None = None) -> Iterator[Daemon]:
    """Start `certwright serve` on a free port, with a fresh data directory unless one is given, and stop it
    at the end."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        data_dir = data_dir or Path(folder)
        command = [sys.executable, "-m", "certwright", "serve", "--listen", "127.0.0.1:0"]
        command += ["--log-level", "warning", "--data-dir", str(data_dir), *arguments]
        begun = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            took = time.perf_counter() - begun
            match = re.search(r"https://[^\s;,]+", line)
            if match is None:
                raise SystemExit(f"the server did not start; its first line: {line!r}")
            try:
                yield Daemon(process.pid, match[0], data_dir, took)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)


@contextmanager
def controllers(server: Daemon, *flags: str) -> Iterator[int]:
    """Start `certwright controllers` at that server; the process id. Stopped at the end."""
    kubeconfig = str(server.data_dir / "kubeconfig")
    command = [sys.executable, "-m", "certwright", "controllers", "--kubeconfig", kubeconfig]
    with subprocess.Popen([*command, "--log-level", "warning", *flags], stdout=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


@asynccontextmanager
async def session(server: Daemon) -> AsyncIterator[Client]:
    """A client with the administrator's rights, over TLS."""
    choice = access.choose(server.data_dir / "kubeconfig", os.environ, Path.cwd())
    client = Client(access.connect(choice, access.load(choice, None)), user_agent="bench")
    try:
        yield client
    finally:
        await client.close()


async def writes(*servers: Daemon) -> int:
    """The writes that the servers have answered so far: Events count, Leases do not."""
    counts: Counter[tuple[str, str]] = Counter()
    for server in servers:
        async with session(server) as client:
            text = (await whole_body(await client.raw("GET", "/metrics"))).decode()
        for labels, number in _REQUESTS.findall(text):
            about = dict(_LABEL.findall(labels))
            counts[about.get("verb", ""), about.get("resource", "")] += round(float(number))
    return sum(count for (verb, kind), count in counts.items() if verb in WRITES and kind != "leases")


def memory_mb(pid: int | None = None, *, peak: bool = False) -> float:
    """Resident memory of a process in MB (10^6 bytes): now, or the highest so far."""
    field = "VmHWM" if peak else "VmRSS"
    match = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid or os.getpid()}/status").read_text())
    assert match is not None
    return int(match[1]) * 1024 / 1e6


def cpu_s(pid: int | None = None) -> float:
    """Processor seconds of a process so far."""
    # Behind the name, which may contain anything: utime and stime are the 14th and 15th member of all.
    members = Path(f"/proc/{pid or os.getpid()}/stat").read_text().rpartition(")")[2].split()
    return (int(members[11]) + int(members[12])) / os.sysconf("SC_CLK_TCK")


def table(headings: list[str], rows: list[list[str]]) -> None:
    """Print a table in Markdown, so that it can go into docs/figures.md as it is."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    for row in [headings, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
    print(flush=True)


def percentile(values: list[float], per_cent: int = 50) -> float:
    """The value that so many per cent of all are below: the median unless another is named."""
    return sorted(values)[min(len(values) * per_cent // 100, len(values) - 1)]
