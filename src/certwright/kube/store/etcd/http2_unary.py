"""gRPC calls with one request and one response, many at a time on one HTTP/2 connection.

A call costs a third of the processor time that it takes with `grpc.aio`. What is rare is left to that: long
requests, the reasons of errors, and servers that only it can reach.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from certwright.kube.store.etcd.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    FrameConnection,
    Headers,
    Peer,
    StreamBroken,
    frame,
    message_end,
    message_in,
    with_head,
)

MAX_REQUEST_BYTES = 48 << 10
"""Longer requests could have to wait for their stream's window (64 KiB), which is not implemented."""
_CONNECT_S = 2.0
_PAUSE_S = 60.0
"""How long another way is preferred that works where this one cannot connect."""
_FRAME_BYTES = 16_384
"""The longest frame that every peer accepts (RFC 9113 §4.2)."""
_CANCEL = (8).to_bytes(4)
_LAST_STREAM = 2**31 - 1


class NoResponse(Exception):
    """The call ended without a message: gRPC's way to report an error."""


class CannotConnect(Exception):
    """The server cannot be reached in this way; nothing was sent."""


@dataclass(slots=True, eq=False)
class _Exchange:
    """A call under way. `stream` 0: not sent yet."""

    block: bytes
    request: bytes
    response: asyncio.Future[bytes]
    stream: int = 0
    data: bytearray = field(default_factory=bytearray)


class UnaryConnection(FrameConnection):
    """A connection for calls, which may overlap; each may be cancelled."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer
        self._blocks: dict[str, tuple[Headers, bytes]] = {}
        self._open: dict[int, _Exchange] = {}
        self._waiting = deque[_Exchange]()
        self._next_stream = 1
        self._unsent: list[bytes] = []

    @property
    def is_usable(self) -> bool:
        """Whether a further call can be made."""
        return self.ended is False and self._next_stream < _LAST_STREAM

    async def call(self, path: str, headers: Headers, request: bytes, timeout_s: float) -> bytes:
        """The bytes of the response. `request`: at most `MAX_REQUEST_BYTES`.

        Raises `NoResponse`, `StreamBroken`, and `TimeoutError`; the server may have carried it out then.
        """
        loop = asyncio.get_running_loop()
        message = with_head(request)
        if len(message) > self.stream_window:
            raise NoResponse
        exchange = _Exchange(self._block(path, headers), message, loop.create_future())
        timer = loop.call_later(timeout_s, _expire, exchange.response)
        self._waiting.append(exchange)
        self._send_waiting()
        try:
            return await exchange.response
        finally:
            timer.cancel()
            if self._open.pop(exchange.stream, None) is not None and self.ended is False:
                self._flush()  # a stream is reset after it was opened
                self.send(frame(RST_STREAM, 0, exchange.stream, _CANCEL))
                self._send_waiting()

    def close(self) -> None:
        """End the connection; harmless when repeated."""
        self.end(StreamBroken("the connection was closed"))

    def _block(self, path: str, headers: Headers) -> bytes:
        known = self._blocks.get(path)
        if known is None or known[0] != headers:
            known = self._blocks[path] = headers, self._peer.header_block(path, headers)
        return known[1]

    def _send_waiting(self) -> None:
        """Send the calls for which the peer has room, in order."""
        waiting = self._waiting
        while waiting and len(self._open) < self.max_streams:
            if waiting[0].response.done():
                waiting.popleft()  # cancelled
            elif len(waiting[0].request) > self.send_window:
                return
            else:
                self._send_next(waiting.popleft())

    def _send_next(self, exchange: _Exchange) -> None:
        stream = exchange.stream = self._next_stream
        self._next_stream += 2
        self._open[stream] = exchange
        request = exchange.request
        self.send_window -= len(request)
        frames = [frame(HEADERS, END_HEADERS, stream, exchange.block)]
        for begin in range(0, len(request), _FRAME_BYTES):
            end = begin + _FRAME_BYTES
            flags = END_STREAM if end >= len(request) else 0
            frames.append(frame(DATA, flags, stream, request[begin:end]))
        # Calls of one turn of the loop are written together.
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += frames

    def _flush(self) -> None:
        frames, self._unsent = self._unsent, []
        if frames and self.ended is False:
            self.send(*frames)

    def handle_stream(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Finish the call when its stream ends."""
        exchange = self._open.get(stream)
        if exchange is None:  # cancelled
            return
        if kind == DATA:
            exchange.data += payload
        if kind == RST_STREAM or flags & END_STREAM:
            _finish(exchange, is_complete=kind != RST_STREAM)
            del self._open[stream]

    def handled(self) -> None:
        """Continue with the calls that waited; after the end, fail all."""
        if self.ended is False:
            self._send_waiting()
            if not self._open and not self.is_usable:
                self.close()
            return
        if self.transport is not None:
            self.transport.abort()
        exchanges = [*self._open.values(), *self._waiting]
        self._open.clear()
        self._waiting.clear()
        for exchange in exchanges:
            if not exchange.response.done():
                exchange.response.set_exception(StreamBroken(str(self.ended)))


def _finish(exchange: _Exchange, *, is_complete: bool) -> None:
    if exchange.response.done():
        return
    data = exchange.data
    # A gRPC server sends either a message or an error, so the trailers need not be decoded.
    if is_complete and 0 < (end := message_end(data)) == len(data):
        exchange.response.set_result(message_in(data, end))
    else:
        exchange.response.set_exception(NoResponse())


def _expire(response: asyncio.Future[bytes]) -> None:
    if not response.done():
        response.set_exception(TimeoutError())


class UnaryCalls:
    """Calls of several servers, over one connection to each, which is made when it is needed.

    `tls` returns the settings of a new connection; None: without TLS.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext | None]) -> None:
        self._tls = tls
        self._connections: dict[str, UnaryConnection] = {}
        self._connecting: dict[str, asyncio.Task[UnaryConnection]] = {}
        self._not_before = 0.0

    def takes(self, request: bytes) -> bool:
        """Whether a request may be sent in this way."""
        return len(request) <= MAX_REQUEST_BYTES and asyncio.get_running_loop().time() >= self._not_before

    def pause(self) -> None:
        """Take no requests for a minute, because another way reaches a server where this one does not."""
        self._not_before = asyncio.get_running_loop().time() + _PAUSE_S

    async def call(self, member: str, path: str, headers: Headers, request: bytes, timeout_s: float) -> bytes:
        """The bytes of the response of a member (`HOST:PORT`). Raises `CannotConnect`, and as
        `UnaryConnection.call`."""
        connection = self._connections.get(member)
        if connection is None or not connection.is_usable:
            connection = await self._connect(member)
        return await connection.call(path, headers, request, timeout_s)

    async def _connect(self, member: str) -> UnaryConnection:
        task = self._connecting.get(member)
        if task is None:
            task = self._connecting[member] = asyncio.create_task(self._connected(member))
            task.add_done_callback(lambda done: self._connected_or_not(member, done))
        return await asyncio.shield(task)

    def _connected_or_not(self, member: str, task: asyncio.Task[UnaryConnection]) -> None:
        del self._connecting[member]
        if not task.cancelled():
            task.exception()  # all callers may have been cancelled

    async def _connected(self, member: str) -> UnaryConnection:
        try:
            peer = Peer.of(member, self._tls())
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: UnaryConnection(peer),
                    peer.host,
                    peer.port,
                    ssl=peer.tls,
                    server_hostname=peer.server_name,
                )
        except OSError as error:  # TimeoutError and `ssl.SSLError` among them
            raise CannotConnect(str(error)) from error
        self._connections[member] = connection
        return connection

    def close(self) -> None:
        """End the connections."""
        for task in self._connecting.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()
