"""A load generator for any server that speaks Kubernetes' API over HTTPS: keep-alive connections, one request
under way on each. It runs in a process of its own, so that its work is not counted as the server's.

    python -m bench.load create|get --server https://127.0.0.1:8443 --ca ca.crt --token-file F --connections 8
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

COLLECTION = "/api/v1/namespaces/default/secrets"


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection; understands answers with a Content-Length."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._answer: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """Collect until head and body are there."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.index(b"content-length:") + 15
        length = int(head[at : (head + b"\r\n").index(b"\r\n", at)])
        if len(self._buffer) >= end + 4 + length:
            del self._buffer[: end + 4 + length]
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail whoever waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def ask(self, request: bytes) -> int:
        """Send one request; the status of its answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer


def secret(name: str) -> bytes:
    """A Secret of about 2 KB, as JSON."""
    data = {"payload": base64.b64encode(os.urandom(1_300)).decode()}
    meta = {"name": name, "labels": {"bench": "load"}}
    return json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}).encode()


def requests(verb: str, host: str, token: str, names: Iterator[str]) -> Iterator[bytes]:
    """Endless requests of one kind."""
    common = f"Host: {host}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"
    for name in names:
        if verb == "get":
            yield f"GET {COLLECTION}/{name} HTTP/1.1\r\n{common}\r\n".encode()
        else:
            body = secret(name)
            head = f"POST {COLLECTION} HTTP/1.1\r\n{common}Content-Type: application/json\r\n"
            yield f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Drive the server for the time asked; rate and latencies of the answers that said success."""
    server = urlsplit(options.server)
    context = ssl.create_default_context(cafile=options.ca)
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(Connection, server.hostname, server.port, ssl=context))[1]
        for _ in range(options.connections)
    ]
    names: Iterator[str] = (
        (f"load-{n % options.existing}" for n in itertools.count())
        if options.verb == "get"
        else (f"load-{options.prefix}{n}" for n in itertools.count())
    )
    stream = requests(options.verb, server.netloc, options.token, names)
    took: list[float] = []
    start = time.perf_counter()
    deadline = start + options.seconds

    async def drive(connection: Connection) -> None:
        while (now := time.perf_counter()) < deadline and len(took) < options.most:
            status = await connection.ask(next(stream))
            if status not in (200, 201):
                raise SystemExit(f"the server answered {status}")
            took.append(time.perf_counter() - now)

    await asyncio.gather(*(drive(connection) for connection in connections))
    seconds = time.perf_counter() - start
    took.sort()
    return {
        "rate": len(took) / seconds,
        "count": len(took),
        "p50_ms": took[len(took) // 2] * 1_000,
        "p99_ms": took[len(took) * 99 // 100] * 1_000,
    }


def main() -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("create", "get"))
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--most", type=int, default=1_000_000, help="stop after so many answers")
    parser.add_argument("--prefix", default="", help="makes names unique between runs")
    parser.add_argument("--existing", type=int, default=1, help="get load-0 … load-(N-1)")
    options = parser.parse_args()
    options.token = options.token_file.read_text().strip()
    try:
        import uvloop

        figures = uvloop.run(measure(options))
    except ImportError:
        figures = asyncio.run(measure(options))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
