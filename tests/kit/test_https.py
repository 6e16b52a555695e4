"""What the HTTPS client says about a server's TLS certificate, with a real TLS server."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
import trustme

from certwright.kit import event_loop
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import ServerError, ServerTls, ServerUnreachable, ServerUntrusted
from support.hostile import hostile, repeating

AUTHORITY = trustme.CA()
_NAME_FIX = "name the server in the URL as its certificate does"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server whose certificate is for localhost only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost").configure_cert(context)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.mark.parametrize(
    ("host", "ca", "reason", "fix"),
    [
        ("127.0.0.1", AUTHORITY, "IP address mismatch", _NAME_FIX),
        (
            "other.example",
            AUTHORITY,
            "Hostname mismatch",
            _NAME_FIX,
        ),
        ("localhost", trustme.CA(), "unable to get local issuer certificate", "put its CA into the field"),
    ],
)
async def test_the_fix_fits_the_reason(port: int, host: str, ca: trustme.CA, reason: str, fix: str) -> None:
    tls = ServerTls(ca_pem=ca.cert_pem.bytes(), server_name=host if host == "other.example" else "")
    client = HttpsClient(tls, user_agent="test", trust_fix="put its CA into the field")
    address = host if host == "127.0.0.1" else "localhost"
    try:
        with pytest.raises(ServerUntrusted) as raised:
            await client.send("GET", f"https://{address}:{port}/")
    finally:
        await client.close()
    assert reason in str(raised.value)
    assert fix in str(raised.value)


@pytest.mark.parametrize("run", [asyncio.run, event_loop.run], ids=["asyncio", "fastest"])
@pytest.mark.parametrize(("names", "is_accepted"), [(10, True), (2000, False)])
def test_a_server_whose_certificates_are_longer_than_any_usual_ones_is_refused(
    run: Callable[[Coroutine[Any, Any, str]], str], names: int, is_accepted: bool
) -> None:
    """OpenSSL would verify 100 kB of them, in the event loop."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost", *(f"{n:08}.example.com" for n in range(names))).configure_cert(context)

    async def error() -> str:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        client = HttpsClient(
            ServerTls(ca_pem=AUTHORITY.cert_pem.bytes()), user_agent="test", trust_fix="put its CA there"
        )
        try:
            with pytest.raises(ServerUnreachable) as raised:
                await client.send("GET", f"https://localhost:{server.sockets[0].getsockname()[1]}/")
        finally:
            await client.close()
            server.close()
        return str(raised.value)

    assert ("the handshake has more than 32768 bytes" in run(error())) is not is_accepted


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def zip_bomb() -> bytes:
    """100 MB in 100 kB."""
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(bytes(10**6)) for _ in range(100)) + packer.flush()


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        pytest.param(HEAD, b"a:b\r\n" * 1000, id="headers without end"),
        pytest.param(HEAD + b"x: ", b"y" * 65536, id="a header without end"),
        pytest.param(HEAD + b"content-encoding: gzip\r\n\r\n" + zip_bomb(), b"", id="a compressed body"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"a:b\r\n" * 1000, id="trailers"),
        pytest.param(HEAD + b"\r\n", b" " * 65536, id="a body without end"),
    ],
)
async def test_an_answer_is_read_up_to_a_number_of_bytes(first: bytes, piece: bytes) -> None:
    async with hostile(repeating(first, piece)) as (url, ca):
        client = HttpsClient(ServerTls(ca_pem=ca), user_agent="test", trust_fix="", timeout_s=120)
        try:
            with pytest.raises(ServerError) as raised:
                await client.send("GET", url)
        finally:
            await client.close()
    assert "did not answer within" not in str(raised.value)


async def test_a_cancelled_request_leaves_no_connection_when_the_client_is_closed() -> None:
    listening, has_asked = socket.create_server(("127.0.0.1", 0)), asyncio.Event()
    loop = asyncio.get_running_loop()

    def serve() -> None:
        """Read a request, and answer nothing, not even the end of TLS; return when the connection ends."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.issue_cert("localhost").configure_cert(context)
        with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.recv(65_536)
            loop.call_soon_threadsafe(has_asked.set)
            with socket.socket(fileno=os.dup(connection.fileno())) as raw, suppress(OSError):
                while raw.recv(65_536):
                    pass

    with listening:
        serving = loop.run_in_executor(None, serve)
        client = HttpsClient(ServerTls(ca_pem=AUTHORITY.cert_pem.bytes()), user_agent="test", trust_fix="")
        asking = asyncio.create_task(client.send("GET", f"https://localhost:{listening.getsockname()[1]}/"))
        await has_asked.wait()
        asking.cancel()
        await asyncio.wait({asking})
        await client.close()
        # asyncio waits 30 s for the end of TLS.
        async with asyncio.timeout(10):
            await serving
