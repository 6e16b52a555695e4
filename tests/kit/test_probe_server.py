"""Pages for probes and scrapers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from certwright.app.controllers import Page, ProbeServer, serve_probes
from support.waiting import until


async def hello() -> Page:
    return Page("text/plain", b"hello\n")


@pytest.fixture
async def pages() -> AsyncIterator[ProbeServer]:
    serving = await serve_probes("127.0.0.1", 0, {"/hello": hello})
    yield serving
    await serving.close()


async def ask(pages: ProbeServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionResetError:
        # The end of a connection of which not all has been read.
        return b""
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_page_is_served_and_the_connection_closed(pages: ProbeServer) -> None:
    answer = await ask(pages, b"GET /hello?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n")
    assert answer.endswith(b"\r\n\r\nhello\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"HEAD /hello", b"200 OK"), (b"POST /hello", b"405"), (b"GET /nothing", b"404"), (b"nonsense", b"405")],
)
async def test_other_requests_are_answered_too(
    pages: ProbeServer, request_line: bytes, status: bytes
) -> None:
    answer = await ask(pages, request_line + b" HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"\r\n\r\nhello" not in answer


@pytest.mark.parametrize("sent", [b"", b"GET /hello HTTP/1.1\r\n"])
async def test_a_client_that_stays_connected_does_not_delay_the_end(pages: ProbeServer, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
    writer.write(sent)
    await until(lambda: len(pages._open_connections) == 1)
    await pages.close()
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.transport.abort()


async def test_a_head_without_end_is_not_read_for_ever(pages: ProbeServer) -> None:
    assert await ask(pages, b"GET /hello HTTP/1.1\r\n" + b"X: y\r\n" * 5000) == b""
