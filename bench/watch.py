"""How soon watchers hear of a write: 1 and 100 watchers over loopback TLS, at 50 and at 1,000 writes/s.

The writer is in the server's process and asks through the front door, so that its own connection costs
nothing; the watchers are a process of their own (bench/watchers.py), which shares the machine with the
server. "Server" is the processor time of the server's process per event and watcher, writes included.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench.rig import table
from certwright.apiserver import serving
from certwright.apiserver.asgi import HttpsFace, serve_https
from certwright.apiserver.server import ApiServer
from certwright.apiserver.users.auth import MASTERS, StaticTokens
from certwright.kit.clock import SystemClock
from certwright.kit.exchange import Identity, Request
from certwright.store.memory import MemoryStore

SECONDS = 5.0
ADMIN = Identity("admin", groups=(MASTERS,))
PATH = "/api/v1/namespaces/default/configmaps"
_KEPT = 50


@dataclass(frozen=True, slots=True)
class Bench:
    """A server, and where it is."""

    server: ApiServer
    store: MemoryStore
    face: HttpsFace
    folder: Path


@asynccontextmanager
async def serving_bench() -> AsyncIterator[Bench]:
    """A server over memory behind TLS."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder, store = Path(name), MemoryStore()
        (folder / "token").write_text("bench")
        server = ApiServer(store, SystemClock(), authenticator=StaticTokens({"bench": ADMIN}))
        await server.start([])
        identity = serving.load_or_make(folder, host="127.0.0.1", now=datetime.now(UTC))
        face = await serve_https(
            server.handle,
            host="127.0.0.1",
            port=0,
            certfile=identity.cert_path,
            keyfile=identity.key_path,
            client_ca_file=None,
        )
        (folder / "serving-ca.crt").write_bytes(identity.ca_pem)
        try:
            yield Bench(server, store, face, folder)
        finally:
            await face.close()
            await server.close()
            await store.close()


async def _write(bench: Bench, name: str, *, create: bool) -> None:
    data = {"at": str(time.monotonic_ns()), "text": "x" * 500}
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    method, target = ("POST", PATH) if create else ("PUT", f"{PATH}/{name}")
    answer = await bench.server.handle(Request(method, target, body=body.encode(), user=ADMIN))
    assert answer.status < 300, answer.body


async def _writes(bench: Bench, rate: int, run: str) -> int:
    """Write at an even pace for `SECONDS`; how many writes that were."""
    loop, total = asyncio.get_running_loop(), round(rate * SECONDS)
    begun = loop.time()
    for number in range(total):
        if (early := begun + number / rate - loop.time()) > 0:
            await asyncio.sleep(early)
        await _write(bench, f"{run}-{number % _KEPT}", create=number < _KEPT)
        if early <= 0:
            await asyncio.sleep(0)
    return total


async def measure(bench: Bench, watchers: int, rate: int) -> list[str]:
    """One row of the table."""
    command = [sys.executable, "-m", "bench.watchers", "--server", f"https://127.0.0.1:{bench.face.port}"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--ca", str(bench.folder / "serving-ca.crt"), "--token-file", str(bench.folder / "token")),
        *("--count", str(watchers), "--revision", str(bench.store.revision)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 28,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdout.readline()
    cpu, begun = time.process_time(), time.perf_counter()
    written = await _writes(bench, rate, f"w{watchers}-r{rate}")
    cpu, took = time.process_time() - cpu, time.perf_counter() - begun
    await asyncio.sleep(0.5)
    process.stdin.write(b"done\n")
    found = json.loads(await process.stdout.readline())
    await process.wait()
    delays = sorted(delay / 1e6 for delay in found["delays_ns"])
    assert len(delays) == written * watchers, (len(delays), written * watchers)
    return [
        str(watchers),
        f"{written / took:,.0f}",
        f"{delays[len(delays) // 2]:.2f}",
        f"{delays[len(delays) * 99 // 100]:.2f}",
        f"{len(delays) / found['reads']:.1f}",
        f"{cpu / len(delays) * 1e6:.0f}",
        f"{cpu / took:.0%}",
        f"{found['cpu_s'] / len(delays) * 1e6:.0f}",
    ]


async def _main() -> None:
    rows = []
    async with serving_bench() as bench:
        for watchers in (1, 100):
            for rate in (50, 1000):
                rows.append(await measure(bench, watchers, rate))
    headings = ["watchers", "writes/s", "p50 ms", "p99 ms", "events per read"]
    table([*headings, "server µs per event", "server busy", "watcher µs per event"], rows)
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def main() -> None:
    """Print the table."""
    uvloop.run(_main())  # as the daemon does


if __name__ == "__main__":
    main()
