"""A load generator for any server that speaks Kubernetes' API over HTTPS: keep-alive connections, one request
under way on each. It runs in a process of its own, so that its work is not counted as the server's.

    python -m bench.load create|get|update|list --server https://127.0.0.1:8443 --ca ca.crt --token-file F \
        --connections 8
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from certwright.kit.event_loop import run

SECRETS = "/api/v1/namespaces/default/secrets"
_REVISION = re.compile(rb'"resourceVersion":"(\d+)"')
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection; understands answers with a Content-Length and chunked ones."""

    def __init__(self) -> None:
        self.head = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed: int | None = None
        self._answer: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def body(self) -> bytes:
        """The last answer, as it came."""
        return b"".join(self._pieces)

    def text(self) -> bytes:
        """The body of the last answer, without the marks of its chunks."""
        if self._needed is not None:
            return self.body
        chunks, begin, body = list[bytes](), 0, self.body
        while (size := int(body[begin : (end := body.index(b"\r\n", begin))], 16)) > 0:
            chunks.append(body[end + 2 : end + 2 + size])
            begin = end + 4 + size
        return b"".join(chunks)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """Collect until head and body are there."""
        if not self.head:
            data = b"".join((*self._pieces, data))
            self._pieces = []
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._pieces = [data]
                return
            self.head, data = data[: end + 2].lower(), data[end + 4 :]
            self._size, self._needed = 0, _content_length(self.head)
        self._pieces.append(data)
        self._size += len(data)
        if self._is_complete() and self._answer is not None and not self._answer.done():
            self._answer.set_result(int(self.head[9:12]))

    def _is_complete(self) -> bool:
        if self._needed is not None:
            return self._size >= self._needed
        tail = b"".join(self._pieces[-2:])[-len(_LAST_CHUNK) :]
        return tail == _LAST_CHUNK or (self._size < len(_LAST_CHUNK) and self.body == _LAST_CHUNK[2:])

    def connection_lost(self, error: Exception | None) -> None:
        """Fail whoever waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def ask(self, request: bytes) -> int:
        """Send one request; the status of its answer."""
        assert self._transport is not None
        self.head, self._pieces = b"", []
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        self._transport.close()


def _content_length(head: bytes) -> int | None:
    at = head.find(b"content-length:")
    return None if at < 0 else int(head[at + 15 : head.index(b"\r\n", at)])


def secret(name: str) -> dict[str, Any]:
    """A Secret of about 2 KB."""
    data = {"payload": base64.b64encode(os.urandom(1_300)).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta(name), "data": data}


def meta(name: str) -> dict[str, Any]:
    """Metadata as the load's objects have it."""
    return {"name": name, "labels": {"bench": "load"}}


class Target:
    """A collection on a server, and who asks: by bearer token, or by the client certificate of `context`."""

    def __init__(
        self,
        server: str,
        context: ssl.SSLContext,
        *,
        token: str = "",
        path: str = SECRETS,
        make: Callable[[str], dict[str, Any]] = secret,
    ) -> None:
        url = urlsplit(server)
        self._host, self._port = url.hostname or "", url.port or 443
        self._context = context
        self._path = path
        self._make = make
        self._common = f"Host: {url.netloc}\r\n"
        if token:
            self._common += f"Authorization: Bearer {token}\r\n"

    async def connect(self) -> Connection:
        """One more connection."""
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, self._host, self._port, ssl=self._context))[1]

    @asynccontextmanager
    async def connections(self, count: int) -> AsyncIterator[list[Connection]]:
        """So many connections, that are hung up in the end."""
        connections = [await self.connect() for _ in range(count)]
        try:
            yield connections
        finally:
            for connection in connections:
                connection.close()

    def get(self, name: str = "", *, query: str = "", accept: str = "application/json") -> bytes:
        """The request for one object, or for the collection."""
        path = f"{self._path}/{name}" if name else self._path
        return f"GET {path}{query} HTTP/1.1\r\n{self._common}Accept: {accept}\r\n\r\n".encode()

    def create(self, name: str) -> bytes:
        """The request that creates an object."""
        return self._write("POST", self._path, self._make(name))

    def replace(self, name: str, revision: str) -> bytes:
        """The request that replaces one at that revision."""
        body = self._make(name)
        body["metadata"]["resourceVersion"] = revision
        return self._write("PUT", f"{self._path}/{name}", body)

    def _write(self, method: str, path: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._common}Accept: application/json\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


Verb = Callable[[Connection], "asyncio.Future[int] | Any"]


def creating(target: Target, prefix: str) -> Verb:
    """Create one object after the other."""
    names = (f"load-{prefix}{number}" for number in itertools.count())
    return lambda connection: connection.ask(target.create(next(names)))


def getting(target: Target, existing: int) -> Verb:
    """Get `load-0` … `load-(existing - 1)`, round and round."""
    requests: Iterator[bytes] = itertools.cycle([target.get(f"load-{n}") for n in range(existing)])
    return lambda connection: connection.ask(next(requests))


def listing(target: Target, accept: str = "application/json") -> Verb:
    """List the whole collection."""
    request = target.get(accept=accept)
    return lambda connection: connection.ask(request)


def updating(target: Target, existing: int) -> Verb:
    """Replace objects, each connection its own ones."""
    free = [(f"load-{number}", "") for number in range(existing)]

    async def update(connection: Connection) -> int:
        name, revision = free.pop()
        if not revision:
            await connection.ask(target.get(name))
            revision = revision_in(connection)
        status = await connection.ask(target.replace(name, revision))
        free.append((name, revision_in(connection)))
        return status

    return update


def revision_in(connection: Connection) -> str:
    """The resourceVersion of the object that was answered."""
    match = _REVISION.search(connection.body)
    assert match is not None, connection.body
    return match[1].decode()


async def measure(
    target: Target, verb: Verb, *, connections: int, seconds: float = 3.0, most: int = 1_000_000
) -> dict[str, float]:
    """Drive the server for the time asked; rate and latencies of the answers that said success."""
    took: list[float] = []
    async with target.connections(connections) as opened:
        start = time.perf_counter()
        deadline = start + seconds

        async def drive(connection: Connection) -> None:
            while (now := time.perf_counter()) < deadline and len(took) < most:
                status = await verb(connection)
                if status not in (200, 201):
                    raise SystemExit(f"the server answered {status}: {connection.body[:300]!r}")
                took.append(time.perf_counter() - now)

        await asyncio.gather(*(drive(connection) for connection in opened))
        spent = time.perf_counter() - start
    took.sort()
    return {
        "rate": len(took) / spent,
        "count": len(took),
        "p50_ms": took[len(took) // 2] * 1_000,
        "p99_ms": took[len(took) * 99 // 100] * 1_000,
    }


def main() -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("create", "get", "update", "list"))
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--most", type=int, default=1_000_000, help="stop after so many answers")
    parser.add_argument("--prefix", default="", help="makes names unique between runs")
    parser.add_argument("--existing", type=int, default=1, help="get or update load-0 … load-(N-1)")
    options = parser.parse_args()
    context = ssl.create_default_context(cafile=options.ca)
    target = Target(options.server, context, token=options.token_file.read_text().strip())
    verbs = {
        "create": lambda: creating(target, options.prefix),
        "get": lambda: getting(target, options.existing),
        "update": lambda: updating(target, options.existing),
        "list": lambda: listing(target),
    }
    drive = measure(
        target,
        verbs[options.verb](),
        connections=options.connections,
        seconds=options.seconds,
        most=options.most,
    )
    print(json.dumps(run(drive)))


if __name__ == "__main__":
    main()
