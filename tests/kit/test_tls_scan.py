"""Reading the certificate that a server presents, directly and after STARTTLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trustme

from certwright.kit import event_loop
from certwright.kit.tls_scan import ScanFailed, TlsAddress, presented_certificate

Begin = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


def context_of(authority: trustme.CA, name: str) -> tuple[ssl.SSLContext, bytes]:
    """A server's context for that name, and the certificate as DER."""
    issued = authority.issue_cert(name, key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    return context, ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())


@contextlib.asynccontextmanager
async def server(context: ssl.SSLContext, begin: Begin) -> AsyncIterator[int]:
    """A server that speaks plain text until `begin` returns whether TLS follows; the value is its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await begin(reader, writer):
                await writer.start_tls(context)
                await reader.read()
        except (OSError, EOFError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def at_once(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> bool:
    return True


async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    # As in RFC 5321 §4.2.1 (a reply of several lines) and RFC 3207 §5.
    writer.write(b"220-mail.example.com ESMTP\r\n220 ready\r\n")
    assert (await reader.readline()).startswith(b"EHLO ")
    writer.write(b"250-mail.example.com\r\n250-PIPELINING\r\n250 STARTTLS\r\n")
    assert await reader.readline() == b"STARTTLS\r\n"
    writer.write(b"220 go ahead\r\n")
    return True


async def imap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    # As in RFC 9051 §6.2.1.
    writer.write(b"* OK [CAPABILITY IMAP4rev2 STARTTLS] ready\r\n")
    assert await reader.readline() == b"a1 STARTTLS\r\n"
    writer.write(b"* CAPABILITY IMAP4rev2\r\na1 OK begin TLS\r\n")
    return True


async def postgres(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    # As in PostgreSQL's documentation of SSLRequest.
    assert await reader.readexactly(8) == b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
    writer.write(b"S")
    return True


async def scan(text: str, *, timeout_s: float = 20.0) -> bytes:
    return await presented_certificate(TlsAddress.parse(text), timeout_s=timeout_s)


@pytest.mark.parametrize("begin", [at_once, smtp, imap, postgres])
async def test_the_certificate_is_read(authority: trustme.CA, begin: Begin) -> None:
    context, der = context_of(authority, "www.example.com")
    prefix = "" if begin is at_once else f"{begin.__name__}://"
    async with server(context, begin) as port:
        assert await scan(f"{prefix}127.0.0.1:{port}") == der


async def test_the_server_name_chooses_the_certificate(authority: trustme.CA) -> None:
    default, default_der = context_of(authority, "default.example.com")
    other, other_der = context_of(authority, "other.example.com")

    def choose(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if name == "other.example.com":
            connection.context = other

    default.sni_callback = choose
    async with server(default, at_once) as port:
        assert await scan(f"127.0.0.1:{port}") == default_der
        assert await scan(f"other.example.com@127.0.0.1:{port}") == other_der


async def refuse_smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"554 no secret service\r\n")
    return False


async def send_without_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"secret" * 100_000)
    await reader.read()
    return False


async def refuse_imap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"* OK ready\r\na1 BAD secret\r\n")
    await reader.readline()
    return False


async def refuse_postgres(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await reader.readexactly(8)
    writer.write(b"N")
    return False


async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    await reader.read()
    return False


async def say_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> bool:
    await reader.read()
    await reader.read()
    return False


@pytest.mark.parametrize(
    ("begin", "prefix", "reason"),
    [
        (refuse_smtp, "smtp://", "cannot be read: it does not greet as an SMTP server does"),
        (refuse_imap, "imap://", "cannot be read: it does not accept STARTTLS"),
        (refuse_postgres, "postgres://", "cannot be read: it does not offer TLS"),
        (speak_http, "", "does not complete a TLS handshake (wrong version number)"),
        (send_without_end, "smtp://", "cannot be read: "),
        (say_nothing, "smtp://", "did not answer within 0.2 s"),
    ],
)
async def test_a_server_that_presents_none_is_reported(
    authority: trustme.CA, begin: Begin, prefix: str, reason: str
) -> None:
    context, _ = context_of(authority, "www.example.com")
    async with server(context, begin) as port:
        address = f"{prefix}127.0.0.1:{port}"
        with pytest.raises(ScanFailed) as error:
            await scan(address, timeout_s=0.2 if begin is say_nothing else 20.0)
    assert str(error.value).startswith(f"{address} {reason}")
    # The authors of a Delivery see it, and what the server answers is not for them.
    assert "secret" not in str(error.value)


async def test_an_address_without_a_server_is_reported(authority: trustme.CA) -> None:
    context, _ = context_of(authority, "www.example.com")
    async with server(context, at_once) as port:
        pass
    with pytest.raises(ScanFailed, match=r"cannot be reached: Connection refused"):
        await scan(f"127.0.0.1:{port}")
    with pytest.raises(ScanFailed, match=r"cannot be reached"):
        await scan("does-not-exist.invalid")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("www.example.com", TlsAddress(host="www.example.com", port=443)),
        ("[::1]:8443", TlsAddress(host="::1", port=8443)),
        ("a.example@10.0.0.7", TlsAddress(host="10.0.0.7", port=443, server_name="a.example")),
        ("smtp://mail", TlsAddress(host="mail", port=25, protocol="smtp")),
        ("imap://n@mail:14", TlsAddress(host="mail", port=14, server_name="n", protocol="imap")),
        ("postgres://db", TlsAddress(host="db", port=5432, protocol="postgres")),
    ],
)
def test_addresses(text: str, expected: TlsAddress) -> None:
    assert TlsAddress.parse(text) == expected
    assert TlsAddress.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["", ":443", "a:0", "a:70000", "a:b", "ftp://a", "a/b", "a b", "https://a"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST, HOST:PORT"):
        TlsAddress.parse(text)


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Reset the connection in the middle of the handshake, as a server does that reloads."""
    await reader.read(1)
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


@pytest.mark.parametrize("run", [asyncio.run, event_loop.run], ids=["asyncio", "fastest"])
def test_a_reset_in_the_handshake_ends_the_scan(run: Callable[[Awaitable[None]], None]) -> None:
    async def scan() -> None:
        async with server(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), reset) as port, asyncio.timeout(10):
            for _ in range(20):
                with pytest.raises(ScanFailed, match=r"connection|Connection|reset"):
                    await presented_certificate(TlsAddress(host="127.0.0.1", port=port), timeout_s=5)

    run(scan())
