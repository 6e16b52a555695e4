"""HTTP/1.1 as it comes over a connection: what is one request and what is none, and how answers follow each
other (RFC 9112). Where two programs could read the same bytes as different requests, nobody is served."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from certwright.kube.apiserver.http import protocol, response_writer
from certwright.kube.apiserver.http.protocol import HttpProtocol, Traffic
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Request, Response
from support.waiting import turns, until

FOR_EVER = 60.0
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@dataclass(slots=True)
class Line:
    """A connection to a server that answers with what it was sent, and all that it was asked. It answers
    when it may `go` on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: list[Request]
    traffic: Traffic
    begun: asyncio.Event
    go: asyncio.Event

    async def tell(self, sent: bytes) -> bytes:
        """All that is answered to that until the server hangs up, as it does after a last request."""
        self.writer.write(sent)
        async with asyncio.timeout(FOR_EVER):
            return await self.reader.read(-1)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    asked: list[Request] = []
    begun, go = asyncio.Event(), asyncio.Event()
    go.set()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async def answer(request: Request) -> Response:
        asked.append(request)
        begun.set()
        await go.wait()
        if request.target == "/stream":
            return Response(200, stream=chunks())
        if request.target == "/endless":
            return Response(200, stream=endless())
        if request.target == "/broken":
            raise RuntimeError("broken")
        return Response(200, {"x-at": request.target}, request.body)

    traffic = Traffic(answer, TestClock(NOON), is_fair=False)
    server = await asyncio.get_running_loop().create_server(lambda: HttpProtocol(traffic), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield Line(reader, writer, asked, traffic, begun, go)
    go.set()
    writer.close()
    server.close()
    async with asyncio.timeout(FOR_EVER):
        await traffic.wait_ended()
        with suppress(OSError):  # how it has ended is the test's
            await writer.wait_closed()


LAST = b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nhost: x\r\n"


def statuses(answers: bytes) -> list[int]:
    """Of answers whose bodies do not look like heads."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", id="two lengths"),
        pytest.param(POST + b"content-length: 3, 3\r\n\r\nabc", id="a list of lengths"),
        pytest.param(POST + b"content-length: +3\r\n\r\nabc", id="a length with a sign"),
        pytest.param(
            POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", id="length and chunks"
        ),
        pytest.param(POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n", id="chunks not last"),
        pytest.param(POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", id="an unknown coding"),
        pytest.param(POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n", id="a space before the colon"),
        pytest.param(POST + b"transfer-encoding: chunked\r\n\r\nxyz\r\n\r\n", id="a size that is none"),
        pytest.param(POST + b"transfer-encoding: chunked\r\n\r\n-1\r\n\r\n", id="a size below zero"),
        pytest.param(POST + b"transfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", id="a chunk too long"),
        pytest.param(POST + b"transfer-encoding: chunked\r\n\r\n1\na\n0\n\n", id="chunks with bare LF"),
        pytest.param(b"GET /a HTTP/1.1\nhost: x\n\n", id="bare LF"),
        pytest.param(b"GET /a HTTP/1.1\r\nhost: x\r\nx: a\rb\r\n\r\n", id="bare CR"),
        pytest.param(b"GET /a HTTP/1.1\r\nhost: x\r\nx: a\x00b\r\n\r\n", id="NUL"),
        pytest.param(b"GET /a HTTP/1.1\r\nhost: x\r\nx: a\r\n  folded\r\n\r\n", id="a folded line"),
        pytest.param(b"GET /a HTTP/1.1\r\n host: x\r\n\r\n", id="a space before the first field"),
        pytest.param(b"GET /a HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /a HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", id="two hosts"),
        pytest.param(b"GET a HTTP/1.1\r\nhost: x\r\n\r\n", id="a target without a slash"),
        pytest.param(b"GET /a HTTP/3.7\r\nhost: x\r\n\r\n", id="an unknown version"),
        pytest.param(b"GET /\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n", id="a target that is not ASCII"),
    ],
)
async def test_what_can_be_misread_is_refused_and_ends_the_connection(line: Line, request_: bytes) -> None:
    answer = await line.tell(request_ + LAST)
    assert statuses(answer) == [400]
    assert b"connection: close" in answer
    assert "/last" not in [request.target for request in line.asked]


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity, chunked", "chunked, chunked"])
async def test_a_transfer_coding_that_is_not_implemented_is_refused(line: Line, coding: str) -> None:
    answer = await line.tell(POST + f"transfer-encoding: {coding}\r\n\r\n0\r\n\r\n".encode() + LAST)
    assert statuses(answer) in ([501], [400])
    assert statuses(answer) == [501] or coding == "chunked, chunked"
    assert b"connection: close" in answer
    assert line.asked == []


async def test_chunks_become_one_body_and_their_extensions_and_trailers_go(line: Line) -> None:
    chunks = b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nauthorization: Bearer x\r\n\r\n"
    answer = await line.tell(POST + b"transfer-encoding: chunked\r\n\r\n" + chunks + LAST)
    assert statuses(answer) == [200, 200]
    assert line.asked[0].body == b"abcde"
    assert "authorization" not in line.asked[0].headers


async def test_requests_in_one_packet_are_answered_one_after_the_other(line: Line) -> None:
    line.go.clear()
    many = [b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(20)]
    telling = asyncio.create_task(line.tell(b"".join(many) + LAST))
    await asyncio.wait_for(line.begun.wait(), FOR_EVER)
    await turns()
    assert len(line.asked) == 1
    line.go.set()
    targets = [part.split(b"\r\n")[0].decode() for part in (await telling).split(b"x-at: ")[1:]]
    assert targets == [*(f"/{number}" for number in range(20)), "/last"]


async def test_a_request_may_come_byte_by_byte(line: Line) -> None:
    for byte in POST + b"content-length: 5\r\n\r\nabcde":
        line.writer.write(bytes([byte]))
        await line.writer.drain()
        await asyncio.sleep(0)
    assert statuses(await line.tell(LAST)) == [200, 200]
    assert [request.body for request in line.asked] == [b"abcde", b""]


async def test_the_answer_to_head_has_a_length_and_no_body(line: Line) -> None:
    sent = b"HEAD /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
    head = (await line.tell(sent + LAST)).partition(b"\r\n\r\n")
    assert b"content-length: 3" in head[0]
    assert head[2].startswith(b"HTTP/1.1 200 ")


async def test_a_stream_is_sent_in_chunks_and_the_connection_goes_on(line: Line) -> None:
    answer = await line.tell(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n" + LAST)
    assert b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200 " in answer
    answer_to_head = b"HEAD /stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert b"one" not in await line.tell(answer_to_head)


async def test_a_stream_that_is_not_read_can_be_ended(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    line.writer.write(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.wait_for(line.begun.wait(), FOR_EVER)
    (connection,) = line.traffic.connections
    assert isinstance(connection, HttpProtocol)
    await until(lambda: connection.transport.get_write_buffer_size() > 0)
    await turns()
    connection.end()
    assert (await line.tell(b"")).endswith(b"\r\n0\r\n\r\n")
    assert not caplog.records


async def test_a_client_of_http_1_0_gets_one_answer(line: Line) -> None:
    answer = await line.tell(b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n" + LAST)
    assert statuses(answer) == [200]
    assert b"connection: close" in answer


async def test_who_waits_to_be_asked_for_its_body_is_asked(line: Line) -> None:
    line.writer.write(POST + b"content-length: 3\r\nexpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(FOR_EVER):
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert not line.asked
    assert statuses(await line.tell(b"abc" + LAST)) == [200, 200]
    assert line.asked[0].body == b"abc"


async def test_who_is_refused_is_not_asked_for_its_body(line: Line) -> None:
    answer = await line.tell(POST + b"content-length: 9999999\r\nexpect: 100-continue\r\n\r\n")
    assert statuses(answer) == [413]
    assert not line.asked


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (POST + b"content-length: 9999999\r\n\r\n", 413),
        (POST + b"x: " + b"x" * protocol.MAX_HEADERS + b"\r\ny: ", 400),
        (POST + b"x: " + b"x" * 600_000, 400),
        (POST + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"x" * 2_000_000, 400),
    ],
    ids=["body", "header", "endless header", "endless trailer"],
)
async def test_who_is_refused_may_send_on_and_then_reads_why(
    line: Line, monkeypatch: pytest.MonkeyPatch, begin: bytes, status: int
) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", FOR_EVER)
    monkeypatch.setattr(protocol, "_MOST_RAW_BODY", 1_000_000)
    loop, client = asyncio.get_running_loop(), socket.socket()
    client.setblocking(False)
    with client:
        await loop.sock_connect(client, line.writer.get_extra_info("peername"))
        await loop.sock_sendall(client, begin)
        ready = asyncio.Event()
        loop.add_reader(client, ready.set)  # answered, and not read yet
        await asyncio.wait_for(ready.wait(), FOR_EVER)
        loop.remove_reader(client)
        await turns()
        await asyncio.wait_for(loop.sock_sendall(client, b"x" * 8_000_000), FOR_EVER)
        assert statuses(await loop.sock_recv(client, 65536)) == [status]
    await until(lambda: len(line.traffic.connections) == 1)


async def test_who_is_refused_and_sends_on_is_not_listened_to_for_ever(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", 0.0)
    assert statuses(await line.tell(POST + b"content-length: 9999999\r\n\r\nabc")) == [413]


@pytest.mark.parametrize("begin", [b"GET /a", b"CONNECT /a"], ids=["upgrade", "connect"])
async def test_nothing_else_is_spoken_on_the_connection(line: Line, begin: bytes) -> None:
    """An offer of another protocol is passed over (RFC 9110 §7.8); what follows is not taken for requests."""
    sent = begin + b" HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    answer = await line.tell(sent + LAST)
    assert len(statuses(answer)) == 1
    assert "/last" not in [request.target for request in line.asked]


async def test_fields_that_come_twice_are_a_list(line: Line) -> None:
    fields = b"X: a\r\nx: b\r\nimpersonate-group: a,b\r\nimpersonate-group: c\r\n"
    await line.tell(b"GET /a HTTP/1.1\r\nhost: x\r\n" + fields + b"connection: close\r\n\r\n")
    headers = line.asked[0].headers
    assert (headers["x"], headers["impersonate-group"]) == ("a, b", "a,b\nc")


@pytest.mark.parametrize(
    ("sent", "target"),
    [("/a?b=%20&c", "/a?b=%20&c"), ("/a?", "/a"), ("http://h/a?b#c", "/a?b"), ("/a//b/../c", "/a//b/../c")],
)
async def test_the_target_is_handed_over_as_it_was_sent(line: Line, sent: str, target: str) -> None:
    await line.tell(f"GET {sent} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    assert line.asked[0].target == target


async def test_a_handler_that_fails_is_told_of_as_500(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    assert statuses(await line.tell(b"GET /broken HTTP/1.1\r\nhost: x\r\n\r\n")) == [500]
    assert "could not be answered" in caplog.text


@pytest.mark.parametrize("sent", [LAST, b"nonsense\r\n\r\n"], ids=["an answer", "a refusal"])
async def test_every_answer_says_when_it_was_made(line: Line, sent: bytes) -> None:
    assert b"\r\ndate: Sun, 01 Nov 2026 12:00:00 GMT\r\n" in await line.tell(sent)


def test_an_answer_cannot_be_split_by_a_value() -> None:
    with pytest.raises(ValueError, match="control characters"):
        response_writer.head(Response(200, {"x": "a\r\nset-cookie: b"}))
