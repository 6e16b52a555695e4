"""Against a real server on a real socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import NoCredentials, NotFound, Unreachable
from certwright.kube.client.https import HttpsTransport
from certwright.kube.client.login import Credential, FileLogin, FixedLogin, LoginFiles
from certwright.kube.client.rest import Client
from certwright.kube.runtime.lease import FencedTransport
from certwright.kube.util.connections import BadCredentials, tls_context
from certwright.kube.util.http_messages import HEARTBEAT, close_stream

CA = trustme.CA()
SERVER = CA.issue_cert("127.0.0.1", "localhost", "api.example.com")
CLIENT = CA.issue_cert("alice@example.com")


@dataclass
class Heard:
    """What the server saw of the last request."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    client_names: tuple[str, ...] = ()
    transports: list[object] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Server:
    address: str
    heard: Heard


def _names(request: web.Request) -> tuple[str, ...]:
    peer = request.transport.get_extra_info("peercert") if request.transport else None
    return tuple(value for _, value in peer.get("subjectAltName", ())) if peer else ()


def _handler(heard: Heard) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        heard.method, heard.path = request.method, request.raw_path
        if request.transport not in heard.transports:
            heard.transports.append(request.transport)
        heard.headers = {name.lower(): value for name, value in request.headers.items()}
        heard.body, heard.client_names = await request.read(), _names(request)
        if "watch=true" in request.raw_path:
            return await _watch(request, heard)
        if request.path.endswith("/missing"):
            return web.json_response({"reason": "NotFound", "message": "no such secret"}, status=404)
        if request.path.endswith("/moved"):
            raise web.HTTPFound("https://elsewhere.example.com/")
        if request.path.endswith("/break"):
            assert request.transport is not None
            request.transport.abort()
        headers = {"Warning": '299 - "old"', "X-Thing": "a"}
        return web.Response(body=b'{"metadata":{"name":"a"}}', headers=headers)

    return handle


async def _watch(request: web.Request, heard: Heard) -> web.StreamResponse:
    response = web.StreamResponse(headers={HEARTBEAT: request.headers[HEARTBEAT]})
    await response.prepare(request)
    try:
        await response.write(b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}\n')
        if "resourceVersion=cut" in request.raw_path:
            assert request.transport is not None
            request.transport.abort()
        await asyncio.Event().wait()
    finally:
        heard.gone.set()
    return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    heard = Heard()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    SERVER.configure_cert(context)
    CA.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application(handler_args={"handler_cancellation": True})
    app.router.add_route("*", "/{path:.*}", _handler(heard))
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    yield Server(f"https://127.0.0.1:{port}", heard)
    await runner.cleanup()


def trusting(*, client_cert_pem: bytes = b"", client_key_pem: bytes = b"") -> ssl.SSLContext:
    return tls_context(
        ca_pem=CA.cert_pem.bytes(), client_cert_pem=client_cert_pem, client_key_pem=client_key_pem
    )


@contextlib.asynccontextmanager
async def connected(transport: HttpsTransport) -> AsyncIterator[HttpsTransport]:
    try:
        yield transport
    finally:
        await transport.close()


async def test_a_request_arrives_as_it_was_sent(server: Server) -> None:
    transport = HttpsTransport(
        server.address + "/prefix/", tls=trusting(), login=FixedLogin(Credential("s3cret"))
    )
    async with connected(transport):
        headers = {"content-type": "application/json", "user-agent": "certwright-test"}
        answer = await transport.request("PUT", "/a%2Fb/..?x=%2B", headers=headers, body=b"{}")
    assert (answer.status, answer.body) == (200, b'{"metadata":{"name":"a"}}')
    assert (answer.headers["x-thing"], answer.headers["warning"]) == ("a", '299 - "old"')
    heard = server.heard
    assert (heard.method, heard.path, heard.body) == ("PUT", "/prefix/a%2Fb/..?x=%2B", b"{}")
    assert heard.headers["authorization"] == "Bearer s3cret"
    assert heard.headers["user-agent"] == "certwright-test"
    assert heard.headers["content-type"] == "application/json"


async def test_connections_are_kept(server: Server) -> None:
    async with connected(HttpsTransport(server.address, tls=trusting())) as transport:
        for _ in range(5):
            await transport.request("GET", "/x", headers={})
    assert len(server.heard.transports) == 1


async def test_a_client_certificate_from_memory_is_shown(server: Server) -> None:
    pem, key = CLIENT.cert_chain_pems[0].bytes(), CLIENT.private_key_pem.bytes()
    tls = trusting(client_cert_pem=pem, client_key_pem=key)
    async with connected(HttpsTransport(server.address, tls=tls)) as transport:
        await transport.request("GET", "/x", headers={})
    assert server.heard.client_names == ("alice@example.com",)


async def test_errors_are_answers_and_redirects_are_not_followed(server: Server) -> None:
    async with connected(HttpsTransport(server.address, tls=trusting())) as transport:
        client = Client(transport, user_agent="test")
        with pytest.raises(NotFound, match="no such secret"):
            await client.get(SECRETS, "missing", "n")
        assert (await transport.request("GET", "/moved", headers={})).status == 302


async def test_a_watch_streams_and_closing_it_is_seen_by_the_server(server: Server) -> None:
    async with connected(HttpsTransport(server.address, tls=trusting())) as transport:
        watch = Client(transport, user_agent="test").watch(SECRETS, resource_version="1")
        (event,) = await anext(watch)
        assert event.object.metadata.name == "a"
        await watch.aclose()
        await asyncio.wait_for(server.heard.gone.wait(), 60)


async def test_a_stream_that_was_never_read_can_be_closed(server: Server) -> None:
    async with connected(HttpsTransport(server.address, tls=trusting())) as transport:
        answer = await transport.request("GET", "/x?watch=true", headers={})
        assert answer.stream is not None
        await close_stream(answer.stream)
        await asyncio.wait_for(server.heard.gone.wait(), 60)


async def test_a_connection_that_breaks_in_a_watch_is_no_quiet_end(server: Server) -> None:
    async with connected(HttpsTransport(server.address, tls=trusting())) as transport:
        watch = Client(transport, user_agent="test").watch(SECRETS, resource_version="cut")
        with pytest.raises(Unreachable, match=r"the answer of https://127\.0\.0\.1:\d+ ended"):
            async for _ in watch:
                pass


async def test_a_watch_without_its_heartbeats_breaks(server: Server) -> None:
    async with connected(HttpsTransport(server.address, tls=trusting(), heartbeat_s=0)) as transport:
        watch = Client(transport, user_agent="test").watch(SECRETS, resource_version="1")
        assert len(await anext(watch)) == 1
        with pytest.raises(Unreachable, match=r"https://127\.0\.0\.1:\d+ did not answer in time"):
            await anext(watch)
    assert server.heard.headers[HEARTBEAT] == "0"


async def _failure(transport: HttpsTransport, target: str = "/x") -> str:
    async with connected(transport):
        with pytest.raises(Unreachable) as caught:
            await transport.request("POST", target, headers={})
    return str(caught.value)


async def test_every_failure_is_one_sentence_that_names_the_server(server: Server) -> None:
    address = server.address
    assert await _failure(HttpsTransport(address, tls=trusting()), "/break") == (
        f"{address} closed the connection without an answer"
    )
    stranger = tls_context(ca_pem=trustme.CA().cert_pem.bytes())
    assert (await _failure(HttpsTransport(address, tls=stranger))).startswith(
        f"the certificate of {address} is not trusted: "
    )
    other_name = HttpsTransport(address, tls=trusting(), server_name="other.example.com")
    assert "is not trusted: Hostname mismatch" in await _failure(other_name)


def _no_such_name(*_: object, **__: object) -> list[object]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_no_server_no_name_no_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"https://127.0.0.1:{unused.getsockname()[1]}"
        assert await _failure(HttpsTransport(address)) == (f"connection refused by {address}")
    # A name server may be far away, or none.
    monkeypatch.setattr(socket, "getaddrinfo", _no_such_name)
    assert await _failure(HttpsTransport("https://no-such-host.invalid")) == (
        "the name of https://no-such-host.invalid cannot be resolved: Name or service not known"
    )


@pytest.mark.parametrize("token", ["a\nb", "\u20ac"])
async def test_a_token_that_no_header_can_contain_is_not_sent(token: str) -> None:
    transport = HttpsTransport("https://127.0.0.1:1", login=FixedLogin(Credential(token)))
    with pytest.raises(NoCredentials, match="the token contains a line break, or a character that no"):
        await transport.request("GET", "/", headers={})
    await transport.close()


async def test_a_plain_http_server_is_no_tls_server() -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        assert await _failure(HttpsTransport(address)) == f"what answered at {address} does not speak TLS"


async def test_the_name_in_the_certificate_may_be_another_than_in_the_address(server: Server) -> None:
    transport = HttpsTransport(server.address, tls=trusting(), server_name="api.example.com")
    async with connected(transport):
        assert (await transport.request("GET", "/x", headers={})).status == 200


async def test_without_verification_any_certificate_will_do(server: Server) -> None:
    async with connected(HttpsTransport(server.address, tls=tls_context(insecure=True))) as transport:
        assert (await transport.request("GET", "/x", headers={})).status == 200


async def test_a_closed_transport_and_an_unreadable_token_are_no_answer(server: Server) -> None:
    login = FileLogin(LoginFiles(token=Path("/no/such/token")), Credential())
    transport = HttpsTransport(server.address, tls=trusting(), login=login)
    assert "cannot be read: /no/such/token: No such file or directory" in await _failure(transport)
    assert "has been closed" in await _failure(transport)


def test_credentials_that_cannot_be_read_are_refused_without_showing_the_key() -> None:
    with pytest.raises(BadCredentials, match="the CA certificate cannot be read"):
        tls_context(ca_pem=b"rubbish")
    with pytest.raises(BadCredentials) as caught:
        tls_context(client_cert_pem=CLIENT.cert_chain_pems[0].bytes(), client_key_pem=b"s3cret")
    assert "s3cret" not in str(caught.value)


def test_an_encrypted_key_is_refused_before_its_iterations_are_computed() -> None:
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    # Sixteen times as many iterations.
    bomb = key.replace(b"\x02\x02\x08\x00", b"\x02\x02\x7f\xff")
    body = base64.encodebytes(bomb)
    pem = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n" + body + b"-----END ENCRYPTED PRIVATE KEY-----\n"
    with pytest.raises(BadCredentials, match="the key is encrypted"):
        tls_context(client_cert_pem=CLIENT.cert_chain_pems[0].bytes(), client_key_pem=pem)


def test_a_proxy_is_taken_from_the_environment_but_never_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "internal.example.com")
    assert HttpsTransport("https://api.example.com:6443")._proxy == "http://proxy:3128"
    assert HttpsTransport("https://internal.example.com:6443")._proxy == ""
    assert HttpsTransport("https://127.0.0.1:6443")._proxy == ""
    assert HttpsTransport("https://localhost:6443")._proxy == ""


async def test_a_dead_machine_is_noticed_while_nothing_is_sent() -> None:
    from certwright.kube.client.dial import keepalive_socket

    with keepalive_socket(socket.AF_INET) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_a_write_that_waits_for_a_connection_is_not_sent_once_the_lease_is_lost(server: Server) -> None:
    holds_lease = True
    transport = HttpsTransport(server.address, tls=trusting(), connections=1)
    fenced = FencedTransport(transport, lambda: holds_lease)
    watch = await transport.request("GET", "/x?watch=true", headers={})
    waiting = [asyncio.create_task(fenced.request("PATCH", f"/x/{n}", headers={})) for n in range(20)]
    reading = asyncio.create_task(fenced.request("GET", "/read", headers={}))
    await asyncio.sleep(0)
    holds_lease = False
    assert watch.stream is not None
    await close_stream(watch.stream)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(result) for result in results} == {
        "another replica may have taken over: nothing is changed from here"
    }
    assert (await reading).status == 200
    assert server.heard.path == "/read"
    holds_lease = True
    assert (await fenced.request("PATCH", "/x/again", headers={})).status == 200
    await transport.close()
