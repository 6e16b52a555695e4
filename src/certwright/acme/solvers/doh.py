"""DNS over HTTPS (RFC 8484): a recursive name server at an https URL.

Each query has a connection of its own: HTTP/2, which is all that many such servers speak, or HTTP/1.1, as the
server chooses; through the proxy that the environment names. The server's certificate must be issued by a CA
of the system. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, cast
from urllib.parse import urlsplit

import dns.exception
import dns.message
import dns.query
import h11

from certwright.acme.solvers.datagrams import LARGEST, parse_response
from certwright.kit.http2_post import ALPN, Http2Error, Post
from certwright.kube.client.dial import ProxyFailed, dial, endpoint
from certwright.kube.client.http1 import ClosedEarly, Connection, CutShort, NotHttp
from certwright.kube.util.connections import proxy_for, tls_context
from certwright.kube.util.encoding import in_words, one_line

_TYPE: Final = "application/dns-message"
_HEADERS: Final = (("content-type", _TYPE), ("accept", _TYPE))
_CONNECTIONS: Final = 16
"""Queries of one server at a time; further ones wait."""
_ID_BYTES: Final = 2
_TRUST_FIX: Final = "add its CA to those of the system, or name the server as its certificate does"


class DohFailed(Exception):
    """The server gave no DNS message. The text is a clause that quotes nothing of the server's."""


class DohServer:
    """The server at `url`, which the operator has named. Raises `ValueError` for a malformed URL."""

    def __init__(self, url: str) -> None:
        self.url = url.strip()
        self._endpoint = endpoint(self.url)
        parts = urlsplit(self.url)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._proxy: str | None = None
        self._tls: ssl.SSLContext | None = None
        self._free = asyncio.Semaphore(_CONNECTIONS)

    def __str__(self) -> str:
        return self.url

    async def exchange(self, message: dns.message.Message, timeout_s: float) -> dns.message.Message:
        """The response to a query. Raises `DohFailed`, and `TimeoutError`."""
        wire = message.to_wire()
        # RFC 8484 §4.1: "a DoH client SHOULD use a DNS ID of 0".
        async with self._free, asyncio.timeout(timeout_s):
            body = await self._body(bytes(_ID_BYTES) + wire[_ID_BYTES:])
        try:
            return parse_response(message, wire[:_ID_BYTES] + body[_ID_BYTES:])
        except dns.query.BadResponse as error:
            raise DohFailed("it answered another query") from error
        except dns.exception.DNSException as error:
            raise DohFailed("it answered with something that is not a complete DNS message") from error

    async def _body(self, query: bytes) -> bytes:
        line = _Line()
        try:
            if self._proxy is None:
                self._proxy = proxy_for(self.url)
            await dial(self._endpoint, tls=self._context(), proxy=self._proxy, connection=line)
            status, body = await self._post(line, query)
        except (OSError, Http2Error, ValueError, h11.LocalProtocolError) as error:
            raise DohFailed(_reason(error)) from error
        finally:
            line.abort()
        if status != 200:
            raise DohFailed(f"it answered with HTTP status {status or 'other than 200'}")
        return body

    async def _post(self, line: _Line, query: bytes) -> tuple[int, bytes]:
        authority, target = self._endpoint.authority, self._target
        if line.transport.get_extra_info("ssl_object").selected_alpn_protocol() == ALPN:
            exchange = _Exchange(Post(authority, target, _HEADERS, query, most=LARGEST))
            line.pass_to(exchange)
            return await exchange.response
        connection = Connection()
        line.pass_to(connection)
        fields = [("host", authority), ("content-length", str(len(query))), *_HEADERS]
        request = h11.Request(method="POST", target=target, headers=fields)
        status, headers = await connection.response(request, query)
        if headers.get("content-encoding", "identity") != "identity":
            raise DohFailed("it compresses its answer, which was not asked for")
        body = bytearray()
        while part := await connection.read():
            body += part
            if len(body) > LARGEST:
                raise DohFailed(f"it answered with more than {LARGEST} bytes")
        return status, bytes(body)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = tls_context()
            self._tls.set_alpn_protocols([ALPN, "http/1.1"])
        return self._tls


class _Line(Connection):
    """A new connection: keeps what arrives until it is known which protocol the server has chosen, because a
    server of HTTP/2 may speak first."""

    def __init__(self) -> None:
        super().__init__()
        self._early = bytearray()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._early += data

    def pass_to(self, protocol: asyncio.Protocol) -> None:
        """Leave the connection to `protocol`."""
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if self._early:
            protocol.data_received(bytes(self._early))
        if self._is_lost:
            protocol.connection_lost(None)


class _Exchange(asyncio.Protocol):
    """Performs a `Post`. `response` is its status and body."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._transport: asyncio.Transport | None = None
        self.response: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio's
        self._transport.write(self._post.request)

    def data_received(self, data: bytes) -> None:
        """Continue the exchange."""
        if self.response.done() or self._transport is None:
            return
        try:
            self._transport.write(self._post.receive(data))
        except Http2Error as error:
            self.response.set_exception(error)
            return
        if self._post.is_complete:
            self.response.set_result((self._post.status, bytes(self._post.body)))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange."""
        if not self.response.done():
            self.response.set_exception(exc if isinstance(exc, OSError) else ClosedEarly())


def _reason(error: Exception) -> str:
    match error:
        case Http2Error():
            return str(error)
        case ssl.SSLCertVerificationError():
            reason = error.verify_message.rstrip(".")
            return f"its certificate is not trusted: {reason}; {_TRUST_FIX}"
        case ssl.SSLError():
            return f"no TLS connection: {one_line(str(error))}"
        case ProxyFailed():
            return f"the proxy on the way to it cannot be used: {one_line(str(error))}"
        case ClosedEarly() | ConnectionResetError():
            return "it closed the connection without an answer"
        case CutShort():
            return "its answer ended before it was complete"
        case NotHttp():
            return "it does not speak HTTP"
        case OSError():
            return in_words(error)
        case _:
            return type(error).__name__
