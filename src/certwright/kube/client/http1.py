"""One HTTP/1.1 connection of a client: one request at a time, the response as it arrives.

h11 assigns each response to its request, and so knows where it ends (RFC 9112 §6.3): a response to HEAD has
no body, whatever its Content-Length. This module adds the socket, gzip, and errors without the server's
bytes.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import cast

import h11

# The limit of a response's head. Go's limit for clients is 10 MiB, nginx's for upstreams 8 kB.
_LONGEST_HEAD = 256 * 1024
# Reading from the socket pauses while that much waits for the caller.
_MOST_BUFFERED = 1024 * 1024
_GZIP = zlib.MAX_WBITS | 16
_BEGIN = b"HTTP/1."

_Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class ClosedEarly(ConnectionError):
    """The server closed the connection without a byte of the response."""


class CutShort(ConnectionError):
    """The connection ended within the response."""


class NotHttp(ConnectionError):
    """The server's bytes are not HTTP. The text never quotes them."""


class Connection(asyncio.Protocol):
    """One connection: `response`, then `read` until it returns nothing, then the next request.

    Any error, and a cancelled call, leave the connection unusable: call `abort`.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        # The bytes that h11 has not received yet.
        self._buffer = bytearray()
        self._is_gzip = False
        self._gzip: zlib._Decompress | None = None
        self._is_answered = False
        self._is_lost = False
        self._is_reset = False

    @property
    def is_reusable(self) -> bool:
        """Whether the response has been read to its end, the server keeps the connection, and has sent
        nothing since."""
        is_done = self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}
        return is_done and not (self._is_lost or self._buffer or self._http.trailing_data[0])

    @property
    def transport(self) -> asyncio.Transport:
        """The transport. The connection must have been made."""
        assert self._transport is not None
        return self._transport

    async def response(self, request: h11.Request, body: bytes = b"") -> tuple[int, dict[str, str]]:
        """Send a request; the status and headers (names in lower case) of its final response. Raises
        `ClosedEarly`, `CutShort` and `NotHttp`."""
        if self._is_lost:
            raise ClosedEarly
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self._is_answered = False
        events = (request, h11.Data(data=body), h11.EndOfMessage())
        self.transport.write(b"".join([self._http.send(event) or b"" for event in events]))
        # RFC 9110 §15.2: "A client MUST be able to parse one or more 1xx responses received prior to a final
        # response".
        while not isinstance(event := await self._next_event(), h11.Response):
            pass
        headers: dict[str, str] = {}
        for name, value in event.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._is_gzip, self._gzip = headers.get("content-encoding", "").lower() == "gzip", None
        return event.status_code, headers

    async def read(self) -> bytes:
        """The next bytes of the body, all that have arrived; none at its end. Raises `CutShort` and
        `NotHttp`."""
        while self._http.their_state is h11.SEND_BODY:
            parts = []
            event: _Event = await self._next_event()
            while isinstance(event, h11.Data):
                parts.append(event.data)
                event = self._parse()
            part = b"".join(parts)
            if self._is_gzip:
                part = self._decompress(part, at_end=isinstance(event, h11.EndOfMessage))
            if part:
                return part
        return b""

    async def read_all(self) -> bytes:
        """The whole body. Raises `CutShort` and `NotHttp`."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def abort(self) -> None:
        """Close the connection without a TLS shutdown, which would outlive the event loop."""
        if self._transport is not None:
            self._transport.abort()

    def _decompress(self, part: bytes, *, at_end: bool) -> bytes:
        if self._gzip is None:
            if not part:
                # The body of a response that names a compression may be empty nevertheless.
                return b""
            self._gzip = zlib.decompressobj(_GZIP)
        try:
            content = self._gzip.decompress(part)
        except zlib.error:
            raise NotHttp from None
        if self._gzip.unused_data:
            raise NotHttp
        if at_end and not self._gzip.eof:
            raise CutShort
        return content

    async def _next_event(self) -> h11.Event:
        """The next event of the response. Raises what ended the connection."""
        while (event := self._parse()) is h11.NEED_DATA:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if isinstance(event, type):
            # h11 pauses at bytes that belong to no response.
            raise NotHttp
        return event

    def _parse(self) -> _Event:
        """The next event among the bytes that have arrived, or `h11.NEED_DATA`. Raises what ended the
        connection."""
        if self._buffer:
            self._http.receive_data(bytes(self._buffer))
            self._buffer.clear()
            if not self._is_lost:
                self.transport.resume_reading()
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError:
            raise NotHttp from None
        if event is not h11.NEED_DATA:
            return event
        if self._http.their_state is h11.SEND_RESPONSE:
            # h11 decides at the end of the head, which other protocols never send.
            begin = self._http.trailing_data[0][: len(_BEGIN)]
            if not _BEGIN.startswith(begin):
                raise NotHttp
        if not self._is_lost:
            return event
        if not self._is_answered:
            raise ClosedEarly
        if self._is_reset:
            raise CutShort
        try:
            # RFC 9112 §6.3: "the message body length is determined by the number of octets received prior to
            # the server closing the connection".
            self._http.receive_data(b"")
            return self._http.next_event()
        except h11.RemoteProtocolError:
            raise CutShort from None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._is_answered = True
        self._buffer += data
        if len(self._buffer) > _MOST_BUFFERED:
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost, self._is_reset = True, exc is not None
        self._wake()
