"""One connection of the HTTP face: what a client may send, and how long it may take.

uvicorn's protocol has no bounds of its own on headers, on the time that a body takes, and on a client that
does not read its answer; nor does it take methods that its parser does not know.

Source: RFC 9112; uvicorn `protocols/http/httptools_impl`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log = logging.getLogger(__name__)

MAX_HEADERS = 64 * 1024
"""Bytes of the request line and all header fields together."""
KEEP_ALIVE_S = 120
"""Seconds that a connection may lie idle."""
HANDSHAKE_S = 10.0
"""Seconds in which the TLS handshake must be done."""
HEADER_S = 30.0
"""Seconds in which the request line and the header fields must have come."""
BODY_S = 60.0
"""Seconds in which the whole request must have come."""
WRITE_S = 60.0
"""Seconds in which a client that has let its answer pile up must read some of it, and the last of it."""
MAX_CONNECTIONS = 4096
"""Connections at a time; fewer where the process may open fewer files."""
_OTHER_FILES = 128
"""Files that are not connections of clients: the store's, its log, those to CAs."""
CERTIFICATE = "client_cert"
"""Where a request's ASGI state holds the client's certificate (DER, or None)."""
CONNECTION = "connection"
"""Where it holds its `HttpProtocol`."""


class _HeadersTooLarge(Exception):
    """More than `MAX_HEADERS`. httptools turns it into a parser error, which is answered with 400."""


_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}(?= )")
_METHODS = frozenset(
    (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT")
)
_STAND_IN = b"REPORT"
"""A method that the parser knows, and that means nothing to it."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which also hands over the client's certificate, has deadlines, limits the header,
    and takes any method: that nobody has it is for the handler to say.

    `is_too_many`: there were as many connections as may be when this one came.
    """

    is_too_many = False
    _header_size = 0
    _request_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _between = True
    _in_body = False
    _foreign_method = ""

    def data_received(self, data: bytes) -> None:
        """Read on; a method that the parser does not know goes past it."""
        if self._between and (found := _METHOD.match(data)) is not None and found[0] not in _METHODS:
            self._foreign_method = found[0].decode()
            data = _STAND_IN + data[found.end() :]
        was_idle, before = self.timeout_keep_alive_task is not None, self.cycle
        super().data_received(data)
        if was_idle and self._between and self.cycle is before:
            # Empty lines before a request (RFC 9112 §2.2): they end the wait for one, and begin none.
            self._expect_request()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the certificate, once for the connection."""
        super().connection_made(cast(asyncio.Transport, transport))
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        # Every request of the connection gets a copy of this.
        self.app_state = {**self.app_state, CERTIFICATE: certificate, CONNECTION: self}
        self.is_too_many = len(self.connections) > _most_connections()
        self._expect_request()

    def on_message_begin(self) -> None:
        """Begin to count, and to wait."""
        self._between = False
        self._header_size = 0
        self._expect_request()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a field."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request is whole but for its body."""
        self._in_body = True
        super().on_headers_complete()
        if self._foreign_method:
            # The request is going to be answered with this scope, but not before we return.
            self.scope["method"], self._foreign_method = self._foreign_method, ""

    def on_message_complete(self) -> None:
        """What comes next begins another request."""
        self._between, self._in_body = True, False
        self._stop_waiting()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not keep up with its answer."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_S, self._give_up, "did not read its answer")

    def resume_writing(self) -> None:
        """It has read some."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        """Who connects, or begins a request, must come to the point."""
        self._stop_waiting()
        self._request_timer = self.loop.call_later(HEADER_S, self._is_late)

    def _is_late(self) -> None:
        """The header must have come by now, and the body soon."""
        self._request_timer = None
        if self._in_body:
            self._in_body = False
            self._request_timer = self.loop.call_later(BODY_S - HEADER_S, self._is_late)
        else:
            self._give_up("did not send its request")

    def _give_up(self, why: str) -> None:
        _log.info("a client at %s %s in time", self.client, why)
        # Not `close`, which would wait for what is to be written.
        self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _count(self, size: int) -> None:
        self._header_size += size
        if self._header_size > MAX_HEADERS:
            raise _HeadersTooLarge


def _most_connections() -> int:
    """As many as may be open. Asked anew, for a limit of the process may be changed from outside."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, files - _OTHER_FILES))
