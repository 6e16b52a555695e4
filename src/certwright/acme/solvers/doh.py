"""DNS over HTTPS (RFC 8484): a recursive name server at an https URL.

Speaks HTTP/2, which is all that many such servers speak, or HTTP/1.1, as the server chooses; through the
proxy that the environment names. The server's certificate must be issued by a CA of the system. Redirects
are not followed. Needs the libraries of dnspython's extra (`certwright[doh]`); its own function would read
a response of any length.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cached_property
from typing import Final

import dns.exception
import dns.message
import dns.query

from certwright.acme.solvers.datagrams import LARGEST, parse_response
from certwright.kube.util.connections import proxy_for, tls_context
from certwright.kube.util.encoding import in_words, one_line

_TYPE: Final = "application/dns-message"
_HEADERS: Final = {"content-type": _TYPE, "accept": _TYPE, "accept-encoding": "identity"}
_CONNECTIONS: Final = 16
"""Queries of one server at a time; further ones wait."""
_CONNECT_SHARE: Final = 0.8
"""Of the time for a query: httpcore does not close a connection that is cancelled in its TLS handshake."""
_ID_BYTES: Final = 2
_TRUST_FIX: Final = "add its CA to those of the system, or name the server as its certificate does"


class DohFailed(Exception):
    """The server gave no DNS message. The text is a clause that quotes nothing of the server's."""


class DohServer:
    """A server of DNS over HTTPS at `url`, which the operator has named."""

    def __init__(self, url: str) -> None:
        self.url = url.strip()
        self._free = asyncio.Semaphore(_CONNECTIONS)

    def __str__(self) -> str:
        return self.url

    async def exchange(self, message: dns.message.Message, timeout_s: float) -> dns.message.Message:
        """The response to a query. Raises `DohFailed`, and `TimeoutError`."""
        wire = message.to_wire()
        # RFC 8484 §4.1: "a DoH client SHOULD use a DNS ID of 0".
        async with self._free, asyncio.timeout(timeout_s):
            body = await self._post(bytes(_ID_BYTES) + wire[_ID_BYTES:], timeout_s * _CONNECT_SHARE)
        try:
            return parse_response(message, wire[:_ID_BYTES] + body[_ID_BYTES:])
        except dns.query.BadResponse as error:
            raise DohFailed("it answered another query") from error
        except dns.exception.DNSException as error:
            raise DohFailed("it answered with something that is not a complete DNS message") from error

    async def _post(self, query: bytes, connect_s: float) -> bytes:
        import httpx2  # takes 0.1 s and 10 MB

        proxy = proxy_for(self.url) or None
        body, has_head = bytearray(), False
        try:
            # A connection for each query: a self-check sends few, and a kept one would have to be closed.
            async with (
                httpx2.AsyncClient(
                    http2=True,
                    verify=self._tls,
                    proxy=proxy,
                    trust_env=False,
                    timeout=httpx2.Timeout(None, connect=connect_s),
                ) as client,
                client.stream("POST", self.url, headers=_HEADERS, content=query) as response,
            ):
                has_head = True
                if response.status_code != 200:
                    raise DohFailed(f"it answered with HTTP status {response.status_code}")
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise DohFailed("it compresses its answer, which was not asked for")
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > LARGEST:
                        raise DohFailed(f"it answered with more than {LARGEST} bytes")
        except httpx2.TimeoutException as error:
            raise TimeoutError from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise DohFailed(_reason(error, has_head=has_head)) from error
        return bytes(body)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return tls_context()


def _reason(error: Exception, *, has_head: bool) -> str:
    import httpx2

    # The innermost error of the connection says what failed; the libraries put their own around it.
    cause: OSError | None = None
    step: BaseException | None = error if isinstance(error, httpx2.ConnectError | OSError) else None
    while step is not None:
        cause = step if isinstance(step, OSError) else cause
        step = step.__cause__ or step.__context__
    match cause:
        case ssl.SSLCertVerificationError():
            reason = cause.verify_message.rstrip(".")
            return f"its certificate is not trusted: {reason}; {_TRUST_FIX}"
        case ssl.SSLError():
            return f"no TLS connection: {one_line(str(cause))}"
        case OSError():
            return in_words(cause)
    match error:
        case httpx2.ProxyError():
            return f"the proxy on the way to it cannot be used: {one_line(str(error))}"
        case httpx2.RemoteProtocolError() | httpx2.ReadError() | httpx2.WriteError() if has_head:
            return "its answer ended before it was complete"
        # The library's sentence may quote what the server sent.
        case httpx2.RemoteProtocolError() | httpx2.ReadError() | httpx2.WriteError():
            return "it closed the connection without an answer, or does not speak HTTP"
        case _:
            return type(error).__name__
