"""Between an ACME client and a Pebble: counts what the Pebble has agreed to, and can withhold an answer.

Pebble makes its URLs of the host that it is asked by, so that all of them lead through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import trustme
from aiohttp import web

from support.pebble import Pebble

NEW_ACCOUNT, NEW_ORDER, FINALIZE, CERTIFICATE = "sign-me-up", "order-plz", "finalize-order", "certZ"
_NOT_PASSED_ON = {"transfer-encoding", "content-length", "content-encoding", "connection", "date"}


@dataclass(slots=True)
class AcmeProxy:
    """`asked` and `agreed` (answers below 300) count by the first word of the path, in Pebble's funny names;
    of accounts only those that are new. `heard` is called when Pebble has answered; where it says False, the
    client gets no answer."""

    pebble: Pebble
    heard: Callable[[str], bool] = lambda _: True
    asked: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    directory: str = ""
    ca_bundle: bytes = b""
    _session: aiohttp.ClientSession | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        kind = request.path.split("/")[1]
        url = self.pebble.directory.removesuffix("/dir") + request.path_qs
        body = await request.read()
        async with self._session.request(
            request.method, url, data=body or None, headers=request.headers, allow_redirects=False
        ) as answer:
            content = await answer.read()
        self.asked[kind] += 1
        if answer.status < 300 and (kind != NEW_ACCOUNT or answer.status == 201):
            self.agreed[kind] += 1
        if not self.heard(kind) and request.transport is not None:  # None: the client has gone already
            request.transport.abort()
        kept = [(k, v) for k, v in answer.headers.items() if k.lower() not in _NOT_PASSED_ON]
        return web.Response(status=answer.status, headers=dict(kept), body=content)


@asynccontextmanager
async def running_acme_proxy(pebble: Pebble) -> AsyncIterator[AcmeProxy]:
    """A proxy on a free port, with a certificate of its own."""
    authority = trustme.CA()
    there = ssl.create_default_context(cadata=pebble.ca_bundle.decode())
    here = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(here)
    connector = aiohttp.TCPConnector(ssl=there)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        proxy = AcmeProxy(pebble, ca_bundle=authority.cert_pem.bytes(), _session=session)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=here)
            await site.start()
            proxy.directory = f"https://localhost:{runner.addresses[0][1]}/dir"
            yield proxy
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def balancing(port: int, backends: Sequence[int]) -> AsyncIterator[None]:
    """Listen on the port of 127.0.0.1, for backends there."""
    turns = itertools.cycle(backends)

    tasks: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", next(turns))
            with contextlib.closing(there_writer):
                await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(relay(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    async with server:
        yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.write_eof()
