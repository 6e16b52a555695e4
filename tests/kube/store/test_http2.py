"""Calls of etcd on an HTTP/2 connection that they share, against etcd and against peers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import hpack
import pytest

from certwright.kube.store.contract import TooLarge, Unavailable
from certwright.kube.store.etcd import http2
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.http2 import (
    Call,
    CallFailed,
    Headers,
    Peer,
    Status,
    StreamBroken,
    UnaryConnection,
    frame,
    responses,
)
from certwright.kube.store.etcd.messages import (
    RANGE,
    TXN,
    WATCH,
    RangeRequest,
    TxnRequest,
    WatchCreateRequest,
    WatchRequest,
    put_op,
)
from kube.store.opening import asking
from kube.store.test_etcd import at
from support.etcd import Etcd

PATIENCE_S = 60.0
DATA, HEADERS, RST, SETTINGS, WINDOW = 0, 1, 3, 4, 8
END = 0x5
PREFACE_BYTES = len(http2._PREFACE)
Frame = tuple[int, int, int, bytes]


async def put(client: EtcdClient, key: bytes, value: bytes) -> None:
    await client.call(TXN, TxnRequest(success=[put_op(key, value)]))


async def value_of(client: EtcdClient, key: bytes) -> bytes:
    return bytes((await client.call(RANGE, RangeRequest(key=key))).kvs[0].value)


async def test_many_calls_share_a_connection_and_each_gets_its_own_response(etcd: Etcd) -> None:
    async with asking(at(etcd.member)) as client:
        values = {b"/unary/%d" % number: b"%d" % number * (number * 40) for number in range(300)}
        await asyncio.gather(*(put(client, key, value) for key, value in values.items()))
        read = await asyncio.gather(*(value_of(client, key) for key in values))
        assert read == list(values.values())
        assert len(client._unary._connections) == 1


async def test_long_requests_and_responses_wait_for_the_windows_of_their_streams(etcd: Etcd) -> None:
    async with asking(at(etcd.member)) as client:
        values = {b"/unary/long/%d" % number: b"%d" % number * (2 << 20) for number in range(5)}
        await asyncio.gather(
            *(put(client, key, value) for key, value in values.items()), value_of_nothing(client)
        )
        assert [await value_of(client, key) for key in values] == list(values.values())


async def test_the_reason_of_an_error_is_known(etcd: Etcd) -> None:
    async with asking(at(etcd.member)) as client:
        await value_of_nothing(client)
        with pytest.raises(TooLarge, match="max-request-bytes"):
            await put(client, b"/unary/huge", b"x" * (9 << 20))
        operations = [put_op(b"/unary/%d" % number, b"") for number in range(129)]
        with pytest.raises(Unavailable, match="too many operations"):
            await client.call(TXN, TxnRequest(success=operations))


async def value_of_nothing(client: EtcdClient) -> None:
    assert not (await client.call(RANGE, RangeRequest(key=b"/unary/nothing"))).kvs


class ScriptedPeer:
    """A peer that reads frames, and passes each to `respond` with a function that writes frames."""

    def __init__(self, respond: Callable[[Frame, Callable[[bytes], None]], None]) -> None:
        self._respond = respond
        self.frames: list[Frame] = []
        self.changed = asyncio.Event()
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readexactly(PREFACE_BYTES)
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3]))
                received = head[3], head[4], int.from_bytes(head[5:9]), payload
                self.frames.append(received)
                self._respond(received, writer.write)
                self.changed.set()
        writer.close()
        self.closed.set()

    async def wait_for(self, kind: int, count: int) -> None:
        """Return when so many frames of a kind were read."""
        async with asyncio.timeout(PATIENCE_S):
            while sum(item[0] == kind for item in self.frames) < count:
                self.changed.clear()
                await self.changed.wait()

    def streams(self, kind: int) -> list[int]:
        """The streams of the frames of a kind, in order."""
        return [stream for frame_kind, _, stream, _ in self.frames if frame_kind == kind and stream]


@asynccontextmanager
async def _connected(peer: Peer) -> AsyncIterator[UnaryConnection]:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: UnaryConnection(peer), peer.host, peer.port)
    try:
        yield connection
    finally:
        connection.close()


@asynccontextmanager
async def _scripted(
    respond: Callable[[Frame, Callable[[bytes], None]], None],
) -> AsyncIterator[tuple[ScriptedPeer, UnaryConnection]]:
    peer = ScriptedPeer(respond)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    async with server:
        async with _connected(Peer("127.0.0.1", server.sockets[0].getsockname()[1])) as connection:
            yield peer, connection
        await peer.closed.wait()


def trailers(status: int = 0, message: str = "") -> bytes:
    """The encoded headers that end a call, compressed as Go's servers compress them."""
    fields = [("grpc-status", str(status)), ("grpc-message", quote(message))]
    return bytes(hpack.Encoder().encode(fields, huffman=True))


def silence(_: Frame, __: Callable[[bytes], None]) -> None:
    """Respond to nothing."""


def ok(stream: int, message: bytes) -> bytes:
    data = b"\0" + len(message).to_bytes(4) + message
    return frame(HEADERS, 4, stream, b"") + frame(DATA, 0, stream, data) + frame(HEADERS, END, stream, b"")


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server() -> None:
    async with _scripted(silence) as (peer, connection):
        call = asyncio.create_task(connection.call("/x", (), b"", PATIENCE_S))
        await peer.wait_for(DATA, 1)
        call.cancel()
        await peer.wait_for(RST, 1)
        assert peer.streams(RST) == [1]


async def test_a_call_without_a_response_ends_at_its_deadline_and_others_continue() -> None:
    def respond(received: Frame, write: Callable[[bytes], None]) -> None:
        if received[0] == DATA and received[2] == 3:
            write(ok(3, b"three"))

    async with _scripted(respond) as (peer, connection):
        late = asyncio.create_task(connection.call("/x", (), b"", 0.0))
        await peer.wait_for(HEADERS, 1)
        assert await connection.call("/x", (), b"", PATIENCE_S) == b"three"
        with pytest.raises(TimeoutError):
            await late


@pytest.mark.parametrize(
    "answer",
    [
        frame(HEADERS, END, 1, b""),
        frame(HEADERS, 4, 1, b"") + frame(DATA, 1, 1, b"\0html"),
        frame(DATA, 0, 1, b"\0\0\0\0\x05hel") + frame(HEADERS, END, 1, b""),
        frame(RST, 0, 1, bytes(4)),
        frame(DATA, 0, 1, b"\0\0\0\0\x01a") + frame(RST, 0, 1, bytes(4)),
    ],
    ids=["error", "no gRPC", "cut", "reset", "reset after the message"],
)
async def test_a_stream_that_ends_without_a_whole_message_is_no_response(answer: bytes) -> None:
    def respond(received: Frame, write: Callable[[bytes], None]) -> None:
        if received[0] == DATA:
            write(answer)

    async with _scripted(respond) as (_, connection):
        with pytest.raises(CallFailed):
            await connection.call("/x", (), b"", PATIENCE_S)


async def test_an_error_has_the_status_and_the_words_of_the_server() -> None:
    def respond(received: Frame, write: Callable[[bytes], None]) -> None:
        if received[0] == DATA:
            write(frame(HEADERS, END, received[2], trailers(11, "zu alt: ü %")))

    async with _scripted(respond) as (_, connection):
        with pytest.raises(CallFailed, match="zu alt: ü %") as caught:
            await connection.call("/x", (), b"", PATIENCE_S)
    assert caught.value.status is Status.OUT_OF_RANGE


async def test_a_long_request_waits_for_its_stream_and_keeps_no_short_one_waiting() -> None:
    async with _scripted(silence) as (peer, connection):
        connection.data_received(frame(WINDOW, 0, 0, (1 << 20).to_bytes(4)))
        request = bytes(100_000)
        calls = [asyncio.create_task(connection.call("/x", (), body, PATIENCE_S)) for body in (request, b"")]
        await peer.wait_for(DATA, 5)  # what the stream takes at first, and the short request
        assert [len(data) for kind, _, stream, data in peer.frames if (kind, stream) == (DATA, 1)] == [
            *[16_384] * 3,
            16_383,
        ]
        connection.data_received(frame(WINDOW, 0, 1, (100_000).to_bytes(4)))
        await peer.wait_for(DATA, 8)
        sent = [(flags, data) for kind, flags, stream, data in peer.frames if (kind, stream) == (DATA, 1)]
        assert b"".join(data for _, data in sent) == b"\0" + len(request).to_bytes(4) + request
        assert [flags for flags, _ in sent] == [0] * 6 + [1]
        for call in calls:
            call.cancel()


async def test_a_long_request_begins_where_a_part_of_the_window_is_used() -> None:
    async with _scripted(silence) as (peer, connection):
        bodies = bytes(10_000), bytes(100_000)
        calls = [asyncio.create_task(connection.call("/x", (), body, PATIENCE_S)) for body in bodies]
        await peer.wait_for(DATA, 5)
        assert peer.streams(HEADERS) == [1, 3]
        for call in calls:
            call.cancel()


async def test_a_message_that_is_not_grpcs_breaks_the_connection() -> None:
    def respond(received: Frame, write: Callable[[bytes], None]) -> None:
        if received[0] == DATA:
            write(frame(DATA, 1, received[2], b"<html></html>"))

    async with _scripted(respond) as (_, connection):
        with pytest.raises(StreamBroken, match="a compressed message"):
            await connection.call("/x", (), b"", PATIENCE_S)


async def test_calls_wait_for_the_window_of_the_connection() -> None:
    async with _scripted(silence) as (peer, connection):
        request = bytes(30_000)
        calls = [asyncio.create_task(connection.call("/x", (), request, PATIENCE_S)) for _ in range(3)]
        await peer.wait_for(DATA, 4)  # two requests of two frames: a third exceeds 65,535 bytes
        assert peer.streams(HEADERS) == [1, 3]
        connection.data_received(frame(WINDOW, 0, 0, (30_000).to_bytes(4)))
        await peer.wait_for(DATA, 6)
        assert peer.streams(HEADERS) == [1, 3, 5]
        for call in calls:
            call.cancel()


async def test_calls_wait_while_the_peer_serves_as_many_as_it_allows() -> None:
    async with _scripted(silence) as (peer, connection):
        connection.data_received(frame(SETTINGS, 0, 0, (3).to_bytes(2) + (1).to_bytes(4)))
        calls = [asyncio.create_task(connection.call("/x", (), b"", PATIENCE_S)) for _ in range(2)]
        await peer.wait_for(DATA, 1)
        assert peer.streams(HEADERS) == [1]
        connection.data_received(ok(1, b"one"))
        assert await calls[0] == b"one"
        await peer.wait_for(DATA, 2)
        assert peer.streams(HEADERS) == [1, 3]
        calls[1].cancel()


async def test_when_the_connection_ends_all_calls_fail() -> None:
    def respond(received: Frame, write: Callable[[bytes], None]) -> None:
        if received[0] == DATA:
            write(frame(7, 0, 0, bytes(8)))

    async with _scripted(respond) as (_, connection):
        calls = [asyncio.create_task(connection.call("/x", (), b"", PATIENCE_S)) for _ in range(3)]
        for call in calls:
            with pytest.raises(StreamBroken, match="the server closes the connection"):
                await call
        assert not connection.is_usable


async def test_stream_numbers_that_are_used_up_end_the_connection_in_order() -> None:
    def respond(received: Frame, write: Callable[[bytes], None]) -> None:
        if received[0] == DATA:
            write(ok(received[2], b"last"))

    async with _scripted(respond) as (_, connection):
        connection._next_stream = http2._LAST_STREAM - 2
        assert connection.is_usable
        assert await connection.call("/x", (), b"", PATIENCE_S) == b"last"
        assert connection.ended


CREATE = WatchRequest(create_request=WatchCreateRequest(key=b"/stream")).SerializeToString()


def watching(etcd: Etcd) -> Call:
    return Call(Peer.of(etcd.member, None), WATCH.path, (("hasleader", "true"),), CREATE)


async def test_a_watch_of_large_and_many_values_arrives_whole(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "_WINDOW", 1 << 20)
    async with asking(at(etcd.member)) as client:
        values = [b"%d" % number * (1 << 18) for number in range(8)] + [
            b"%d" % number for number in range(500)
        ]
        async with responses(watching(etcd)) as stream:
            (created,) = await anext(stream)
            assert WATCH.response.FromString(created).created
            for value in values:
                await client.call(TXN, TxnRequest(success=[put_op(b"/stream", value)]))
            seen: list[bytes] = []
            while len(seen) < len(values):
                answers = map(WATCH.response.FromString, await anext(stream))
                seen += [event.kv.value for answer in answers for event in answer.events]
        assert seen == values


@asynccontextmanager
async def peer(*parts: bytes, headers: Headers = ()) -> AsyncIterator[Call]:
    """A call at a peer that writes these parts, whatever it reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        closed.set()

    closed = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Call(Peer("127.0.0.1", server.sockets[0].getsockname()[1]), "/x", headers, b"")
        await closed.wait()


async def test_a_server_that_stands_still_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "_PING_EVERY_S", 0.02)
    monkeypatch.setattr(http2, "_ANSWER_S", 0.01)
    async with peer() as call, responses(call) as stream:
        with pytest.raises(StreamBroken, match="no response to a ping"):
            await anext(stream)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (frame(0, 8, 1, b"\x01xx"), "padded data"),
        (frame(0, 0, 1, b"\x01\0\0\0\x01x"), "a compressed message"),
        (frame(7, 0, 1, bytes(8)), "the server closes the connection"),
    ],
    ids=["padding", "compression", "goaway"],
)
async def test_a_peer_that_violates_the_protocol_ends_the_stream(answer: bytes, message: str) -> None:
    async with peer(answer) as call, responses(call) as stream:
        with pytest.raises(StreamBroken, match=message):
            await anext(stream)


async def test_messages_that_were_cut_anywhere_are_put_together() -> None:
    data = (
        frame(0, 0, 1, b"\0\0\0\0\x05hel")
        + frame(4, 0, 1, b"")
        + frame(0, 0, 1, b"lo\0\0\0\0\x00")
        + frame(1, 5, 1, trailers())
    )
    parts = [data[n : n + 1] for n in range(len(data))]
    async with peer(*parts, headers=(("token", "t" * 300),)) as call, responses(call) as stream:
        assert [message async for messages in stream for message in messages] == [b"hello", b""]


async def test_what_arrives_while_the_caller_is_busy_stays_in_the_system_and_comes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http2, "_PING_EVERY_S", 0.02)
    monkeypatch.setattr(http2, "_ANSWER_S", 0.01)
    sent = 20_000
    message = b"\0\0\0\x04\0" + bytes(1_024)
    async with (
        peer(*[frame(0, 0, 1, message)] * sent, frame(1, 5, 1, trailers())) as call,
        responses(call) as stream,
    ):
        count = len(await anext(stream))
        # Longer than a peer may take for the response to a ping, which is not read either.
        await asyncio.sleep(0.1)
        together = len(await anext(stream))
        assert 1 < together < sent // 2
        assert count + together + sum([len(messages) async for messages in stream]) == sent
