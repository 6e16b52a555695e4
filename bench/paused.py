"""What a shard of the controllers writes that stood still for longer than its Lease lasts.

    make bench ARGS=paused                    20 rounds (six minutes)
    make bench ARGS="paused --rounds 2"

In each round one of two shards is stopped (SIGSTOP) while it issues certificates, and continued after its
Lease has expired and the other shard has taken over. A proxy before the server records the writes of each
shard. A write of the stopped shard is late if it arrives after it was continued and before it next writes a
Lease.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.beside import session
from bench.issuance import create_certificate, make_issuers
from bench.rig import Daemon, daemon, table
from certwright.kube.api import conditions
from certwright.kube.api.core import LEASES
from certwright.kube.client.rest import Client
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from support.programs import free_port
from support.waiting import until

_NUMBER = 60
_STOP_AT = 12
_STOPPED_S, _WATCHED_S = 8.0, 5.0
_TERMS = (
    "--leader-election-lease-duration=6s",
    "--leader-election-renew-deadline=4s",
    "--leader-election-retry-period=1s",
)
_WRITE = re.compile(rb"(?m)^(POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r$")
HEADINGS = ["rounds", "writes of the stopped shard", "of them late", "certificates", "requests", "not Ready"]


@dataclass(slots=True)
class Recorder:
    """The writes that have come through a proxy: when, and which."""

    writes: list[tuple[float, str]] = field(default_factory=list)

    def late(self, since: float) -> list[str]:
        """Those after a moment, up to the first write of a Lease."""
        late = []
        for moment, write in self.writes:
            if moment >= since:
                if "/leases/" in write:
                    break
                late.append(write)
        return late


@dataclass(frozen=True, slots=True)
class Shard:
    """A process, and what it has written."""

    process: subprocess.Popen[bytes]
    recorder: Recorder


def main(options: Sequence[str] = ()) -> None:
    """Print the sums over all rounds."""
    parser = argparse.ArgumentParser(prog="paused")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args(options).rounds
    with (
        tempfile.TemporaryDirectory(prefix="certwright-bench-") as name,
        daemon("--controllers", "") as server,
    ):
        table(HEADINGS, [asyncio.run(_measured(server, Path(name), rounds))])


async def _measured(server: Daemon, folder: Path, rounds: int) -> list[str]:
    await make_issuers(server, has_label=True)
    written, late = 0, list[str]()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(session(server))
        shards = [await stack.enter_async_context(_shard(server, folder, n)) for n in range(2)]
        for number in range(rounds):
            await _both_work(client)
            shard = shards[number % 2]
            before = len(shard.recorder.writes)
            late_writes = await _pause_shard(client, shard, f"r{number}")
            written += sum("/leases/" not in write for _, write in shard.recorder.writes[before:])
            late += late_writes
            print(f"round {number}: {len(late_writes)} late {late_writes}", flush=True)
        certificates = (await client.list(CERTIFICATES, "default")).items
        requests = len((await client.list(CERTIFICATE_REQUESTS, "default")).items)
    waiting = sum(
        not conditions.is_true(certificate.status.conditions, "Ready") for certificate in certificates
    )
    return [str(rounds), str(written), str(len(late)), str(len(certificates)), str(requests), str(waiting)]


async def _pause_shard(client: Client, shard: Shard, prefix: str) -> list[str]:
    """Stop the shard in the middle of its work; its late writes."""
    before = len(shard.recorder.writes)
    async with asyncio.TaskGroup() as group:
        for n in range(_NUMBER):
            group.create_task(create_certificate(client, n, prefix))
        await until(lambda: len(shard.recorder.writes) >= before + _STOP_AT)
        shard.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(_STOPPED_S)
    continued = time.monotonic()
    shard.process.send_signal(signal.SIGCONT)
    await asyncio.sleep(_WATCHED_S)
    return shard.recorder.late(continued)


async def _both_work(client: Client) -> None:
    """Return when each shard has its Lease, and all certificates are Ready."""
    async with asyncio.timeout(120):
        while True:
            leases = (await client.list(LEASES, "kube-system")).items
            holders = {lease.spec.holder_identity for lease in leases if "-shard-" in lease.metadata.name}
            all_of = (await client.list(CERTIFICATES, "default")).items
            if holders == {"shard0", "shard1"} and all(
                conditions.is_true(certificate.status.conditions, "Ready") for certificate in all_of
            ):
                return
            await asyncio.sleep(0.2)


@asynccontextmanager
async def _shard(server: Daemon, folder: Path, number: int) -> AsyncIterator[Shard]:
    port, recorder = free_port(), Recorder()
    kubeconfig = folder / f"kubeconfig{number}"
    text = (server.data_dir / "kubeconfig").read_text()
    kubeconfig.write_text(text.replace(server.address, f"http://127.0.0.1:{port}"))
    flags = ["--kubeconfig", str(kubeconfig), "--shards=2", f"--identity=shard{number}", *_TERMS]
    async with _recording(port, server, recorder):
        with _controllers(*flags) as process:
            yield Shard(process, recorder)


@contextlib.contextmanager
def _controllers(*flags: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "certwright", "controllers", "--log-level=error"]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def _recording(port: int, server: Daemon, recorder: Recorder) -> AsyncIterator[None]:
    """A proxy from plain HTTP to the server."""
    tls = ssl.create_default_context(cafile=str(server.ca))
    target = urlsplit(server.address)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            there, out = await asyncio.open_connection(target.hostname, target.port, ssl=tls)
            with contextlib.closing(out):
                back = asyncio.create_task(_copy(there, writer, None))
                await _copy(reader, out, recorder)
                back.cancel()

    async with await asyncio.start_server(relay, "127.0.0.1", port):
        yield


async def _copy(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, recorder: Recorder | None
) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 20):
            if recorder is not None:
                for method, path in _WRITE.findall(data):
                    recorder.writes.append((time.monotonic(), f"{method.decode()} {path.decode()}"))
            target.write(data)
            await target.drain()
        target.close()
