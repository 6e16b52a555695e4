"""Watchers in a process of their own: how long after each write do they hear of it?

    python -m bench.watchers --server https://127.0.0.1:8443 --ca ca.crt --token-file F --count 100

Writes one line when all watch, reads one line when the writes are done, then prints the delays as JSON. A
delay is from the moment that the writer noted in the object, right before it asked for the write, until the
event was read off the TLS connection; both clocks are the machine's one monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import ssl
import sys
import time
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

_STAMP = re.compile(rb'"at":"(\d+)"')
TARGET = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion="


class Watcher(asyncio.Protocol):
    """One watch. `delays` are in nanoseconds."""

    def __init__(self, request: bytes) -> None:
        self.delays: list[int] = []
        self.reads = 0
        self.opened = asyncio.get_running_loop().create_future()
        self._request = request
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note the delay of every event in this piece."""
        now = time.monotonic_ns()
        if not self.opened.done():
            self.opened.set_result(data[9:12])
        self.reads += 1
        data = self._rest + data
        end = 0
        for found in _STAMP.finditer(data):
            self.delays.append(now - int(found[1]))
            end = found.end()
        self._rest = data[max(end, len(data) - 64) :]


def _request(host: str, token: str, revision: str) -> bytes:
    return (
        f"GET {TARGET}{revision} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
        "accept: application/json\r\n\r\n"
    ).encode()


async def _run(options: argparse.Namespace) -> None:
    url = urlsplit(options.server)
    context = ssl.create_default_context(cafile=options.ca)
    request = _request(url.netloc, options.token_file.read_text().strip(), options.revision)
    loop = asyncio.get_running_loop()
    watchers: list[Watcher] = []
    for _ in range(options.count):
        _, watcher = await loop.create_connection(
            lambda: Watcher(request), url.hostname, url.port, ssl=context, server_hostname=url.hostname
        )
        assert await watcher.opened == b"200"
        watchers.append(watcher)
    print("watching", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    delays = [delay for watcher in watchers for delay in watcher.delays]
    reads = sum(watcher.reads for watcher in watchers)
    cpu = time.process_time()
    print(json.dumps({"delays_ns": delays, "reads": reads, "cpu_s": cpu}), flush=True)


def main() -> None:
    """Watch until a line comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--revision", default="0")
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
