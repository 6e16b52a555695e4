"""What goes wrong on the way to a server is told in the same words, whoever sends the request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from acme.carrier.conftest import carried, inside
from certwright.acme.carrier.child import Child
from certwright.acme.protocol.errors import AcmeError, NotAcme, Unreachable, Untrusted
from certwright.acme.protocol.messages import Action, Request, Response
from certwright.acme.protocol.transport import TlsOptions, Transport
from support.programs import free_port

_HELD = b"HTTP/1.1 200 OK\r\nContent-Length: "
_LARGE = b"x" * (5 * 2**20)

# What a server says, whatever it is asked.
ANSWERS = {
    "more than it may": _HELD + b"%d\r\n\r\n" % len(_LARGE) + _LARGE,
    "no HTTP at all": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "less than it promised": _HELD + b"100\r\n\r\nshort",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
}


@asynccontextmanager
async def saying(answer: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that says this and closes the connection; None: it says nothing and keeps it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            if answer is None:
                await reader.read()
            else:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        async with asyncio.timeout(60):
            await server.wait_closed()


async def outcome(sender: Transport, url: str) -> AcmeError | Response:
    """What came of a request."""
    try:
        return await sender.send(Request(Action.DIRECTORY, "GET", url))
    except AcmeError as error:
        return error
    finally:
        await sender.close()


async def told(child: Child, url: str, tls: TlsOptions | None = None, timeout_s: float = 200.0) -> AcmeError:
    """How both kinds of transport tell the error, which is the same."""
    trust = tls or TlsOptions()
    here = await outcome(inside(trust, timeout_s), url)
    there = await outcome(carried(child, trust, timeout_s), url)
    assert isinstance(here, AcmeError)
    assert (type(there), str(there)) == (type(here), str(here))
    return here


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_server_that_breaks_http(answer: bytes, child: Child) -> None:
    async with saying(answer) as port:
        error = await told(child, f"http://127.0.0.1:{port}/dir")
    assert isinstance(error, NotAcme | Unreachable)


@pytest.mark.parametrize("url", ["acme.example/dir", "http://[::1/dir", "https://", "ftp://acme.example/dir"])
async def test_what_is_no_url(url: str, child: Child) -> None:
    await told(child, url)


async def test_nobody_listens(child: Child) -> None:
    port = free_port()
    error = await told(child, f"https://127.0.0.1:{port}/dir")
    assert str(error).endswith(f"/dir cannot be reached: Connection refused at 127.0.0.1:{port}")


async def test_a_name_that_does_not_exist(child: Child) -> None:
    # Not by `told`: the system's name servers may say one thing first and another then.
    for sender in (inside(), carried(child)):
        error = await outcome(sender, "https://acme.invalid/dir")
        assert isinstance(error, Unreachable)
        assert str(error).startswith("the name of https://acme.invalid/dir cannot be resolved: ")


async def test_no_answer_in_time(child: Child) -> None:
    async with saying(None) as port:
        error = await told(child, f"http://127.0.0.1:{port}/dir", timeout_s=0.2)
    assert "did not answer within 0.2 s" in str(error)


async def test_a_certificate_that_is_not_trusted(child: Child) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with saying(_HELD + b"2\r\n\r\n{}", context) as port:
        url = f"https://127.0.0.1:{port}/dir"
        error = await told(child, url)
        known = carried(child, TlsOptions(authority.cert_pem.bytes()))
        anybody = carried(child, TlsOptions(skip_verify=True))
        for sender in (known, anybody):
            answer = await outcome(sender, url)
            assert isinstance(answer, Response)
            assert answer.body == b"{}"
    assert isinstance(error, Untrusted)
    assert "spec.acme.caBundle" in str(error)


async def test_a_bundle_without_certificates_is_refused_at_once(child: Child) -> None:
    for make in (inside, lambda tls: carried(child, tls)):
        with pytest.raises(ValueError, match="holds no certificates in PEM form"):
            make(TlsOptions(b"nothing"))


async def test_a_proxy_that_does_not_listen(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    await told(child, "http://acme.invalid/dir")


async def test_a_header_that_is_no_text_keeps_the_answer(child: Child) -> None:
    async with saying(b"HTTP/1.1 200 OK\r\nServer: caf\xe9\r\nContent-Length: 2\r\n\r\n{}") as port:
        answer = await outcome(carried(child), f"http://127.0.0.1:{port}/dir")
    assert isinstance(answer, Response)
    assert (answer.body, answer.header("server")) == (b"{}", "caf?")
