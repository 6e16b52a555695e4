"""What the HTTPS client says about a server's TLS certificate, with a real TLS server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import ServerTls, ServerUntrusted

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
