"""HTTP/1.1 protocol of one connection: requests in, responses out, in order.

httptools parses a request; the handler gets the complete request. This module limits the size and the time of
a client's request.

Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import select
from collections import deque
from dataclasses import dataclass
from typing import cast

import httptools

from certwright.kube.api.errors import ApiError, TooLarge, Unavailable
from certwright.kube.apiserver.http import response_writer
from certwright.kube.apiserver.http.connections import Connection
from certwright.kube.apiserver.http.fairness import too_many
from certwright.kube.apiserver.http.response_writer import MAX_UNREAD, ResponseWriter, Unread
from certwright.kube.apiserver.representations.responses import failure
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import quoted
from certwright.kube.util.http_messages import Handler, Request, Response


class Traffic:
    """State shared by the connections of one front end: the handler, and the bytes in transit."""

    def __init__(
        self, handler: Handler, clock: Clock, *, is_fair: bool, max_unread: int = MAX_UNREAD
    ) -> None:
        self.handler = handler
        self.extra = response_writer.ExtraFields(clock, is_fair=is_fair)
        self.connections: set[HttpProtocol] = set()
        self.arriving = 0  # bytes of incomplete bodies
        self.unread = Unread(max_unread)
        self.is_closing = False
        self._connection_removed = asyncio.Event()

    def remove(self, connection: HttpProtocol) -> None:
        """Forget a closed connection."""
        self.connections.discard(connection)
        self._connection_removed.set()

    async def wait_ended(self) -> None:
        """Wait until no connections are left."""
        while self.connections:
            self._connection_removed.clear()
            await self._connection_removed.wait()


_log = logging.getLogger(__name__)

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request body, as in Kubernetes."""
MAX_BODIES = 128 * 1024 * 1024
"""Bytes of all incomplete bodies together, because their senders are not yet authenticated."""
MAX_HEADERS = 64 * 1024
"""Bytes of the request line and all header fields together."""
_MOST_RAW_HEADERS = MAX_HEADERS + 256 * 1024
"""Bytes in which the header fields must end; a read may also contain bytes of the previous request."""
_MOST_RAW_BODY = 8 * MAX_BODY
"""Bytes in which a body must end: it may come in chunks of one byte, with six around it."""
KEEP_ALIVE_S = 120
"""Seconds that a connection may be idle."""
HEADER_S = 30.0
"""Seconds for the request line and the header fields."""
BODY_S = 60.0
"""Seconds for the whole request."""
LINGER_S = 0.5
"""Seconds that a client which is refused while it sends is still read from, as in Go's server."""
UNIDENTIFIED_S = 10.0
"""Seconds that a connection without an authenticated request may be idle, and the limit for the header
fields of its request."""
_CLOSED = getattr(select, "POLLRDHUP", 0)
"""The peer has closed its half of the connection (Linux); beside it `poll` reports both halves and errors."""
_TIMER_S = 1e-3  # resolution of the loop's timers


class _HeadersTooLarge(Exception):
    """More than `MAX_HEADERS`. httptools turns it into a parser error, which is answered with 400."""


class _NoHost(Exception):
    """No field `Host`, or several: as above."""


_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}(?= )")
_METHODS = frozenset(
    (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT")
)
_STAND_IN = b"REPORT"
"""A method that the parser accepts without special treatment, in place of unknown ones."""
_INVALID = b"Invalid HTTP request received."
_BROKEN = b"Internal Server Error"


@dataclass(slots=True)
class _Exchange:
    """A request and its answer. `refusal`: the error to answer in place of the handler, as the connection's
    last answer."""

    request: Request
    keep_alive: bool
    refusal: Response | None = None


class HttpProtocol(ResponseWriter):
    """A connection's protocol: asyncio callbacks and parser callbacks.

    Pipelined requests wait until the previous one is answered, and reading pauses. Any method is accepted;
    the handler rejects unknown ones.
    """

    def __init__(self, traffic: Traffic, connection: Connection | None = None) -> None:
        super().__init__(traffic.extra, traffic.unread)
        self._traffic = traffic
        self._connection = connection
        self._parser = httptools.HttpRequestParser(self)
        # Bytes after a request with `Connection: close` are ignored; they are no error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._certificate: bytes | None = None
        # The request being read.
        self._url = b""
        self._headers: dict[str, str] = {}
        self._header_size = 0
        self._raw_size = 0  # including what the parser buffers, because it has no limits
        self._body: bytes | bytearray = b""
        self._incoming: _Exchange | None = None
        self._foreign_method = ""
        self._between = True
        self._in_body = False
        self._is_refused = False
        # Complete requests.
        self._waiting: deque[_Exchange] = deque()
        # Time limits.
        self._is_idle = False
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    # --- the connection -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the certificate, once for the connection."""
        self.transport = cast(asyncio.Transport, transport)
        self.limit_buffer()
        tls = transport.get_extra_info("ssl_object")
        self._certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self._traffic.connections.add(self)
        if self._connection is not None:
            self._connection.close = self.abort
            self._connection.is_closed = self.is_closed
        self._expect(self._patience(HEADER_S))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the cause does not matter
        """Cancel timers and streams; the handler finishes an ordinary answer, which is discarded."""
        self._traffic.remove(self)
        if self._connection is not None:
            self._connection.release()
        self._drop_body()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self.cut()

    def end(self) -> None:
        """Close once the present answer has been sent; streams are cut short."""
        self._is_last = True
        if self._task is None:
            self.transport.close()
        self.cut()

    def abort(self) -> None:
        """Close now."""
        if self._task is not None:
            self._task.cancel()
        self.transport.abort()

    def is_closed(self) -> bool:
        """Whether the client has closed the connection, also if the event loop has not read that yet."""
        if self.transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), _CLOSED)
        return bool(poll.poll(0))

    def _patience(self, seconds: float) -> float:
        """`seconds`, or fewer where no request on the connection has been authenticated."""
        is_unidentified = self._connection is not None and not self._connection.is_identified
        return min(seconds, UNIDENTIFIED_S) if is_unidentified else seconds

    # --- time ---------------------------------------------------------------------------------------------

    def _expect(self, seconds: float) -> None:
        """Set the deadline of the next event. One running timer serves all deadlines."""
        self._deadline = self._loop.time() + seconds
        if self._deadline < self._timer_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        """Check the deadline: the header must be complete by then, and the body soon."""
        self._timer, self._timer_at = None, math.inf
        if self._deadline == math.inf:
            return
        if self._deadline > self._loop.time() + _TIMER_S:
            self._set_timer()
        elif self._in_body:
            self._in_body = False
            self._expect(BODY_S - HEADER_S)
        elif self._is_idle:
            self.transport.close()
        else:
            self._give_up("did not send its request")

    # --- requests -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser. A method unknown to the parser bypasses it."""
        if self._is_refused:
            return
        if self._between and (match := _METHOD.match(data)) is not None and match[0] not in _METHODS:
            self._foreign_method = match[0].decode()
            data = _STAND_IN + data[match.end() :]
        was_idle, self._is_idle = self._is_idle, False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The server speaks no other protocol: the request was read like any other.
            return
        except httptools.HttpParserError:
            self._refuse_plainly(is_sending=self._header_size > MAX_HEADERS)
            return
        if not self._between and not self._is_refused:
            self._raw_size += len(data)
            if self._raw_size > (_MOST_RAW_BODY if self._in_body else _MOST_RAW_HEADERS):
                self._refuse_plainly(is_sending=True)
                return
        if was_idle and self._between and self._task is None:
            # Empty lines before a request (RFC 9112 §2.2) end the idle time and begin no request.
            self._expect(self._patience(HEADER_S))

    def on_message_begin(self) -> None:
        """Start the byte counts and the deadline."""
        self._between, self._raw_size = False, 0
        self._url, self._headers, self._header_size, self._body = b"", {}, 0, b""
        self._expect(self._patience(HEADER_S))

    def on_url(self, url: bytes) -> None:
        """Add a part of the target."""
        self._count(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field."""
        self._count(len(name) + len(value))
        key, text, headers = name.decode("latin-1").lower(), value.decode("latin-1"), self._headers
        if key in headers:
            # Lists are joined by commas (RFC 9110 §5.3), but names of groups may contain commas.
            between = "\n" if key.startswith("impersonate-") else ", "
            text = f"{headers[key]}{between}{text}"
        headers[key] = text

    def _count(self, size: int) -> None:
        self._header_size += size
        if self._header_size > MAX_HEADERS:
            raise _HeadersTooLarge

    def on_headers_complete(self) -> None:
        """The header is complete; a request that is refused anyway need not send its body."""
        self._in_body, self._raw_size = True, 0
        method, self._foreign_method = self._foreign_method or self._parser.get_method().decode(), ""
        url = httptools.parse_url(self._url)
        target = url.path.decode("ascii")
        if url.query:
            target += "?" + url.query.decode("latin-1")
        request = Request(
            method, target, self._headers, peer_certificate=self._certificate, caller=self._connection
        )
        self._headers = {}  # trailer fields are ignored
        self._incoming = _Exchange(request, self._may_stay(request))
        if (error := self._objection(request)) is not None:
            self._refuse(error)
        elif request.headers.get("expect", "").lower() == "100-continue" and self._task is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _may_stay(self, request: Request) -> bool:
        """Whether the connection stays open for other requests. Raises `_NoHost` (RFC 9112 §3.2)."""
        if self._parser.get_http_version() == "1.0":
            return False
        host = request.headers.get("host")
        if host is None or "," in host:
            raise _NoHost
        # Bytes after an upgrade offer are not read, because they may be of that protocol.
        return bool(self._parser.should_keep_alive()) and not self._parser.should_upgrade()

    def _objection(self, request: Request) -> ApiError | None:
        """The error for every request during shutdown, and for one that announces too long a body."""
        if self._traffic.is_closing:
            # The client of an ended watch immediately asks again, on the same connection.
            return Unavailable("the server is stopping")
        coding = request.headers.get("transfer-encoding", "chunked")
        if coding.strip().lower() != "chunked":
            # RFC 9112 §6.1: "A server that receives a request message with a transfer coding it does not
            # understand SHOULD respond with 501".
            text = f"Transfer-Encoding {quoted(coding)} is not implemented; write chunked"
            return ApiError(text, reason="NotImplemented", code=501)
        length = request.headers.get("content-length", "0")
        return _too_large() if length.isdecimal() and int(length) > MAX_BODY else None

    def _refuse(self, error: ApiError) -> None:
        """Answer the current request with an error, and ignore all that follows."""
        assert self._incoming is not None
        self._drop_body()
        self._is_refused = True
        self._incoming.refusal = failure(error)
        self._accept_exchange(self._incoming)

    def _refuse_plainly(self, *, is_sending: bool) -> None:
        """Answer a malformed request with plain text, and ignore all that follows."""
        self._drop_body()
        self._is_refused = True
        self._write_plain(400, _INVALID)
        self._end(is_sending=is_sending and self._task is None)

    def on_body(self, part: bytes) -> None:
        """Add a part of the body."""
        if self._is_refused:
            return
        self._traffic.arriving += len(part)
        if not self._body:
            self._body = part
        else:
            if type(self._body) is bytes:
                # Not a list of parts: one may be a single byte.
                self._body = bytearray(self._body)
            self._body += part
        if len(self._body) > MAX_BODY:
            self._refuse(_too_large())
        elif self._traffic.arriving > MAX_BODIES:
            self._refuse(too_many())

    def _drop_body(self) -> None:
        self._traffic.arriving -= len(self._body)
        self._body = b""

    def on_message_complete(self) -> None:
        """Queue the complete request."""
        self._between, self._in_body = True, False
        self._deadline = math.inf
        if self._is_refused or self._incoming is None:
            return
        self._incoming.request.body = bytes(self._body)
        self._drop_body()
        self._accept_exchange(self._incoming)

    # --- answers ------------------------------------------------------------------------------------------

    def _accept_exchange(self, exchange: _Exchange) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._serve(exchange))
        else:
            self._waiting.append(exchange)
            self.transport.pause_reading()

    async def _serve(self, exchange: _Exchange) -> None:
        try:
            request = exchange.request
            response = exchange.refusal or await self._traffic.handler(request)
            response.headers = self._extra.added(request, response.headers)
            is_last = exchange.refusal is not None or not exchange.keep_alive or self._is_last
            if is_last:
                response.headers["connection"] = "close"
            if self._resumed is not None:
                await self._resumed
            if response.stream is None:
                await self._send(await response_writer.encode_response(request, response))
            else:
                await self._send_stream(request, response, response.stream)
        except asyncio.CancelledError:
            self.transport.abort()
            raise
        except Exception as error:
            if isinstance(error, ApiError):
                # Of a list in parts, which has no place for an error: the missing last chunk shows it.
                _log.warning("the answer to %s is cut short: %s", exchange.request.method, error)
            else:
                _log.exception("%s could not be answered", exchange.request.method)
            self._write_plain(500, _BROKEN)
            self.transport.close()
            return
        self._task = None
        if self.transport.is_closing():
            return
        if is_last or self._is_last:
            self._end(is_sending=self._is_refused and not self._between)
        elif self._waiting:
            self._accept_exchange(self._waiting.popleft())
            if not self._waiting:
                self.transport.resume_reading()
        elif self._between:
            self._is_idle = True
            self._expect(self._patience(KEEP_ALIVE_S))

    def _end(self, *, is_sending: bool) -> None:
        """Close, but with a delay while the client still sends: closing would reset the connection, and the
        client might never read the reason (RFC 9112 §9.6)."""
        if not is_sending or self._traffic.is_closing:
            self.transport.close()
            return
        self._in_body, self._is_idle = False, True
        self._expect(LINGER_S)


def _too_large() -> TooLarge:
    return TooLarge(f"Request entity too large: limit is {MAX_BODY}")
