"""HTTP/2 frames for gRPC calls: the connection's part, which streams share.

It does only what such calls need: headers are sent without compression and never decoded, so the reason of an
error is not known. A caller that needs it repeats the call with `grpc.aio`.

Source: RFC 9113 (HTTP/2), RFC 7541 §6.2.2 (literal header fields); gRPC, `PROTOCOL-HTTP2.md`.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = END_STREAM = 0x1
END_HEADERS = 0x4
_PADDED = 0x8
_ENABLE_PUSH, _MAX_STREAMS, _INITIAL_WINDOW_SIZE = 2, 3, 4
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


Headers = Sequence[tuple[str, str]]
"""Names and values."""


class StreamBroken(Exception):
    """The connection ended, or the peer violated the protocol."""


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


class FrameConnection(asyncio.Protocol):
    """An HTTP/2 connection; what its streams do is the subclass's. It ends once: see `ended`."""

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
        """Handle a frame of a stream (DATA, HEADERS, RST_STREAM). Raises `StreamBroken`."""

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
        settings = _setting(_ENABLE_PUSH, 0) + _setting(_INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)
        window = (_WINDOW - DEFAULT_WINDOW).to_bytes(4)
        self.send(_PREFACE, frame(_SETTINGS, 0, 0, settings), frame(_WINDOW_UPDATE, 0, 0, window))
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
        if kind in (DATA, HEADERS, RST_STREAM):
            if kind == DATA:
                if flags & _PADDED:
                    raise StreamBroken("padded data, which no gRPC server sends")
                self._acknowledge(len(payload))
            self.handle_stream(kind, flags, stream, payload)
        elif kind == _SETTINGS and not flags & _ACK:
            self._apply_settings(payload)
            self.send(frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.send(frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY:
            raise StreamBroken("the server closes the connection")
        elif kind == _WINDOW_UPDATE and stream == 0:
            self.send_window += int.from_bytes(payload)

    def _apply_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            number, value = int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6])
            if number == _INITIAL_WINDOW_SIZE:
                self.stream_window = value
            elif number == _MAX_STREAMS:
                self.max_streams = value

    def _acknowledge(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged > _WINDOW // 2:
            self.send(frame(_WINDOW_UPDATE, 0, 0, self._unacknowledged.to_bytes(4)))
            self._unacknowledged = 0

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


def message_end(data: bytes | bytearray) -> int:
    """Where the first gRPC message in `data` ends; 0: it is not complete. Raises `StreamBroken`."""
    if len(data) < _MESSAGE_HEAD:
        return 0
    if data[0]:
        raise StreamBroken("a compressed message, which was not asked for")
    end = _MESSAGE_HEAD + int.from_bytes(data[1:5])
    return end if len(data) >= end else 0


def message_in(data: bytes | bytearray, end: int) -> bytes:
    """The first gRPC message in `data`, which ends at `end`."""
    return bytes(data[_MESSAGE_HEAD:end])


def with_head(message: bytes) -> bytes:
    """A gRPC message as it is sent, without compression."""
    return b"\0" + len(message).to_bytes(4) + message


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An encoded frame."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _setting(number: int, value: int) -> bytes:
    return number.to_bytes(2) + value.to_bytes(4)


def _text(value: str) -> bytes:
    """A string literal without Huffman coding (RFC 7541 §5.2); its length has a prefix of seven bits."""
    raw = value.encode()
    length, rest = (bytes((len(raw),)), -1) if len(raw) < 127 else (b"\x7f", len(raw) - 127)
    while rest >= 0:
        length += bytes((rest & 0x7F | (0x80 if rest > 0x7F else 0),))
        rest = rest >> 7 if rest > 0x7F else -1
    return length + raw
