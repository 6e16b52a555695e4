"""The stream of a watch on an HTTP/2 connection of its own, against etcd and against peers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from certwright.kube.store.contract import Key
from certwright.kube.store.etcd import http2_frames
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.http2_frames import Headers, Peer, StreamBroken
from certwright.kube.store.etcd.http2_stream import Call, responses
from certwright.kube.store.etcd.messages import (
    TXN,
    WATCH,
    TxnRequest,
    WatchCreateRequest,
    WatchRequest,
    put_op,
)
from conformance.store_words import BUCKET, holding
from kube.store.opening import opened
from kube.store.test_etcd import at
from support.etcd import Etcd

CREATE = WatchRequest(create_request=WatchCreateRequest(key=b"/stream")).SerializeToString()


def watching(etcd: Etcd) -> Call:
    return Call(Peer.of(etcd.member, None), WATCH.path, (("hasleader", "true"),), CREATE)


async def test_a_watch_of_large_and_many_values_arrives_whole(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2_frames, "_WINDOW", 1 << 20)
    client = EtcdClient(at(etcd.member))
    values = [b"%d" % number * (1 << 18) for number in range(8)] + [b"%d" % number for number in range(500)]
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
    await client.close()


async def test_the_store_follows_etcd_without_grpc(etcd: Etcd) -> None:
    async with opened(at(etcd.member), prefix="/stream/store") as store:
        await store.put(Key(BUCKET, "", "a"), holding(b"x"))
        assert store._client._streams
        assert not store._client._channels


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


def frame(kind: int, flags: int, payload: bytes) -> bytes:
    return http2_frames.frame(kind, flags, 1, payload)


async def test_a_server_that_stands_still_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_frames, "_PING_EVERY_S", 0.02)
    monkeypatch.setattr(http2_frames, "_ANSWER_S", 0.01)
    async with peer() as call, responses(call) as stream:
        with pytest.raises(StreamBroken, match="no response to a ping"):
            await anext(stream)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (frame(0, 8, b"\x01xx"), "padded data"),
        (frame(0, 0, b"\x01\0\0\0\x01x"), "a compressed message"),
        (frame(7, 0, bytes(8)), "the server closes the connection"),
    ],
    ids=["padding", "compression", "goaway"],
)
async def test_a_peer_that_violates_the_protocol_ends_the_stream(answer: bytes, message: str) -> None:
    async with peer(answer) as call, responses(call) as stream:
        with pytest.raises(StreamBroken, match=message):
            await anext(stream)


async def test_messages_that_were_cut_anywhere_are_put_together() -> None:
    data = (
        frame(0, 0, b"\0\0\0\0\x05hel") + frame(4, 0, b"") + frame(0, 0, b"lo\0\0\0\0\x00") + frame(1, 5, b"")
    )
    parts = [data[n : n + 1] for n in range(len(data))]
    async with peer(*parts, headers=(("token", "t" * 300),)) as call, responses(call) as stream:
        assert [message async for messages in stream for message in messages] == [b"hello", b""]


async def test_what_arrives_while_the_caller_is_busy_stays_in_the_system_and_comes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http2_frames, "_PING_EVERY_S", 0.02)
    monkeypatch.setattr(http2_frames, "_ANSWER_S", 0.01)
    sent = 20_000
    message = b"\0\0\0\x04\0" + bytes(1_024)
    async with peer(*[frame(0, 0, message)] * sent, frame(1, 5, b"")) as call, responses(call) as stream:
        count = len(await anext(stream))
        # Longer than a peer may take for the response to a ping, which is not read either.
        await asyncio.sleep(0.1)
        together = len(await anext(stream))
        assert 1 < together < sent // 2
        assert count + together + sum([len(messages) async for messages in stream]) == sent


async def test_where_only_grpc_reaches_etcd_watches_use_it(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2_frames, "_PREFACE", b"GET / HTTP/1.1\r\n\r\n")
    client = EtcdClient(Access((etcd.member,)))
    async with aclosing(client.watch(WatchCreateRequest(key=b"/stream"))) as answers:
        assert (await anext(answers))[0].created
    assert not client._streams
    await client.close()
