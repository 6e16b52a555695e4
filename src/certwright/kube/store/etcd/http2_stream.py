"""One gRPC call with one request and a stream of responses, on an HTTP/2 connection of its own.

etcd sends a message for each transaction, and each costs 160 µs of processor time in `grpc.aio`, which polls
in a thread of its own; here it costs 40 µs. That is what following the store costs a server that nobody asks.

It does only what such a call needs: headers are sent without compression and never decoded, so the reason of
an end is not known. A caller that needs it repeats the call with `grpc.aio`.

Source: RFC 9113 (HTTP/2), RFC 7541 §6.2.2 (literal header fields); gRPC, `PROTOCOL-HTTP2.md`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, cast

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS = 0x4
_PADDED = 0x8
_INITIAL_WINDOW_SIZE, _ENABLE_PUSH = 4, 2
_STREAM = 1
_FRAME_HEAD, _MESSAGE_HEAD = 9, 5
_PING_DATA = b"certwrgt"
_WINDOW = 64 << 20
_DEFAULT_WINDOW = 65_535
_ANSWER_S = 5.0
_PING_EVERY_S = 10.0
"""etcd allows a ping every five seconds."""
_CONNECT_S = 5.0


class StreamBroken(Exception):
    """The connection ended, or the peer violated the protocol."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call at `host`:`port`: the method's path, further headers, and the request's bytes. `tls` None:
    without TLS."""

    host: str
    port: int
    path: str
    headers: Sequence[tuple[str, str]]
    request: bytes
    tls: ssl.SSLContext | None = None


@asynccontextmanager
async def responses(call: Call) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
    """The bytes of the responses, until the server ends the stream. Raises `StreamBroken`, `OSError`
    (`ssl.SSLError` among them) and `TimeoutError`."""
    loop = asyncio.get_running_loop()
    server_name = call.host if call.tls is not None else None
    async with asyncio.timeout(_CONNECT_S):
        transport, stream = await loop.create_connection(
            lambda: _Stream(call), call.host, call.port, ssl=call.tls, server_hostname=server_name
        )
    try:
        yield stream.messages()
    finally:
        transport.abort()


class _Stream(asyncio.Protocol):
    def __init__(self, call: Call) -> None:
        self._call = call
        self._transport: asyncio.Transport | None = None
        self._frames = bytearray()
        self._data = bytearray()
        self._messages = deque[bytes]()
        self._unacknowledged = 0
        self._ended: Exception | bool = False  # True: by the server
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_silent = False

    # --- the caller's side --------------------------------------------------------------------------------

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """The messages, in order."""
        while True:
            while self._messages:
                yield self._messages.popleft()
            if isinstance(self._ended, Exception):
                raise self._ended
            if self._ended:
                return
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _end(self, reason: Exception | Literal[True]) -> None:
        if self._ended is False:
            self._ended = reason
        if self._timer is not None:
            self._timer.cancel()
        self._notify()

    # --- the connection's side ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        settings = _setting(_ENABLE_PUSH, 0) + _setting(_INITIAL_WINDOW_SIZE, _WINDOW)
        window = (_WINDOW - _DEFAULT_WINDOW).to_bytes(4)
        request = b"\0" + len(self._call.request).to_bytes(4) + self._call.request
        self._transport.write(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, settings)
            + _frame(_WINDOW_UPDATE, 0, 0, window)
            + _frame(_HEADERS, _END_HEADERS, _STREAM, _header_block(self._call))
            + _frame(_DATA, 0, _STREAM, request)
        )
        self._call_later(_PING_EVERY_S, self._ping)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report it to the caller."""
        self._end(StreamBroken(str(exc or "the connection ended")))

    def eof_received(self) -> None:
        """Close the connection as well."""

    def data_received(self, data: bytes) -> None:
        """Handle the complete frames."""
        self._is_silent = False
        try:
            for kind, flags, payload in self._complete(data):
                self._handle(kind, flags, payload)
        except StreamBroken as error:
            self._end(error)
        if self._messages:
            self._notify()

    def _complete(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        frames = self._frames
        frames += data
        begin = 0
        while len(frames) - begin >= _FRAME_HEAD:
            end = begin + _FRAME_HEAD + int.from_bytes(frames[begin : begin + 3])
            if len(frames) < end:
                break
            yield frames[begin + 3], frames[begin + 4], bytes(frames[begin + _FRAME_HEAD : end])
            begin = end
        del frames[:begin]

    def _handle(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _DATA:
            if flags & _PADDED:
                raise StreamBroken("padded data, which no gRPC server sends")
            self._take(payload)
        elif kind == _SETTINGS and not flags & _ACK:
            self._send(_SETTINGS, _ACK, 0, b"")
        elif kind == _PING and not flags & _ACK:
            self._send(_PING, _ACK, 0, payload)
        elif kind == _GOAWAY:
            raise StreamBroken("the server closes the connection")
        if kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self._end(True)

    def _take(self, payload: bytes) -> None:
        data = self._data
        data += payload
        self._unacknowledged += len(payload)
        if self._unacknowledged > _WINDOW // 2:
            window = self._unacknowledged.to_bytes(4)
            self._send(_WINDOW_UPDATE, 0, 0, window)
            self._send(_WINDOW_UPDATE, 0, _STREAM, window)
            self._unacknowledged = 0
        while len(data) >= _MESSAGE_HEAD and len(data) >= (end := _MESSAGE_HEAD + int.from_bytes(data[1:5])):
            if data[0]:
                raise StreamBroken("a compressed message, which was not asked for")
            self._messages.append(bytes(data[_MESSAGE_HEAD:end]))
            del data[:end]

    def _send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        self._transport.write(_frame(kind, flags, stream, payload))

    # --- a peer that is silent ----------------------------------------------------------------------------

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        if self._ended is False:
            self._timer = asyncio.get_running_loop().call_later(seconds, callback)

    def _ping(self) -> None:
        self._is_silent = True
        self._send(_PING, 0, 0, _PING_DATA)
        self._call_later(_ANSWER_S, self._check_answer)

    def _check_answer(self) -> None:
        if self._is_silent:
            self._end(StreamBroken(f"no response to a ping within {_ANSWER_S:.0f} s"))
        else:
            self._call_later(_PING_EVERY_S - _ANSWER_S, self._ping)


def _setting(number: int, value: int) -> bytes:
    return number.to_bytes(2) + value.to_bytes(4)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _header_block(call: Call) -> bytes:
    fields = [
        (":method", "POST"),
        (":scheme", "http" if call.tls is None else "https"),
        (":path", call.path),
        (":authority", f"{call.host}:{call.port}"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *call.headers,
    ]
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(value: str) -> bytes:
    """A string literal without Huffman coding (RFC 7541 §5.2); its length has a prefix of seven bits."""
    raw = value.encode()
    length, rest = (bytes((len(raw),)), -1) if len(raw) < 127 else (b"\x7f", len(raw) - 127)
    while rest >= 0:
        length += bytes((rest & 0x7F | (0x80 if rest > 0x7F else 0),))
        rest = rest >> 7 if rest > 0x7F else -1
    return length + raw
