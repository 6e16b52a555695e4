"""TLS-ALPN-01: the listener, what it passes on, the check, and the first message of TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import AsyncIterator

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from certwright.acme.protocol.challenges import ALPN_PROTOCOL
from certwright.acme.solvers.checks import TlsCheck
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.tlsalpn01 import ClientHello, ClientHelloReader, Listener, NotTls

TASK = Task(type="tls-alpn-01", identifier="127.0.0.1", token="t", key="t.print", uid="u")
NAMED = Task(type="tls-alpn-01", identifier="localhost", token="t", key="t.print", uid="u")


@pytest.fixture
async def listener() -> AsyncIterator[tuple[Listener, int]]:
    made = Listener()
    yield made, await made.listen("127.0.0.1", 0)
    await made.close()


def first_message(name: str | None, *protocols: str) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


async def test_the_listener_is_a_solver(listener: tuple[Listener, int]) -> None:
    solver, port = listener

    async def see(task: Task) -> set[str]:
        return {task.key} if await TlsCheck(port=port).check(task) == Ready() else set()

    for task in (TASK, NAMED):
        await solver.present(task)
        assert await see(task) == {task.key}
        await solver.clean_up(task)
        assert await see(task) == set()
    # Two proofs for one name cannot be shown in one certificate: the first counts.
    await solver.present(TASK)
    await solver.clean_up(TASK)
    await solver.clean_up(TASK)


async def test_a_check_leaves_no_connection_open(listener: tuple[Listener, int]) -> None:
    solver, port = listener
    await solver.present(NAMED)
    assert await TlsCheck(port=port).check(NAMED) == Ready()
    # The listener takes no part in the closing of TLS, for which a client waits 30 s.
    async with asyncio.timeout(10):
        while solver._listener._open:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)


async def test_the_certificate_is_as_rfc_8737_wants_it(listener: tuple[Listener, int]) -> None:
    solver, port = listener
    await solver.present(NAMED)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN_PROTOCOL])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    session = writer.get_extra_info("ssl_object")
    assert session.selected_alpn_protocol() == ALPN_PROTOCOL
    certificate = x509.load_der_x509_certificate(session.getpeercert(binary_form=True))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    proof = certificate.extensions.get_extension_for_oid(x509.ObjectIdentifier("1.3.6.1.5.5.7.1.31"))
    assert proof.critical
    assert isinstance(proof.value, x509.UnrecognizedExtension)
    assert proof.value.value[:2] == b"\x04\x20"
    assert len(proof.value.value) == 34
    writer.transport.abort()  # the listener does not take part in the closing of TLS


async def test_other_connections_reach_the_backend_unread() -> None:
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65536))
        writer.write(b"hello back")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as backend:
        solver = Listener(backend=("127.0.0.1", backend.sockets[0].getsockname()[1]))
        port = await solver.listen("127.0.0.1", 0)
        await solver.present(NAMED)
        for hello in (first_message("localhost", "h2"), first_message("other", ALPN_PROTOCOL)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello)
            assert await reader.read() == b"hello back"
            writer.close()
            await writer.wait_closed()
            assert heard.pop() == hello
        assert await TlsCheck(port=port).check(NAMED) == Ready()
        await solver.close()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"", b"\x16\x03\x01\x00\x02\x02\x00"]
)
async def test_whoever_speaks_no_tls_is_let_go(listener: tuple[Listener, int], said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener[1])
    writer.write(said)
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_what_is_wrong_is_told(listener: tuple[Listener, int]) -> None:
    solver, port = listener
    for task, where, words in ((TASK, 1, "no TLS connection"), (TASK, port, "no TLS connection")):
        verdict = await TlsCheck(port=where).check(task)
        assert isinstance(verdict, NotYet)
        assert words in verdict.reason
    await solver.present(TASK)
    other = Task(type="tls-alpn-01", identifier="127.0.0.1", token="t", key="other", uid="x")
    verdict = await TlsCheck(port=port).check(other)
    assert isinstance(verdict, NotYet)
    assert "another certificate" in verdict.reason


@pytest.mark.parametrize(
    ("name", "protocols"),
    [("a.example.org", ()), ("a.example.org", ("h2", "http/1.1")), (None, (ALPN_PROTOCOL,)), (None, ())],
)
def test_the_first_message_is_read(name: str | None, protocols: tuple[str, ...]) -> None:
    data = first_message(name, *protocols)
    assert ClientHelloReader().feed(data) == ClientHello(name or "", protocols)
    for cut in range(len(data)):
        assert ClientHelloReader().feed(data[:cut]) is None


def test_a_message_in_many_records_is_read() -> None:
    body = first_message("b.example.org", "h2")[5:]
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    data = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    assert ClientHelloReader().feed(data) == ClientHello("b.example.org", ("h2",))


@given(st.binary(max_size=300), st.integers(0, 250), st.binary(min_size=1, max_size=8))
def test_nonsense_is_told_apart_and_never_breaks_anything(noise: bytes, at: int, change: bytes) -> None:
    data = first_message("c.example.org", "h2")
    for broken in (noise, data[:at] + change + data[at + len(change) :]):
        with contextlib.suppress(NotTls):
            client_hello = ClientHelloReader().feed(broken)
            assert client_hello is None or isinstance(client_hello, ClientHello)


def record(fragment: bytes, kind: int = 22) -> bytes:
    return bytes((kind, 3, 1)) + len(fragment).to_bytes(2) + fragment


@pytest.mark.parametrize(
    ("stream", "accepted"),
    [
        pytest.param(record(b""), 5, id="records of length 0"),
        pytest.param(record(b"\1") + record(b""), 20, id="a record of length 0 after another one"),
        pytest.param(record(b"\1"), 70_000, id="records of one byte"),
        pytest.param(record(b"\1\xff\xff\xff") + record(b"x" * 16_000), 70_000, id="a message of 16 MB"),
        pytest.param(b"\x16\x03\x01\xff\xff" + b"\1" * 1000, 6, id="a record of 64 KiB"),
        pytest.param(record(b"\1\0\0") + record(b"", kind=20), 20, id="another type of record"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 7, 65_536])
def test_an_endless_first_message_is_refused_after_a_number_of_bytes(
    stream: bytes, accepted: int, chunk: int
) -> None:
    reader, endless = ClientHelloReader(), stream * (200_000 // len(stream))
    pieces = (endless[at : at + chunk] for at in range(0, len(endless), chunk))
    with pytest.raises(NotTls):
        assert not any(map(reader.feed, pieces))
    assert len(reader.begun) <= accepted + chunk


def test_the_first_message_is_read_in_steps_of_a_number_that_its_length_limits() -> None:
    body = first_message("b.example.org", "h2")[5:]
    data = b"".join(record(bytes((octet,))) for octet in body)
    reader, calls = ClientHelloReader(), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    hellos = [reader.feed(data[at : at + 1]) for at in range(len(data))]
    sys.setprofile(None)
    assert hellos[-1] == ClientHello("b.example.org", ("h2",))
    assert calls < 4 * len(data)


async def test_a_visitor_of_the_backend_does_not_wait_for_a_client_that_sends_empty_records() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"hello back")
        writer.close()

    backend = await asyncio.start_server(serve, "127.0.0.1", 0)
    listener = Listener(backend=("127.0.0.1", backend.sockets[0].getsockname()[1]))
    port = await listener.listen("127.0.0.1", 0)
    hostile_reader, hostile = await asyncio.open_connection("127.0.0.1", port)
    hostile.write(record(b"") * 2000)
    with contextlib.suppress(ConnectionResetError):
        assert await hostile_reader.read() == b""
    visitor_reader, visitor = await asyncio.open_connection("127.0.0.1", port)
    visitor.write(first_message("localhost", "h2"))
    assert await visitor_reader.read() == b"hello back"
    for writer in (hostile, visitor):
        writer.close()
    await listener.close()
    backend.close()
