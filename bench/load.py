"""A load generator for any server that speaks Kubernetes' API over HTTPS: keep-alive connections, one request
in flight on each; and watchers in a process of their own (`python -m bench.load`)."""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from bench.rig import percentile
from certwright.kit.event_loop import run
from support.oracle import client_context

_REVISION = re.compile(rb'"resourceVersion":"(\d+)"')
_STAMP = b'"at":"'
_LONGEST_STAMP = 64
_LATEST_S = 20.0


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection."""

    def __init__(self) -> None:
        self.body = b""
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._response: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Collect (the parser)."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The response is complete (the parser)."""
        self.body, self._pieces = b"".join(self._pieces), []
        self._response.set_result(self._parser.get_status_code())

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request in flight."""
        if not self._response.done():
            self._response.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def send(self, request: bytes) -> int:
        """Send one request; the status of the response, whose body is `body` then."""
        self._parser = httptools.HttpResponseParser(self)
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._response

    def close(self) -> None:
        """Close the connection."""
        self._response.cancel()
        self._transport.close()

    @property
    def revision(self) -> str:
        """The resourceVersion of the object in the last response."""
        match = _REVISION.search(self.body)
        assert match is not None, self.body
        return match[1].decode()


class Target:
    """A collection on a server, whose objects `make` makes; requests have the certificate of `context`."""

    def __init__(
        self, server: str, context: ssl.SSLContext, path: str, make: Callable[[str], dict[str, Any]]
    ) -> None:
        url = urlsplit(server)
        self._host, self._port = url.hostname or "", url.port or 443
        self._context, self._path, self._make = context, path, make

    @asynccontextmanager
    async def connections(self, count: int) -> AsyncIterator[list[Connection]]:
        """So many connections, which are closed at the end."""
        loop = asyncio.get_running_loop()
        connections = [
            (await loop.create_connection(Connection, self._host, self._port, ssl=self._context))[1]
            for _ in range(count)
        ]
        try:
            yield connections
        finally:
            for connection in connections:
                connection.close()

    def get(self, name: str = "", *, query: str = "", accept: str = "application/json") -> bytes:
        """The request for one object, or for the collection."""
        path = f"{self._path}/{name}" if name else self._path
        return f"GET {path}{query} HTTP/1.1\r\nHost: {self._host}\r\nAccept: {accept}\r\n\r\n".encode()

    def create(self, name: str) -> bytes:
        """The request that creates an object."""
        return self._write("POST", self._path, self._make(name))

    def replace(self, name: str, revision: str) -> bytes:
        """The request that replaces an object at that revision."""
        body = self._make(name)
        body["metadata"]["resourceVersion"] = revision
        return self._write("PUT", f"{self._path}/{name}", body)

    def _write(self, method: str, path: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body, separators=(",", ":")).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: application/json\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


Verb = Callable[[Connection], Awaitable[int]]
"""Sends one request, or a few; the status."""


def creating(target: Target, prefix: str) -> Verb:
    """Create one object after the other."""
    names = (f"load-{prefix}{number}" for number in itertools.count())
    return lambda connection: connection.send(target.create(next(names)))


def getting(target: Target, existing: int) -> Verb:
    """Get `load-0` … `load-(existing - 1)`, round and round."""
    requests = itertools.cycle([target.get(f"load-{n}") for n in range(existing)])
    return lambda connection: connection.send(next(requests))


def updating(target: Target, existing: int) -> Verb:
    """Replace these objects, each connection its own ones."""
    free = [(f"load-{number}", "") for number in range(existing)]

    async def update(connection: Connection) -> int:
        name, revision = free.pop()
        if not revision:
            await connection.send(target.get(name))
            revision = connection.revision
        status = await connection.send(target.replace(name, revision))
        free.append((name, connection.revision))
        return status

    return update


async def measure(
    target: Target, verb: Verb, *, connections: int = 1, seconds: float = 3.0, most: int = 1_000_000
) -> tuple[float, float]:
    """Load the server for that time, or with so many requests; the rate per second, and the median in ms."""
    took: list[float] = []
    async with target.connections(connections) as opened:
        start = time.perf_counter()

        async def drive(connection: Connection) -> None:
            while (now := time.perf_counter()) < start + seconds and len(took) < most:
                status = await verb(connection)
                if status not in (200, 201):
                    raise SystemExit(f"the server answered {status}: {connection.body[:300]!r}")
                took.append(time.perf_counter() - now)

        await asyncio.gather(*map(drive, opened))
        spent = time.perf_counter() - start
    return len(took) / spent, percentile(took) * 1_000


class Watcher(asyncio.Protocol):
    """One watch. `received` are pairs: the stamp that the writer put in the object (`spec.at`, right before
    it sent the write), and the moment when the event was read off the TLS connection, both in nanoseconds of
    the machine's monotonic clock. `opened` is the status of the response."""

    def __init__(self, request: bytes) -> None:
        self.received: list[tuple[int, int]] = []
        self.opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._request = request
        # A chunk may end anywhere, also within a stamp.
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        """The head of the response is complete (the parser)."""
        self.opened.set_result(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        """Find the stamps (the parser)."""
        now = time.monotonic_ns()
        rest, *parts = (self._rest + body).split(_STAMP)
        for text in parts:
            end = text.find(b'"')
            if end < 0:  # it continues in what comes next
                rest = _STAMP + text
            else:
                self.received.append((int(text[:end]), now))
                rest = text[end:]
        self._rest = rest[-_LONGEST_STAMP:]


async def _watch(options: argparse.Namespace) -> None:
    url = urlsplit(options.server)
    target = f"{options.path}?watch=true&resourceVersion={options.revision}"
    request = f"GET {target} HTTP/1.1\r\nhost: {url.netloc}\r\naccept: application/json\r\n\r\n".encode()
    loop, context, watchers = asyncio.get_running_loop(), client_context(options.certificate), []
    for _ in range(options.count):
        _, watcher = await loop.create_connection(
            lambda: Watcher(request), url.hostname or "", url.port or 443, ssl=context
        )
        assert await watcher.opened == 200
        watchers.append(watcher)
    print("watching", flush=True)
    expected = int(await asyncio.to_thread(sys.stdin.readline))
    deadline = loop.time() + _LATEST_S
    while sum(len(watcher.received) for watcher in watchers) < expected and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # the events come in on a hundred connections
    print(json.dumps([pair for watcher in watchers for pair in watcher.received]), flush=True)


def main() -> None:
    """Open watches and print a line; read how many events to expect, wait for them, and print what came."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--path", required=True, help="the collection")
    parser.add_argument("--certificate", required=True, help="certificate and key, PEM")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--revision", default="0")
    gc.disable()  # it would stop the watchers while it looks at all that they have received
    run(_watch(parser.parse_args()))


if __name__ == "__main__":
    main()
