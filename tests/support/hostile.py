"""An HTTPS server that misbehaves: answers slowly, endlessly, not at all, or not in HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trustme

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


async def silent(_writer: asyncio.StreamWriter) -> None:
    await asyncio.get_running_loop().create_future()


async def slow(writer: asyncio.StreamWriter) -> None:
    """A byte from time to time."""
    writer.write(_HEAD + b"content-length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def endless(writer: asyncio.StreamWriter) -> None:
    """A body without an end, as fast as it is read."""
    writer.write(_HEAD + b"transfer-encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    while not writer.is_closing():
        writer.write(chunk)
        await writer.drain()
        # `drain` does not wait where the client has gone away, and the loop has to see that it has.
        await asyncio.sleep(0)


async def not_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.internal.example ESMTP\r\n")
    await writer.drain()
    writer.close()


def repeating(first: bytes, piece: bytes) -> Behaviour:
    """A beginning, and then the same bytes without an end."""

    async def repeat(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return repeat


@asynccontextmanager
async def hostile(behaviour: Behaviour) -> AsyncIterator[tuple[str, bytes]]:
    """The URL of a server, and its CA (PEM)."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await behaviour(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", authority.cert_pem.bytes()
    finally:
        server.close()
