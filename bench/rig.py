"""What the benchmarks share: a server to measure, and ways to read its memory and processor time."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Daemon:
    """A `certwright serve` in a process of its own. `started_s`: from exec to the line that says ready."""

    pid: int
    address: str
    data_dir: Path
    started_s: float

    @property
    def ca(self) -> Path:
        """The CA that its certificate is signed by."""
        return self.data_dir / "pki" / "ca.crt"

    @property
    def token_file(self) -> Path:
        """The administrator's bearer token."""
        return self.data_dir / "pki" / "admin.token"


@contextmanager
def daemon(*arguments: str, data_dir: Path | None = None) -> Iterator[Daemon]:
    """Start `certwright serve` on a free port with a fresh data directory (or that one), and stop it at the
    end."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        data_dir = data_dir or Path(folder)
        command = [sys.executable, "-m", "certwright", "serve", "--listen", "127.0.0.1:0"]
        command += ["--log-level", "warning"]
        begun = time.perf_counter()
        with subprocess.Popen(
            [*command, "--data-dir", str(data_dir), *arguments], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            took = time.perf_counter() - begun
            match = re.search(r"https://[^\s;,]+", line)
            if match is None:
                raise SystemExit(f"the server did not start; it said: {line!r}")
            try:
                yield Daemon(process.pid, match[0], data_dir, took)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=10)


def memory_mb(pid: int | None = None, *, peak: bool = False) -> float:
    """Resident memory of a process in MB (10^6 bytes): now, or the highest so far."""
    field = "VmHWM" if peak else "VmRSS"
    status = Path(f"/proc/{pid or os.getpid()}/status").read_text()
    match = re.search(rf"{field}:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024 / 1e6


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    # Behind the name, which may hold anything: utime and stime are the 14th and 15th member of all.
    members = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(members[11]) + int(members[12])) / os.sysconf("SC_CLK_TCK")


def table(headings: list[str], rows: list[list[str]]) -> None:
    """Print a table in Markdown, so that it can go into docs/figures.md as it is."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    for row in [headings, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")


def median(values: list[float]) -> float:
    """The middle value."""
    return sorted(values)[len(values) // 2]


async def until(check: asyncio.Event, *, seconds: float, what: str) -> None:
    """Wait for an event, or say what did not happen."""
    try:
        await asyncio.wait_for(check.wait(), seconds)
    except TimeoutError:
        raise SystemExit(f"{what} within {seconds:.0f} s") from None
