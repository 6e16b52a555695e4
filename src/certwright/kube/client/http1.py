"""One HTTP/1.1 connection of a client: one request at a time, the response as it arrives.

Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import cast

import httptools

# A response's head that is longer is no head. Go's limit for clients is 10 MiB, nginx's for upstreams 8 kB.
_LONGEST_HEAD = 256 * 1024
# Reading pauses while that much of the body waits for the caller.
_MOST_BUFFERED = 1024 * 1024
_GZIP = zlib.MAX_WBITS | 16


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
        self._lost = False
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._gzip: zlib._Decompress | None = None
        self._received = 0
        self._head_complete = False
        self._complete = False
        self._until_close = False
        self._keeps_alive = False
        self._failure: ConnectionError | None = None

    @property
    def is_reusable(self) -> bool:
        """Whether the response has been read to its end, and the server keeps the connection."""
        return self._complete and self._keeps_alive and not self._lost and not self._body

    @property
    def transport(self) -> asyncio.Transport:
        """The transport. The connection must have been made."""
        assert self._transport is not None
        return self._transport

    async def response(self, request: bytes) -> tuple[int, dict[str, str]]:
        """Send a request; the status and headers (names in lower case) of its response. Raises
        `ClosedEarly`, `CutShort` and `NotHttp`."""
        if self._lost:
            raise ClosedEarly
        self._begin()
        self.transport.write(request)
        while not self._head_complete:
            await self._wait()
        return self._parser.get_status_code(), self._headers

    async def read(self) -> bytes:
        """The next bytes of the body; none at its end. Raises `CutShort` and `NotHttp`."""
        while True:
            while not self._body and not self._complete:
                await self._wait()
            part, at_end = bytes(self._body), self._complete
            self._body.clear()
            if not self._lost:
                self.transport.resume_reading()
            part = self._unpacked(part, at_end=at_end)
            if part or at_end:
                return part

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

    def _unpacked(self, part: bytes, *, at_end: bool) -> bytes:
        if self._gzip is None:
            return part
        try:
            content = self._gzip.decompress(part)
        except zlib.error:
            raise NotHttp from None
        if at_end and not self._gzip.eof:
            raise CutShort
        return content

    async def _wait(self) -> None:
        """Wait for any change. Raises what ended the connection."""
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: ConnectionError) -> None:
        self._failure = self._failure or error
        self._keeps_alive = False
        self.abort()
        self._wake()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += len(data)
        if self._complete or (not self._head_complete and self._received > _LONGEST_HEAD):
            self._fail(NotHttp())
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(NotHttp())
            return
        if len(self._body) > _MOST_BUFFERED:
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._lost = True
        if self._head_complete and self._until_close and exc is None:
            self._complete = True
        if not self._complete and self._failure is None:
            self._failure = CutShort() if self._received else ClosedEarly()
        self._wake()

    # httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """The end of the head; an interim response (RFC 9110 §15.2) is skipped."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._head_complete = True
        # RFC 9112 §6.3: "the message body length is determined by the number of octets received prior to the
        # server closing the connection".
        has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._until_close = not has_length and status not in (204, 304)
        if self._headers.get("content-encoding", "").lower() == "gzip":
            self._gzip = zlib.decompressobj(_GZIP)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """The end of a response."""
        if not self._head_complete:
            self._headers = {}
            return
        self._complete = True
        self._keeps_alive = self._parser.should_keep_alive()
