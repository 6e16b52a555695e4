"""HTTP/1.1 of the client: methods, statuses and bodies of Go's server, servers that misbehave, proxies,
addresses."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext

import pytest
import trustme

from certwright.kube.api.errors import Unreachable
from certwright.kube.client import dial
from certwright.kube.client.https import HttpsTransport
from certwright.kube.util.connections import tls_context
from support.go import build

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server on a port of its own, and the end of its connections."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*tasks)


@asynccontextmanager
async def connected(port: int, proxy: str = "") -> AsyncIterator[HttpsTransport]:
    transport = HttpsTransport(f"http://127.0.0.1:{port}", proxy=proxy)
    try:
        yield transport
    finally:
        await transport.close()


def answering(*answers: bytes) -> Handler:
    """Answers one request after the other with these bytes, then closes the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    return handle


@pytest.fixture(scope="module")
def net_http() -> Iterator[int]:
    """The port of Go's HTTP server."""
    command = [str(build("httpserver", "httpserver"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CONTENT = b"0123456789abcdef" * 4096


@pytest.mark.real("go")
@pytest.mark.parametrize("status", [100, 102, 103, 200, 201, 202, 204, 304, 400, 404, 409, 429, 500, 503])
async def test_every_method_and_status_leaves_the_connection_to_the_next_request(
    net_http: int, status: int
) -> None:
    async with connected(net_http) as transport:
        peer = (await transport.request("GET", "/peer", headers={})).body
        for method in METHODS:
            body = b"x" * 10_000 if method in ("POST", "PUT", "PATCH", "DELETE") else b""
            response = await transport.request(method, f"/status/{status}", headers={}, body=body)
            assert response.status == max(status, 200)
            assert response.body == (b"" if method == "HEAD" or status in (204, 304) else b"{}")
            assert response.headers["x-method"] == method
            assert response.headers["x-received"] == str(len(body))
            assert "link" not in response.headers
        assert (await transport.request("GET", "/peer", headers={})).body == peer


@pytest.mark.real("go")
@pytest.mark.parametrize("form", ["length", "chunked", "close-delimited", "trailers", "gzip", "none", "big"])
async def test_every_form_of_body_is_read_to_its_end_and_a_head_request_gets_none(
    net_http: int, form: str
) -> None:
    expected = {"none": b"", "big": CONTENT * 256}.get(form, CONTENT)
    async with connected(net_http) as transport:
        for method in ("GET", "HEAD", "POST", "HEAD", "GET"):
            response = await transport.request(method, f"/body?form={form}", headers={})
            assert response.body == (b"" if method == "HEAD" else expected)


@pytest.mark.real("go")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("closed-while-idle", ""),
        ("half-closed", ""),
        ("garbage-after", ""),
        ("reset", "closed the connection without an answer"),
        ("reset-within", "ended before it was complete"),
        ("reset-within-close-delimited", "ended before it was complete"),
    ],
)
async def test_however_a_connection_ends_the_next_request_gets_its_own_response(
    net_http: int, path: str, words: str
) -> None:
    async with connected(net_http) as transport:
        for method in ("GET", "HEAD", "POST"):
            with pytest.raises(Unreachable, match=words) if words else nullcontext():
                assert (await transport.request("GET", f"/raw/{path}", headers={})).body == b"{}"
            await asyncio.sleep(0.2)  # until what the server does next has arrived
            assert (await transport.request(method, "/status/409", headers={})).status == 409


PACKED = gzip.compress(b"hello")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(PACKED), PACKED),
    ],
    ids=["length", "chunked", "until the connection closes", "after an interim response", "gzip"],
)
async def test_a_body_of_any_framing_is_read(answer: bytes) -> None:
    async with serving(answering(answer)) as port, connected(port) as transport:
        response = await transport.request("GET", "/x", headers={})
    assert (response.status, response.body) == (200, b"hello")
    assert "link" not in response.headers


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "ended before it was complete"),
        (b"SSH-2.0-OpenSSH secret\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000, "does not speak HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
            "does not speak HTTP",
        ),
    ],
)
async def test_an_unusable_response_is_described_without_its_bytes(answer: bytes, words: str) -> None:
    async with serving(answering(answer)) as port, connected(port) as transport:
        with pytest.raises(Unreachable, match=words) as caught:
            await transport.request("POST", "/x", headers={}, body=b"{}")
    assert "secret" not in str(caught.value)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


async def test_only_an_idempotent_request_is_repeated_on_a_new_connection() -> None:
    """The server closes each kept connection when the second request arrives."""
    async with serving(answering(OK, b"")) as port, connected(port) as transport:
        for _ in range(3):
            assert (await transport.request("GET", "/x", headers={})).status == 200
        with pytest.raises(Unreachable, match="closed the connection"):
            await transport.request("POST", "/x", headers={}, body=b"{}")


async def test_a_cancelled_request_leaves_no_connection_behind() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        gone.set()

    async with serving(wait) as port, connected(port) as transport:
        request = asyncio.ensure_future(transport.request("GET", "/x", headers={}))
        await asyncio.wait_for(arrived.wait(), 60)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.wait_for(gone.wait(), 60)
        assert not transport.leases


@pytest.mark.parametrize("target", ["/x y", "/x\r\nInjected: 1"])
async def test_a_target_cannot_add_lines(target: str) -> None:
    async with connected(9) as transport:
        with pytest.raises(ValueError, match="line break, space"):
            await transport.request("GET", target, headers={})
        with pytest.raises(ValueError, match="line break, space"):
            await transport.request("GET", "/", headers={"x": "a\nb"})


class Proxy:
    """An HTTP proxy with CONNECT; `lines` are the request lines and headers that it saw."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.answer = answer
        self.lines: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        writer.write(self.answer)
        host, _, port = self.lines[0].split()[1].rpartition(":")
        if self.lines[0].startswith("CONNECT") and b" 200 " in self.answer:
            onward, back = await asyncio.open_connection(host, int(port))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, back))
                tasks.create_task(self._copy(onward, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.transport.abort()


async def test_an_https_server_is_reached_through_a_tunnel() -> None:
    authority, proxy = trustme.CA(), Proxy()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    server = await asyncio.start_server(answering(OK), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server, serving(proxy) as proxy_port:
        transport = HttpsTransport(
            f"https://127.0.0.1:{port}",
            tls=tls_context(ca_pem=authority.cert_pem.bytes()),
            proxy=f"http://user:pass%20word@127.0.0.1:{proxy_port}",
        )
        assert (await transport.request("GET", "/x", headers={"authorization": "Bearer s"})).status == 200
        await transport.close()
    assert proxy.lines[0] == f"CONNECT 127.0.0.1:{port} HTTP/1.1"
    assert "proxy-authorization: Basic dXNlcjpwYXNzIHdvcmQ=" in proxy.lines
    assert "Bearer" not in "".join(proxy.lines)


async def test_a_proxy_that_refuses_is_named_and_a_plain_server_needs_no_tunnel() -> None:
    refusing = Proxy(b"HTTP/1.1 407 Authenticate\r\nContent-Length: 0\r\n\r\n")
    async with serving(refusing) as port:
        transport = HttpsTransport("https://127.0.0.1:9", proxy=f"http://127.0.0.1:{port}")
        with pytest.raises(
            Unreachable, match=r"proxy .* cannot be used: it answered CONNECT with status 407"
        ):
            await transport.request("GET", "/x", headers={})
        await transport.close()
    plain = Proxy(OK)
    async with serving(plain) as port, connected(9, proxy=f"http://127.0.0.1:{port}") as transport:
        assert (await transport.request("GET", "/x", headers={})).status == 200
    assert plain.lines[0] == "GET http://127.0.0.1:9/x HTTP/1.1"


async def test_the_next_address_is_tried_when_the_first_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        results = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{i}", port)) for i in (2, 3, 1)]
        return list(results)

    async with serving(answering(OK)) as port:
        monkeypatch.setattr(socket, "getaddrinfo", addresses)
        connection = await dial.dial(dial.endpoint(f"http://many.example:{port}"), tls=tls_context())
        assert connection.transport.get_extra_info("peername")[0] == "127.0.0.1"
        connection.abort()
        await asyncio.sleep(0)


@pytest.mark.parametrize("url", ["ftp://x", "https://", "x", "https://a:b"])
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        dial.endpoint(url)
