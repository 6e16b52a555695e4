"""Responses of one HTTP connection: wire format, backpressure from the client, and heartbeats of watches.

Heartbeats are empty lines at a fixed interval, for clients that request them. They show that this process
works: TCP does not show that a process stands still, and HTTP/1.1 has no ping.

Source: RFC 9112 §4, §6.3, §7.1; Kubernetes documentation, "Kubernetes API Concepts", compression; "Auditing"
(Audit-Id); "API Priority and Fairness", diagnostics (the X-Kubernetes-PF header fields).
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import zlib
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import AsyncExitStack
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

import msgspec

from certwright.kube.api import naming
from certwright.kube.apiserver.model.negotiation import JSON
from certwright.kube.apiserver.model.routes import is_watch
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import HEARTBEAT, PushStream, Request, Response, close_stream

GZIP_FROM = 128 * 1024
"""Answers above this size are compressed for clients that accept gzip, as in Kubernetes."""
LAST_CHUNK = b"0\r\n\r\n"
_AUDIT_ID = re.compile(r"[\x20-\x7e]+")
EVENT_STREAM = "text/event-stream"
"""Server-Sent Events, each of which must arrive immediately (WHATWG HTML)."""
_PRETTY = re.compile(r"[?&]pretty=([^&]+)")
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CACHE_CONTROL = {"cache-control": "no-cache, private"}
_NO_CONTENT = frozenset({204, 304})


class ExtraFields:
    """The header fields of every answer; `is_fair`: the server has priority and fairness."""

    def __init__(self, clock: Clock, *, is_fair: bool) -> None:
        self._clock = clock
        self._second = -1
        self._date = ""
        # client-go's controllers check for these: with such a server they need no client-side rate limit.
        names = ("x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid") if is_fair else ()
        self._fixed = {name: naming.new_uid() for name in names}

    def added(self, request: Request, fields: Mapping[str, str]) -> dict[str, str]:
        """The fields of the answer to `request`, with the common ones added."""
        # The audit ID of a reverse proxy, or a new one.
        given = request.headers.get("audit-id", "")
        audit_id = given if _AUDIT_ID.fullmatch(given) else naming.new_uid()
        return {**_CACHE_CONTROL, **fields, **self._fixed, "audit-id": audit_id, "date": self.date()}

    def date(self) -> str:
        """The value of `Date`, which every answer must have (RFC 9110 §6.6.1)."""
        second = int(self._clock.now().timestamp())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True)
        return self._date


def head(response: Response) -> bytes:
    """Status line and header fields, with the empty line after them.

    Raises `ValueError` for a value with control characters, such as a line break.
    """
    fields = response.headers
    if _NOT_IN_A_VALUE.search("".join(fields.values())):
        raise ValueError("control characters in a header field")
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
    return f"{_status_line(response.status)}{lines}\r\n".encode("latin-1", "replace")


@lru_cache(maxsize=64)
def _status_line(code: int) -> str:
    phrase = HTTPStatus(code).phrase if code in HTTPStatus.__members__.values() else ""
    return f"HTTP/1.1 {code} {phrase}\r\n"


async def encode_response(request: Request, response: Response) -> bytes:
    """A complete answer: head and body, in the encoding that `request` accepts. Raises as `head` does."""
    body = response.body
    if response.headers.get("content-type") == JSON and wants_pretty(request):
        body = msgspec.json.format(body, indent=2)
    if len(body) > GZIP_FROM and takes_gzip(request):
        # Compressing a megabyte takes milliseconds and releases the GIL.
        body = await asyncio.to_thread(gzip.compress, body, 1)
        mark_as_gzip(response)
    if response.status not in _NO_CONTENT:
        response.headers["content-length"] = str(len(body))
    start = head(response)
    return start if request.method == "HEAD" else start + body


def mark_as_gzip(response: Response) -> None:
    """Set the header fields of a compressed body."""
    response.headers["content-encoding"] = "gzip"
    response.headers["vary"] = "Accept-Encoding"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body (RFC 9112 §7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


shared_chunk = lru_cache(maxsize=1)(chunk)
"""`chunk`, cached for the watchers of one event."""


def wants_pretty(request: Request) -> bool:
    """Whether to indent the answer: the query asks for it, or the client is a browser, curl or Wget."""
    if match := _PRETTY.search(request.target):
        return match[1] in _TRUE
    # OpenAPI documents are the same bytes for every client, under one ETag.
    by_people = request.headers.get("user-agent", "").startswith(_READ_BY_PEOPLE)
    return by_people and request.target.startswith("/api")


def takes_gzip(request: Request) -> bool:
    """Whether the client accepts gzip."""
    accepted = request.headers.get("accept-encoding", "")
    return any(part.strip() == "gzip" for part in accepted.split(","))


async def compressed(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of `stream` in gzip."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)  # 16: gzip format
    async for piece in stream:
        if squeezed := await asyncio.to_thread(squeeze.compress, piece):
            yield squeezed
    yield squeeze.flush()


_INTERVALS_S = range(1, 61)
_EMPTY_LINE = chunk(b"\n")


def heartbeat_interval(request: Request, response: Response) -> int | None:
    """The interval in seconds that a watch requests, which the response then repeats; None: no heartbeats."""
    text = request.headers.get(HEARTBEAT, "")
    # An empty line means nothing between JSON documents only.
    if not is_watch(request.target) or not response.headers.get("content-type", "").startswith(JSON):
        return None
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) <= len("60") else 0
    if seconds not in _INTERVALS_S:
        return None
    response.headers[HEARTBEAT] = text
    return seconds


MAX_UNREAD = 64 * 1024 * 1024
"""Bytes that all connections together may buffer for clients that have stopped reading."""


class Unread:
    """The connections whose clients have stopped reading, and the buffered bytes of each.

    Above `limit` bytes the connection that has waited longest is closed, then the next. A slow client moves
    to the end of the order with each part it reads, so clients that read nothing are closed first. A single
    connection is never closed: one answer may exceed the limit.
    """

    def __init__(self, limit: int = MAX_UNREAD) -> None:
        self.limit = limit
        self.size = 0
        """Buffered bytes."""
        self.dropped = 0
        """Connections closed because of the limit."""
        self._waiting: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    @property
    def waiting(self) -> list[Hashable]:
        """The connections whose clients have stopped reading, longest wait first."""
        return list(self._waiting)

    def add(self, connection: Hashable, size: int, close: Callable[[], None]) -> None:
        """Record that the client of `connection` has stopped reading; `size` bytes are buffered for it."""
        self.remove(connection)
        self._waiting[connection] = size, close
        self.size += size
        while self.size > self.limit and len(self._waiting) > 1:
            oldest = next(iter(self._waiting))
            _, close_oldest = self._waiting[oldest]
            self.remove(oldest)
            self.dropped += 1
            close_oldest()

    def remove(self, connection: Hashable) -> None:
        """Record that the client of `connection` reads again, or has disconnected; idempotent."""
        size, _ = self._waiting.pop(connection, (0, None))
        self.size -= size


_log = logging.getLogger(__name__)

WRITE_S = 60.0
"""Seconds in which a client with a full write buffer must read some of it, and the last of it."""
PIECE = 256 * 1024
"""Bytes of an answer that are encrypted at a time; the next ones once the client has read most of these."""
_HIGH_WATER = 128 * 1024
"""Encrypted bytes that a connection may buffer before writing is paused."""


class ResponseWriter(asyncio.Protocol):
    """The sending side of a connection."""

    transport: asyncio.Transport

    def __init__(self, extra: ExtraFields, unread: Unread) -> None:
        self._extra = extra
        self._unread = unread
        self._sending = 0  # bytes of the answer or chunk being written
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None  # answers the present request
        self._is_last = False  # no request is answered after the present one
        self._has_begun = False
        self._is_pumping = False
        self._write_timer: asyncio.TimerHandle | None = None
        self._resumed: asyncio.Future[None] | None = None

    def limit_buffer(self) -> None:
        """Pause writing early, so that what the client has not read stays in the store."""
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)

    def pause_writing(self) -> None:
        """Start the client's deadline: it reads too slowly."""
        self._resumed = self._loop.create_future()
        self._write_timer = self._loop.call_later(WRITE_S, self._give_up, "did not read its answer")
        self._unread.add(self, _HIGH_WATER + self._sending, self._drop)

    def _drop(self) -> None:
        _log.info(
            "closed the connection from %s: clients that do not read their answers hold more than %d bytes"
            " together, and this one has not read for the longest time",
            self.transport.get_extra_info("peername"),
            self._unread.limit,
        )
        self.transport.abort()

    def resume_writing(self) -> None:
        """Clear the deadline: the client has read some."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._unread.remove(self)
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():  # the waiting task may have been cancelled
            resumed.set_result(None)

    def _give_up(self, why: str) -> None:
        _log.info("a client at %s %s in time", self.transport.get_extra_info("peername"), why)
        # Not `close`, which would wait for the buffered bytes.
        self.transport.abort()

    def cut(self) -> None:
        """End the current stream, if there is one."""
        if self._is_pumping and self._task is not None:
            self._is_pumping = False
            self._task.cancel()

    def _write(self, data: bytes | memoryview) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    async def _send(self, data: bytes) -> None:
        """Write an answer, or a chunk of one, at the client's pace."""
        self._sending = len(data)
        try:
            if len(data) <= PIECE:
                self._write(data)
                return
            view = memoryview(data)
            for start in range(0, len(data), PIECE):
                if self._resumed is not None:
                    await self._resumed
                self._write(view[start : start + PIECE])
        finally:
            self._sending = 0

    def _write_plain(self, code: int, text: bytes) -> None:
        """A plain-text error as the last answer; nothing where one has begun."""
        if not self._has_begun:
            fields = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(text))}
            fields |= {"date": self._extra.date(), "connection": "close"}
            self._write(head(Response(code, fields)) + text)

    async def _send_stream(self, request: Request, response: Response, stream: AsyncIterator[bytes]) -> None:
        """Send the head, then chunks until the stream ends, the client disconnects, or the server closes."""
        chunks = stream
        # A list is streamed because it is large; a watch must send each event immediately, uncompressed.
        is_live = is_watch(request.target) or response.headers.get("content-type") == EVENT_STREAM
        if takes_gzip(request) and not is_live:
            mark_as_gzip(response)
            chunks = compressed(stream)
        has_body = request.method != "HEAD"
        interval_s = heartbeat_interval(request, response)
        if has_body:
            response.headers["transfer-encoding"] = "chunked"
        self._has_begun = True
        async with AsyncExitStack() as ends:
            ends.push_async_callback(close_stream, stream)
            ends.push_async_callback(close_stream, chunks)
            # Every request gets an answer, also during shutdown.
            self._write(head(response))
            if isinstance(stream, PushStream):
                stream.push_into(self._push)
            if has_body and not (self._is_last or self.transport.is_closing()):
                if interval_s is not None:
                    beats = self._loop.create_task(self._beat(interval_s), name="heartbeats of a watch")
                    ends.callback(beats.cancel)
                await self._pump(chunks)
        # An orderly end, so that a connected client can ask again.
        if has_body:
            self._write(LAST_CHUNK)
        self._has_begun = False

    async def _pump(self, chunks: AsyncIterator[bytes]) -> None:
        self._is_pumping = True
        try:
            async for data in chunks:
                if data:
                    await self._send(chunk(data))
                if self._resumed is not None:
                    await self._resumed
        except asyncio.CancelledError:
            if self._is_pumping:  # it was not `cut`
                raise
        finally:
            self._is_pumping = False

    async def _beat(self, interval_s: int) -> None:
        """Write an empty line now and then: not within a chunk, and not to a client that has something to
        read."""
        while True:
            await asyncio.sleep(interval_s)
            if self._is_pumping and not self._sending and self._resumed is None:
                self._write(_EMPTY_LINE)

    def _push(self, data: bytes) -> bool:
        """Write a chunk of a stream that pushes its chunks (`kit.exchange.Write`)."""
        if self._resumed is not None or self.transport.is_closing() or len(data) > PIECE:
            return False
        self.transport.write(shared_chunk(data))
        return True
