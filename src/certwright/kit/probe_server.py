"""A small HTTP server for probes and scrapers inside a network: no users, read-only; with or without TLS.

Source: RFC 9112. Every response closes the connection, because clients come only every half minute.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

_LONGEST_HEAD = 16 * 1024
_PATIENCE_S = 10.0
_TLS_END_S = 2.0


class Page(NamedTuple):
    """A response."""

    content_type: str
    body: bytes


MakePage = Callable[[], Awaitable[Page]]


class Pages:
    """Serves each path with the result of its function. `port` is the real one if 0 was requested."""

    def __init__(self, server: asyncio.Server, open_connections: Collection[asyncio.StreamWriter]) -> None:
        self._server = server
        self._open_connections = open_connections
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end the connections: a client that stays connected delays no shutdown."""
        self._server.close()
        # Not `wait_closed`, which waits for clients from Python 3.12 on.
        for writer in self._open_connections:
            writer.transport.abort()
        # The sockets are closed in the next turn of the loop.
        await asyncio.sleep(0)


async def serve_pages(
    host: str, port: int, pages: Mapping[str, MakePage], tls: ssl.SSLContext | None = None
) -> Pages:
    """Start listening, with `tls` over TLS. Raises `OSError` if that fails."""
    open_connections: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(writer)
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await _answer(request, pages))
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        open_connections.discard(writer)

    times = {} if tls is None else {"ssl_handshake_timeout": _PATIENCE_S, "ssl_shutdown_timeout": _TLS_END_S}
    server = await asyncio.start_server(talk, host, port, limit=_LONGEST_HEAD, ssl=tls, **times)
    return Pages(server, open_connections)


async def _answer(request: bytes, pages: Mapping[str, MakePage]) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    make = pages.get(path)
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", Page("text/plain", b"only GET\n"))
    if make is None:
        known = " ".join(sorted(pages))
        return _response("404 Not Found", Page("text/plain", f"there are {known}\n".encode()))
    return _response("200 OK", await make(), with_body=method == b"GET")


def _response(status: str, page: Page, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (page.body if with_body else b"")
