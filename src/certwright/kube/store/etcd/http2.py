"""gRPC calls of etcd on HTTP/2 connections of our own: many with one response at a time, or one with a
stream.

A call costs a third of the processor time that it takes with `grpc.aio`, and a message of the watch, which
etcd sends for each transaction, half of it. Headers are sent without compression, and only those of failed
calls are decoded: the peer must not use a dynamic table, so each block can be decoded by itself.

Source: RFC 9113 (HTTP/2), RFC 7541 §6.2.2 (literal header fields); gRPC, `PROTOCOL-HTTP2.md`.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, cast
from urllib.parse import unquote

import hpack

from certwright.kube.util.encoding import in_words

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, _SETTINGS, _PING, _GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = END_STREAM = 0x1
END_HEADERS = 0x4
_PADDED = 0x8
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_STREAMS, _INITIAL_WINDOW_SIZE = 1, 2, 3, 4
_SETTING = struct.Struct(">HI")
_FRAME_HEAD, _MESSAGE_HEAD = 9, 5
_PING_DATA = b"certwrgt"
_WINDOW = 64 << 20
"""Flow-control window of a connection, in bytes. That of each stream is unlimited, so that no stream waits
for a window while the connection has room."""
_LARGEST_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
_ANSWER_S = 5.0
_PING_EVERY_S = 10.0
"""etcd allows a ping every five seconds."""
_WHOLE_BYTES = 48 << 10
"""A request up to this size is sent whole; a longer one begins when so much can be sent. It is three quarters
of the smallest window, because gRPC's servers enlarge a window once a quarter of it has been used."""
_CONNECT_S = 2.0
_FRAME_BYTES = 16_384
"""The longest frame that every peer accepts (RFC 9113 §4.2)."""
_CANCEL = (8).to_bytes(4)
_LAST_STREAM = 2**31 - 1
_WATCH_CONNECT_S = 5.0

Headers = Sequence[tuple[str, str]]
"""Names and values."""


class StreamBroken(Exception):
    """The connection ended, or the peer violated the protocol."""


class Status(IntEnum):
    """gRPC's status codes (`statuscodes.md`)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallFailed(Exception):
    """A call ended without a message. `status`: the server's, or UNAVAILABLE or DEADLINE_EXCEEDED where there
    was no response; `details`: the reason in words, may be empty."""

    def __init__(self, status: Status, details: str = "") -> None:
        super().__init__(details or status.name)
        self.status = status
        self.details = details


def _failure(block: bytes) -> CallFailed:
    """The error in the encoded headers that end a call."""
    try:
        fields = {str(name): str(value) for name, value in hpack.Decoder().decode(block)}
        return CallFailed(Status(int(fields["grpc-status"])), unquote(fields.get("grpc-message", "")))
    except (hpack.HPACKError, KeyError, ValueError):
        return CallFailed(Status.UNKNOWN, "the response is not gRPC's")


@dataclass(frozen=True, slots=True)
class Peer:
    """A server. `tls` None: without TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, member: str, tls: ssl.SSLContext | None) -> Peer:
        """The server at `HOST:PORT`."""
        host, _, port = member.rpartition(":")
        return cls(host.strip("[]"), int(port), tls)

    @property
    def server_name(self) -> str | None:
        """The name that its certificate must have; None: without TLS."""
        return None if self.tls is None else self.host

    def header_block(self, path: str, headers: Headers) -> bytes:
        """The encoded request headers of a call of the method at `path`."""
        fields = [
            (":method", "POST"),
            (":scheme", "http" if self.tls is None else "https"),
            (":path", path),
            (":authority", f"{self.host}:{self.port}"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *headers,
        ]
        return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


class _Connection(asyncio.Protocol):
    """An HTTP/2 connection; a subclass handles its streams. It ends once: see `ended`."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended: Exception | bool = False
        """Whether the connection, or its only stream, has ended, and why; True: by the server, in order."""
        self.send_window = DEFAULT_WINDOW
        """How many bytes the peer accepts now, of all streams together."""
        self.stream_window = DEFAULT_WINDOW
        """How many bytes the peer accepts of a new stream."""
        self.max_streams = 100.0
        """How many streams the peer serves at a time; until it says so, RFC 9113's minimum (§6.5.2)."""
        self._frames = bytearray()
        self._unacknowledged = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_silent = False

    @abstractmethod
    def handle_stream(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Handle a frame of a stream (DATA, HEADERS, RST_STREAM, WINDOW_UPDATE). Raises `StreamBroken`."""

    @abstractmethod
    def handled(self) -> None:
        """All complete frames of a piece of data were handled, or the connection has ended."""

    def end(self, reason: Exception | Literal[True]) -> None:
        """Handle nothing more; harmless when repeated."""
        if self.ended is False:
            self.ended = reason
        if self._timer is not None:
            self._timer.cancel()
        self.handled()

    def send(self, *frames: bytes) -> None:
        """Write frames."""
        assert self.transport is not None
        self.transport.write(b"".join(frames))

    def pause_reading(self) -> None:
        """Leave what arrives to the system, until `resume_reading`; harmless when repeated."""
        assert self.transport is not None
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again; harmless when repeated."""
        assert self.transport is not None
        self.transport.resume_reading()

    # --- the transport's side -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        wanted = (_HEADER_TABLE_SIZE, 0), (_ENABLE_PUSH, 0), (_INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)
        settings = b"".join(_SETTING.pack(*setting) for setting in wanted)
        window = (_WINDOW - DEFAULT_WINDOW).to_bytes(4)
        self.send(_PREFACE, frame(_SETTINGS, 0, 0, settings), frame(WINDOW_UPDATE, 0, 0, window))
        self._call_later(_PING_EVERY_S, self._ping)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report it to the callers."""
        self.end(StreamBroken(str(exc or "the connection ended")))

    def eof_received(self) -> None:
        """Close the connection as well."""

    def data_received(self, data: bytes) -> None:
        """Handle the complete frames."""
        self._is_silent = False
        try:
            for kind, flags, stream, payload in self._complete(data):
                self._handle(kind, flags, stream, payload)
        except StreamBroken as error:
            self.end(error)
        self.handled()

    def _complete(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        frames = self._frames
        frames += data
        begin = 0
        while len(frames) - begin >= _FRAME_HEAD:
            head = begin + _FRAME_HEAD
            end = head + int.from_bytes(frames[begin : begin + 3])
            if len(frames) < end:
                break
            stream = int.from_bytes(frames[begin + 5 : head])
            yield frames[begin + 3], frames[begin + 4], stream, bytes(frames[head:end])
            begin = end
        del frames[:begin]

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (DATA, HEADERS, RST_STREAM) or (kind == WINDOW_UPDATE and stream):
            if kind == DATA:
                if flags & _PADDED:
                    raise StreamBroken("padded data, which no gRPC server sends")
                self._unacknowledged += len(payload)
                if self._unacknowledged > _WINDOW // 2:
                    self.send(frame(WINDOW_UPDATE, 0, 0, self._unacknowledged.to_bytes(4)))
                    self._unacknowledged = 0
            self.handle_stream(kind, flags, stream, payload)
        elif kind == _SETTINGS and not flags & _ACK:
            settings = dict(_SETTING.iter_unpack(payload[: len(payload) // _SETTING.size * _SETTING.size]))
            self.stream_window = settings.get(_INITIAL_WINDOW_SIZE, self.stream_window)
            self.max_streams = settings.get(_MAX_STREAMS, self.max_streams)
            self.send(frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.send(frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY:
            raise StreamBroken("the server closes the connection")
        elif kind == WINDOW_UPDATE:
            self.send_window += int.from_bytes(payload)

    # --- a peer that is silent ----------------------------------------------------------------------------

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        if self.ended is False:
            self._timer = asyncio.get_running_loop().call_later(seconds, callback)

    def _ping(self) -> None:
        self._is_silent = True
        self.send(frame(_PING, 0, 0, _PING_DATA))
        self._call_later(_ANSWER_S, self._check_answer)

    def _check_answer(self) -> None:
        if self._is_silent and self.transport is not None and self.transport.is_reading():
            self.end(StreamBroken(f"no response to a ping within {_ANSWER_S:.0f} s"))
        else:
            self._call_later(_PING_EVERY_S - _ANSWER_S, self._ping)


@dataclass(slots=True, eq=False)
class _Exchange:
    """A call under way. `stream` 0: not sent yet; `sent`: how many bytes of the request were sent; `granted`:
    how many more than the peer accepts of a new stream it accepts of this one; `headers`: the last ones."""

    block: bytes
    request: bytes
    response: asyncio.Future[bytes]
    stream: int = 0
    sent: int = 0
    granted: int = 0
    headers: bytes = b""
    data: bytearray = field(default_factory=bytearray)


class UnaryConnection(_Connection):
    """A connection for calls, which may overlap; each may be cancelled."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer
        self._blocks: dict[str, tuple[Headers, bytes]] = {}
        self._open: dict[int, _Exchange] = {}
        self._waiting = deque[_Exchange]()
        self._partly_sent: list[_Exchange] = []
        self._next_stream = 1
        self._unsent: list[bytes] = []

    @property
    def is_usable(self) -> bool:
        """Whether a further call can be made."""
        return self.ended is False and self._next_stream < _LAST_STREAM

    async def call(self, path: str, headers: Headers, request: bytes, timeout_s: float) -> bytes:
        """The bytes of the response.

        Raises `CallFailed`, `StreamBroken`, and `TimeoutError`; the server may have carried it out then.
        """
        loop = asyncio.get_running_loop()
        exchange = _Exchange(self._block(path, headers), _with_head(request), loop.create_future())
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
        """Send what the peer has room for: the rest of long requests, then the calls that wait, in order."""
        self._partly_sent = [exchange for exchange in self._partly_sent if not self._send_part(exchange)]
        waiting = self._waiting
        while waiting and len(self._open) < self.max_streams:
            if waiting[0].response.done():
                waiting.popleft()  # cancelled
            elif min(len(waiting[0].request), _WHOLE_BYTES) > self.send_window:
                return
            else:
                exchange = waiting.popleft()
                stream = exchange.stream = self._next_stream
                self._next_stream += 2
                self._open[stream] = exchange
                self._write(frame(HEADERS, END_HEADERS, stream, exchange.block))
                if not self._send_part(exchange):
                    self._partly_sent.append(exchange)

    def _send_part(self, exchange: _Exchange) -> bool:
        """Send as much of a request as the peer accepts; returns whether nothing is left to send."""
        if exchange.response.done():
            return True
        request, begin = exchange.request, exchange.sent
        room = min(self.send_window, self.stream_window + exchange.granted - begin)
        end = min(begin + max(room, 0), len(request))
        for at in range(begin, end, _FRAME_BYTES):
            part = request[at : min(at + _FRAME_BYTES, end)]
            is_last = at + len(part) == len(request)
            self._write(frame(DATA, END_STREAM if is_last else 0, exchange.stream, part))
        self.send_window -= end - begin
        exchange.sent = end
        return end == len(request)

    def _write(self, data: bytes) -> None:
        """Send a frame together with the others of this turn of the loop."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        frames, self._unsent = self._unsent, []
        if frames and self.ended is False:
            self.send(*frames)

    def handle_stream(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Finish the call when its stream ends."""
        exchange = self._open.get(stream)
        if exchange is None:  # cancelled
            return
        if kind == WINDOW_UPDATE:
            exchange.granted += int.from_bytes(payload)
        elif kind == DATA:
            exchange.data += payload
        elif kind == HEADERS:
            exchange.headers = payload
        if kind == RST_STREAM or (kind != WINDOW_UPDATE and flags & END_STREAM):
            _finish(exchange, is_complete=kind != RST_STREAM)
            del self._open[stream]
            if kind != RST_STREAM and exchange.sent < len(exchange.request):
                self._write(frame(RST_STREAM, 0, stream, _CANCEL))

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
    # A gRPC server sends either a message or an error, so the trailers are decoded only without a message.
    if is_complete and 0 < (end := _message_end(data)) == len(data):
        exchange.response.set_result(_message_in(data, end))
    elif is_complete:
        exchange.response.set_exception(_failure(exchange.headers))
    else:
        exchange.response.set_exception(CallFailed(Status.UNAVAILABLE, "the server has reset the call"))


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

    async def call(self, member: str, path: str, headers: Headers, request: bytes, timeout_s: float) -> bytes:
        """The bytes of the response of a member (`HOST:PORT`). Raises `CallFailed`."""
        connection = self._connections.get(member)
        if connection is None or not connection.is_usable:
            connection = await self._connect(member)
        try:
            return await connection.call(path, headers, request, timeout_s)
        except StreamBroken as error:
            raise CallFailed(Status.UNAVAILABLE, str(error)) from error
        except TimeoutError as error:
            raise CallFailed(Status.DEADLINE_EXCEEDED) from error

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
        except TimeoutError as error:
            raise CallFailed(Status.UNAVAILABLE, f"no connection within {_CONNECT_S:.0f} s") from error
        except OSError as error:
            words = str(error) if isinstance(error, ssl.SSLError) else in_words(error)
            raise CallFailed(Status.UNAVAILABLE, words) from error
        self._connections[member] = connection
        return connection

    def close(self) -> None:
        """End the connections."""
        for task in self._connecting.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `peer`: the method's path, further headers, and the request's bytes."""

    peer: Peer
    path: str
    headers: Headers
    request: bytes


@asynccontextmanager
async def responses(call: Call) -> AsyncGenerator[AsyncGenerator[list[bytes], None], None]:
    """The bytes of the responses, in batches of those that are there, until the server ends the stream.
    Raises `CallFailed`, `StreamBroken`, `OSError` (`ssl.SSLError` among them) and `TimeoutError`."""
    loop, peer = asyncio.get_running_loop(), call.peer
    async with asyncio.timeout(_WATCH_CONNECT_S):
        transport, stream = await loop.create_connection(
            lambda: _Stream(call), peer.host, peer.port, ssl=peer.tls, server_hostname=peer.server_name
        )
    try:
        yield stream.messages()
    finally:
        transport.abort()


class _Stream(_Connection):
    """A connection for one call with a stream of responses."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._data = bytearray()
        self._messages = list[bytes]()
        self._wake: asyncio.Future[None] | None = None

    async def messages(self) -> AsyncGenerator[list[bytes], None]:
        """The messages, in order. While the caller is busy with some, further ones are left to the system."""
        while True:
            while self._messages:
                messages, self._messages = self._messages, []
                yield messages
            if isinstance(self.ended, Exception):
                raise self.ended
            if self.ended:
                return
            self._wake = asyncio.get_running_loop().create_future()
            self.resume_reading()
            await self._wake
            self._wake = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        super().connection_made(transport)
        call = self._call
        block = call.peer.header_block(call.path, call.headers)
        self.send(frame(HEADERS, END_HEADERS, 1, block), frame(DATA, 0, 1, _with_head(call.request)))

    def handled(self) -> None:
        """Wake the reader, if there is something for it; read no more while it is busy."""
        if self._wake is None:
            self.pause_reading()
        elif (self._messages or self.ended is not False) and not self._wake.done():
            self._wake.set_result(None)

    def handle_stream(self, kind: int, flags: int, stream: int, payload: bytes) -> None:  # noqa: ARG002
        """Take the messages out of a frame's data."""
        if kind == DATA:
            data = self._data
            data += payload
            while end := _message_end(data):
                self._messages.append(_message_in(data, end))
                del data[:end]
        if kind == HEADERS and flags & END_STREAM:
            error = _failure(payload)
            self.end(True if error.status is Status.OK else error)
        elif kind == RST_STREAM or (kind == DATA and flags & END_STREAM):
            self.end(True)


def _message_end(data: bytes | bytearray) -> int:
    """Where the first gRPC message in `data` ends; 0: it is not complete. Raises `StreamBroken`."""
    if len(data) < _MESSAGE_HEAD:
        return 0
    if data[0]:
        raise StreamBroken("a compressed message, which was not asked for")
    end = _MESSAGE_HEAD + int.from_bytes(data[1:5])
    return end if len(data) >= end else 0


def _message_in(data: bytes | bytearray, end: int) -> bytes:
    """The first gRPC message in `data`, which ends at `end`."""
    return bytes(data[_MESSAGE_HEAD:end])


def _with_head(message: bytes) -> bytes:
    """A gRPC message as it is sent, without compression."""
    return b"\0" + len(message).to_bytes(4) + message


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An encoded frame."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(value: str) -> bytes:
    """A string literal without Huffman coding (RFC 7541 §5.2); its length has a prefix of seven bits."""
    raw = value.encode()
    length, rest = (bytes((len(raw),)), -1) if len(raw) < 127 else (b"\x7f", len(raw) - 127)
    while rest >= 0:
        length += bytes((rest & 0x7F | (0x80 if rest > 0x7F else 0),))
        rest = rest >> 7 if rest > 0x7F else -1
    return length + raw
