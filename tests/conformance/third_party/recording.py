"""A proxy between a program and the API server that records which requests are refused, and with what.

Its certificate is of a CA of its own, because clients in Go send no token without TLS.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import trustme
from aiohttp import web

from certwright.kube.client.kubeconfig import ClusterAccess
from conformance.third_party.chart import Check
from support.programs import free_port

_HOP_BY_HOP: Final = frozenset({"transfer-encoding", "content-length", "connection", "keep-alive", "host"})
_ORDINARY: Final[Mapping[tuple[str, int], str]] = {
    ("GET", 404): "asks whether something exists",
    ("PUT", 409): "changed since it was read; the program reads it again",
    ("PATCH", 409): "changed since it was read; the program reads it again",
    ("POST", 409): "exists already",
}
_STARTS_WITHIN_S: Final = 60.0


@dataclass(slots=True)
class Recording:
    """The requests of one program: how many there were, and those that were answered with 400 or more."""

    url: str
    ca_pem: bytes
    requests: int = 0
    refused: Counter[tuple[str, int, str]] = field(default_factory=Counter)

    def check(self, program: str, expected: Mapping[tuple[str, int, str], str]) -> Check:
        """Whether all refusals are ordinary or `expected`, which has the reasons by method, code and path."""
        lines = [
            f"{method} {path} {code} ({number})"
            for (method, code, path), number in self.refused.items()
            if (method, code) not in _ORDINARY and (method, code, path) not in expected
        ]
        words = ", ".join(lines) or "none"
        return Check(f"of {self.requests} requests of {program}, refused: {words}", not lines)


@contextmanager
def recorded(access: ClusterAccess) -> Iterator[Recording]:
    """A proxy to that API server on a free port."""
    authority = trustme.CA()
    recording = Recording(f"https://127.0.0.1:{free_port()}", authority.cert_pem.bytes())
    identity = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(identity)
    started, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def work() -> None:
        async with _serving(recording, access, identity):
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()), name="recording proxy")
    thread.start()
    try:
        if not started.wait(_STARTS_WITHIN_S):
            raise RuntimeError("the recording proxy does not start")
        yield recording
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


@asynccontextmanager
async def _serving(
    recording: Recording, access: ClusterAccess, identity: ssl.SSLContext
) -> AsyncIterator[None]:
    tls = ssl.create_default_context(cadata=access.ca_pem.decode())
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    async with aiohttp.ClientSession(
        connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout()
    ) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            return await _pass_on(request, session, access.server, recording)

        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, shutdown_timeout=0, auto_decompress=False)
        await runner.setup()
        port = int(recording.url.rpartition(":")[2])
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=identity).start()
        try:
            yield
        finally:
            await runner.cleanup()


async def _pass_on(
    request: web.Request, session: aiohttp.ClientSession, server: str, recording: Recording
) -> web.StreamResponse:
    headers = [(key, value) for key, value in request.headers.items() if key.lower() not in _HOP_BY_HOP]
    body = await request.read()
    async with session.request(
        request.method, server + request.raw_path, headers=headers, data=body or None, allow_redirects=False
    ) as answer:
        recording.requests += 1
        if answer.status >= 400:
            recording.refused[request.method, answer.status, request.path] += 1
        kept = [(key, value) for key, value in answer.headers.items() if key.lower() not in _HOP_BY_HOP]
        response = web.StreamResponse(status=answer.status, headers=kept)
        # The program may leave while it is answered.
        with suppress(ConnectionError):
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        return response
