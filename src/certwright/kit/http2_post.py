"""One POST over an HTTP/2 connection of its own, without I/O.

Of the response only the status and the body are read: no header field is decoded but `:status`, which comes
first (RFC 9113 §8.3: pseudo-header fields precede all others). The caller limits the time.

Source: RFC 9113 (HTTP/2), RFC 7541 (HPACK).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

ALPN: Final = "h2"
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_ENABLE_PUSH, _INITIAL_WINDOW_SIZE = 2, 4
_STREAM = 1
_MOST_FRAMES: Final = 1_000
"""Of a response: a server that sends empty frames without end would otherwise use its whole time."""
_HEAD_BYTES = 9
_PRIORITY_BYTES = 5
_DEFAULT_WINDOW: Final = 65_535
_LONGEST_FRAME: Final = 16_384
"""RFC 9113 §4.2: the longest that either side accepts unless it announces more."""
_STATUSES: Final = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
"""Indexed header fields (RFC 7541 Appendix A)."""
_STATUS_LITERALS: Final = (0x08, 0x18, 0x48)
"""Literal header fields named `:status`, by how they are indexed (RFC 7541 §6.2)."""
OTHER_STATUS: Final = 0
"""A status that is not decoded: none of the indexed ones, so not 200."""


class Http2Error(ConnectionError):
    """The server ended the exchange, or violated the protocol. The text quotes nothing of the server's."""


class Post:
    """The exchange. `request` are the first bytes to send; then pass what arrives to `receive` until
    `is_complete`. A body of more than `most` bytes is an error."""

    def __init__(
        self, authority: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, *, most: int
    ) -> None:
        assert len(body) <= _LONGEST_FRAME
        self._most = most
        self._received = bytearray()
        self._left = _MOST_FRAMES
        self.status = OTHER_STATUS
        self.body = bytearray()
        self.is_complete = False
        fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":path", target),
            (":authority", authority),
            ("content-length", str(len(body))),
            *headers,
        ]
        # Room for a longer body than is accepted: it is reported, instead of being awaited in vain.
        window = most + _DEFAULT_WINDOW
        settings = _setting(_ENABLE_PUSH, 0) + _setting(_INITIAL_WINDOW_SIZE, window)
        self.request = b"".join(
            (
                _PREFACE,
                _frame(_SETTINGS, 0, 0, settings),
                _frame(_WINDOW_UPDATE, 0, 0, (window - _DEFAULT_WINDOW).to_bytes(4)),
                _frame(_HEADERS, _END_HEADERS, _STREAM, b"".join(_field(*field) for field in fields)),
                _frame(_DATA, _END_STREAM, _STREAM, body),
            )
        )

    def receive(self, data: bytes) -> bytes:
        """Read what arrived; the bytes to send now. Raises `Http2Error`."""
        self._received += data
        return b"".join(self._handle(*frame) for frame in self._frames())

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        received = self._received
        while len(received) >= _HEAD_BYTES and not self.is_complete:
            size = int.from_bytes(received[:3])
            if size > _LONGEST_FRAME:
                raise Http2Error("it does not speak HTTP/2")
            end = _HEAD_BYTES + size
            if len(received) < end:
                return
            kind, flags, stream = received[3], received[4], int.from_bytes(received[5:_HEAD_BYTES])
            payload = bytes(received[_HEAD_BYTES:end])
            del received[:end]
            self._left -= 1
            if self._left < 0:
                raise Http2Error("it sends too many frames")
            yield kind, flags, stream, payload

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        if kind in (_SETTINGS, _PING):
            answer = payload if kind == _PING else b""
            return b"" if flags & _ACK else _frame(kind, _ACK, 0, answer)
        # A server that shuts down announces it early, and finishes the streams that it has accepted.
        if kind == _GOAWAY and int.from_bytes(payload[:4]) < _STREAM:
            raise Http2Error("it closed the connection")
        if stream == _STREAM and kind == _RST_STREAM:
            raise Http2Error("it refused the request")
        if stream == _STREAM and kind in (_DATA, _HEADERS):
            self._read(kind, flags, payload)
        return b""

    def _read(self, kind: int, flags: int, payload: bytes) -> None:
        if flags & _PADDED:
            padding = payload[0] if payload else 0
            payload = payload[1 : len(payload) - padding]
        if kind == _DATA:
            self.body += payload
            if len(self.body) > self._most:
                raise Http2Error(f"it answered with more than {self._most} bytes")
        elif self.status == OTHER_STATUS:
            self.status = _status(payload[_PRIORITY_BYTES if flags & _PRIORITY else 0 :])
        if flags & _END_STREAM:
            self.is_complete = True


def _status(block: bytes) -> int:
    """The status that a header block begins with."""
    at = 0
    # RFC 7541 §6.3: changes of the size of the dynamic table come first.
    while at < len(block) and block[at] & 0xE0 == 0x20:
        is_long = block[at] & 0x1F == 0x1F
        at += 1
        while is_long and at < len(block):
            is_long = bool(block[at] & 0x80)
            at += 1
    if block[at : at + 1] and block[at] in _STATUS_LITERALS and block[at + 1 : at + 2] == b"\x03":
        digits = block[at + 2 : at + 5]
        return int(digits) if digits.isdigit() else OTHER_STATUS
    return _STATUSES.get(block[at], OTHER_STATUS) if at < len(block) else OTHER_STATUS


def _field(name: str, value: str) -> bytes:
    """A literal header field without indexing (RFC 7541 §6.2.2)."""
    return b"\0" + _string(name.encode()) + _string(value.encode())


def _string(raw: bytes) -> bytes:
    """A string without Huffman coding (RFC 7541 §5.2); its length has a prefix of seven bits (§5.1)."""
    if len(raw) < 0x7F:
        return bytes((len(raw),)) + raw
    length, rest = bytearray(b"\x7f"), len(raw) - 0x7F
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes(length) + raw


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _setting(number: int, value: int) -> bytes:
    return number.to_bytes(2) + value.to_bytes(4)
