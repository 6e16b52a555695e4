"""The dashboard: its first page with many certificates, changes while it is open, issuance beside open pages.

The first part calls the pages in one process with the API server, without controllers: time of the server,
without a connection. The others use `certwright serve` in a process of its own, over TLS.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import msgspec

from bench.issuance import issue, make_issuers
from bench.rig import Daemon, cpu_s, daemon, memory_mb, percentile, session, table
from certwright import app
from certwright.app.dashboard import DashboardHandler
from certwright.app.options import ServeOptions
from certwright.app.stores import open_store
from certwright.diagnosis.related import CERTIFICATES
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Request, Response
from certwright.resources.crds import custom_resource_definitions

PAGES = 10
CHANGES = 100
_WRITERS = 16
_ROUNDS = 2


def _certificate(n: int) -> dict[str, Any]:
    name = f"web-{n:06}"
    spec = {
        "secretName": f"{name}-tls",
        "dnsNames": [f"{name}.example.com", f"www.{name}.example.com"],
        "issuerRef": {"name": f"ca-{n % 5}", "kind": "ClusterIssuer"},
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _status(n: int) -> dict[str, Any]:
    def moment(hours: int) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600 * hours))

    renews = 1 + n * 7919 % 1_440
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "up to date"}
    dates = {
        "notBefore": moment(renews - 1_440),
        "notAfter": moment(renews + 720),
        "renewalTime": moment(renews),
    }
    return {"status": {"conditions": [{**ready, "lastTransitionTime": moment(0)}], "revision": 1, **dates}}


async def _fill(client: Client, number: int) -> None:
    async def write(first: int) -> None:
        for n in range(first, number, _WRITERS):
            await client.create(CERTIFICATES, _certificate(n))
            await client.patch(CERTIFICATES, f"web-{n:06}", "default", _status(n), subresource="status")

    await asyncio.gather(*(write(first) for first in range(_WRITERS)))


async def _first_page(number: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        options, clock = ServeOptions(data_dir=Path(folder), store="memory"), SystemClock()
        store = await open_store(options)
        api = ApiServer(store, clock, authenticator=lambda _: app.ADMIN)
        await api.start(custom_resource_definitions())
        await _fill(Client(LocalTransport(api.handle, app.ADMIN), user_agent="bench"), number)
        front = DashboardHandler(api, lambda: options, clock, system=app.ADMIN, seal_key=b"bench")

        async def ask(path: str) -> tuple[Response, float]:
            begun = time.perf_counter()
            response = await front.handle(Request("GET", f"/ui/{path}", {"authorization": "Bearer bench"}))
            assert response.status == 200, response.body
            return response, 1_000 * (time.perf_counter() - begun)

        before = memory_mb()
        begun = time.perf_counter()
        while b"Reading" in (await ask(""))[0].body:
            pass
        listed_s = time.perf_counter() - begun
        took = [await ask("") for _ in range(11)]
        searched = [(await ask(f"?q=web-{n:04}&sort=expiry"))[1] for n in range(11)]
        as_json = [(await ask("status.json"))[1] for _ in range(5)]
        memory = memory_mb() - before
        await front.close()
        await api.close()
        await store.close()
    return [
        f"{number:,}",
        f"{len(took[0][0].body) / 1_000:.1f} kB",
        f"{percentile([ms for _, ms in took]):.0f} ms",
        f"{percentile(searched):.0f} ms",
        f"{percentile(as_json):.0f} ms",
        f"{listed_s:.1f} s",
        f"{memory:.0f} MB",
    ]


async def _events(client: Client) -> AsyncGenerator[dict[str, str], None]:
    """What an open first page is sent."""
    response = await client.raw(
        "GET", "/ui/live", query={"at": "?", "watch": "true"}
    )  # a stream to the client
    assert response.stream is not None
    text = b""
    async for chunk in response.stream:
        text += chunk
        while b"\n\n" in text:
            event, _, text = text.partition(b"\n\n")
            if event.startswith(b"data: "):
                yield msgspec.json.decode(event.removeprefix(b"data: "))


async def _changes(server: Daemon) -> list[float]:
    """Milliseconds from a write until an open page has it."""
    took = []
    async with session(server) as client, session(server) as watching:
        await client.create(CERTIFICATES, _certificate(0))
        async with aclosing(_events(watching)) as events:
            await anext(events)
            for n in range(CHANGES):
                await asyncio.sleep(0.3)
                status = _status(n)
                status["status"]["notAfter"] = f"{2030 + n}-01-01T00:00:00Z"
                begun = time.perf_counter()
                await client.patch(CERTIFICATES, "web-000000", "default", status, subresource="status")
                await anext(events)
                took.append(1_000 * (time.perf_counter() - begun))
    return took


async def _open_pages(server: Daemon, stack: AsyncExitStack) -> None:
    async def read(client: Client) -> None:
        async for _ in _events(client):
            pass

    for _ in range(PAGES):
        reading = asyncio.create_task(read(await stack.enter_async_context(session(server))))
        stack.callback(reading.cancel)
    await asyncio.sleep(2)


async def _beside_pages(number: int) -> list[list[str]]:
    rates: dict[bool, list[float]] = {False: [], True: []}
    spent: dict[bool, list[float]] = {False: [], True: []}
    memory = []
    with daemon() as server:
        async with session(server) as client:
            await make_issuers(client)
            await issue([client], "warm", number)
            await client.raw("GET", "/ui/")  # loads the templates, and the index
            # In the order alone, beside, beside, alone: both are asked of stores of the same sizes.
            for n, is_beside in enumerate([False, True, True, False] * _ROUNDS):
                async with AsyncExitStack() as stack:
                    before = memory_mb(server.pid)
                    if is_beside:
                        await _open_pages(server, stack)
                        memory.append((memory_mb(server.pid) - before) / PAGES)
                    begun = cpu_s(server.pid)
                    rates[is_beside].append(number / await issue([client], f"round{n}", number))
                    spent[is_beside].append(1_000 * (cpu_s(server.pid) - begun) / number)
                await asyncio.sleep(2)
    alone, beside = percentile(rates[False]), percentile(rates[True])
    return [
        ["certificates per second, alone", f"{alone:.0f}"],
        [
            f"certificates per second, beside {PAGES} open pages",
            f"{beside:.0f} ({100 * beside / alone:.0f} %)",
        ],
        [
            "processor time of a certificate, alone and beside them",
            f"{percentile(spent[False]):.1f} and {percentile(spent[True]):.1f} ms",
        ],
        ["server memory per open page", f"{percentile(memory):.2f} MB"],
    ]


def main(arguments: Sequence[str] = ()) -> None:
    """Print the figures. `--rows` are the numbers of certificates of the first part."""
    parser = argparse.ArgumentParser(prog="dashboard", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000], metavar="N")
    parser.add_argument("--number", type=int, default=500, help="certificates issued beside open pages")
    options = parser.parse_args(arguments)
    headings = ["certificates", "first page", "time", "searched", "status.json", "first listing", "index"]
    table(headings, [asyncio.run(_first_page(number)) for number in options.rows])
    with daemon("--controllers", "") as server:
        took = asyncio.run(_changes(server))
    rows = [["a change to the open page, median", f"{percentile(took):.0f} ms"]]
    rows.append([f"a change to the open page, p99 of {CHANGES}", f"{percentile(took, 99):.0f} ms"])
    table(["figure", "value"], rows + asyncio.run(_beside_pages(options.number)))


if __name__ == "__main__":
    main(sys.argv[1:])
