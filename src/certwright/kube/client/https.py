"""HTTPS transport to an API server.

aiohttp would cost every command of the command line 0.2 s to load, see
docs/decisions/2026-11-27-api-client-on-h11.md.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs

import h11
import msgspec

from certwright.kube.api.errors import NoCredentials, Unreachable, Untrusted
from certwright.kube.client.dial import ProxyFailed, dial, endpoint, proxy_authorization
from certwright.kube.client.http1 import ClosedEarly, Connection, CutShort, NotHttp
from certwright.kube.client.login import Credential, Login, LoginFailed
from certwright.kube.util.connections import BadCredentials, proxy_for, tls_context
from certwright.kube.util.encoding import in_words, one_line
from certwright.kube.util.http_messages import HEARTBEAT, Response

CONNECT_S = 10
REQUEST_S = 30

# The client requests watches that end after eight minutes, with a bookmark every minute. A watch that is
# silent for longer is dead, even if a proxy keeps its connection open.
_WATCH_SILENCE_S = 600

# The interval of the empty lines that are requested in watches (`http_messages.HEARTBEAT`). If two are
# missing, the server stands still; or this process did, and then they are in its socket's buffer, and read
# within the second time.
HEARTBEAT_S = 2
_UNREAD_S = 0.5

# Every watch occupies a connection (HTTP/1.1).
_CONNECTIONS = 100

# An idle connection is used again for that long: shorter than servers and firewalls keep theirs.
_IDLE_S = 15.0

# RFC 9110 §9.2.2: these may be repeated when a kept connection turns out to be closed.
_IDEMPOTENT = frozenset((b"GET", b"HEAD", b"PUT", b"DELETE"))


class _Idle(msgspec.Struct, frozen=True):
    """A connection that waits for its next request, with its TLS settings and its last use."""

    connection: Connection
    tls: ssl.SSLContext
    since: float


class HttpsTransport:
    """Connection pool of at most `connections`; `server` may have a path prefix.

    `login` is called for every request, so that changing credentials are followed; a request that was
    answered with 401 is repeated once if the credential has changed by then. `certified` returns the TLS
    settings for a client certificate and its key (both PEM); `tls` are the settings without. The proxy is
    `proxy`, otherwise from the environment (HTTPS_PROXY, NO_PROXY), never for this machine itself. Redirects
    are not followed, because the credentials are for this server. A watch breaks when a server that sends
    heartbeats is silent for two of `heartbeat_s`; behind a load balancer the next request may then reach
    another server. Raises `ValueError` when `server` is no URL.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
        certified: Callable[[bytes, bytes], ssl.SSLContext] | None = None,
        server_name: str = "",
        proxy: str = "",
        connections: int = _CONNECTIONS,
        heartbeat_s: int = HEARTBEAT_S,
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._server = server.rstrip("/")
        self._endpoint = endpoint(self._server)
        self._tls = tls or tls_context()
        self._login = login
        self._certified = certified
        self._shown: tuple[bytes, bytes] = (b"", b"")
        self._server_name = server_name
        self._proxy = proxy or proxy_for(self._server)
        self._room = asyncio.Semaphore(connections)
        self._idle: deque[_Idle] = deque()
        self.leases: set[_Lease] = set()
        self._closed = False

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The server's response; that to a watch as a stream. Raises `Unreachable`."""
        return await self.request_if(_no_check, method, target, headers=headers, body=body)

    async def request_if(
        self,
        check: Callable[[], None],
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> Response:
        if self._closed:
            raise Unreachable(f"the connection to {self._server} has been closed")
        if self._login is None:
            return await self._exchange(check, method, target, headers, body)
        for _ in range(2):
            credential = await self._credential(self._login)
            token = {"authorization": f"Bearer {credential.token}"} if credential.token else {}
            response = await self._exchange(check, method, target, {**headers, **token}, body)
            if response.status != 401:
                break
            try:
                if not self._login.refused(credential):
                    break
            except LoginFailed:
                break
        return response

    async def _exchange(
        self, check: Callable[[], None], method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        query = target.partition("?")[2]
        is_watch = "watch=" in query and parse_qs(query).get("watch", [""])[0] in ("true", "1")
        if is_watch:
            headers = {**headers, HEARTBEAT: str(self._heartbeat_s)}
        request = self._message(method, target, headers, body)
        with _unreachable(self._server):
            async with asyncio.timeout(_WATCH_SILENCE_S if is_watch else REQUEST_S):
                await self._room.acquire()
                lease, streams = _Lease(self), False
                try:
                    status, fields = await self._send(lease, check, request, body)
                    if is_watch and status == 200:
                        streams = True
                        beat_s = self._heartbeat_s if HEARTBEAT in fields else None
                        return Response(200, fields, stream=_Stream(lease, self._server, beat_s))
                    return Response(status, fields, await lease.connection.read_all())
                finally:
                    if not streams:
                        lease.end()

    async def _send(
        self, lease: _Lease, check: Callable[[], None], request: h11.Request, body: bytes
    ) -> tuple[int, dict[str, str]]:
        """Send the request on a kept connection, or on a new one, if `check` raises nothing."""
        kept = self._kept()
        if kept is not None:
            lease.take(kept, self._tls)
            check()
            try:
                return await kept.response(request, body)
            except ClosedEarly:
                # The server closed the connection while idle.
                if request.method not in _IDEMPOTENT:
                    raise
        tls = self._tls
        async with asyncio.timeout(CONNECT_S):
            connection = await dial(self._endpoint, tls=tls, server_name=self._server_name, proxy=self._proxy)
        lease.take(connection, tls)
        check()
        return await connection.response(request, body)

    def _kept(self) -> Connection | None:
        """The connection that was used last, if one is open; drops connections of former TLS settings."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            idle = self._idle.pop()
            if idle.connection.is_reusable and idle.tls is self._tls and now - idle.since < _IDLE_S:
                return idle.connection
            idle.connection.abort()
        return None

    def release(self) -> None:
        """Make room for another connection."""
        self._room.release()

    def keep(self, connection: Connection, tls: ssl.SSLContext) -> None:
        """Take a connection back, for the next request if it can be used again."""
        now = asyncio.get_running_loop().time()
        while self._idle and now - self._idle[0].since >= _IDLE_S:
            self._idle.popleft().connection.abort()
        if connection.is_reusable and not self._closed:
            self._idle.append(_Idle(connection, tls, now))
        else:
            connection.abort()

    def drop_idle(self) -> None:
        """Close the idle connections: they may lead to a server that stands still."""
        while self._idle:
            self._idle.pop().connection.abort()

    def _message(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> h11.Request:
        """The request without its body. Raises `ValueError` for a line break in a header or the target."""
        path = f"{self._endpoint.path}{target}"
        fields = {"host": self._endpoint.authority, "accept-encoding": "gzip", **headers}
        if body or method not in ("GET", "HEAD", "DELETE"):
            fields["content-length"] = str(len(body))
        if self._proxy and not self._endpoint.secure:
            path = f"http://{self._endpoint.authority}{path}"
            fields |= proxy_authorization(endpoint(self._proxy))
        try:
            return h11.Request(method=method, target=path, headers=list(fields.items()))
        except (h11.LocalProtocolError, UnicodeEncodeError):
            # h11 quotes the header, which may be a token.
            sentence = "a header or the target of a request contains a line break, space or illegal character"
            raise ValueError(sentence) from None

    async def _credential(self, login: Login) -> Credential:
        try:
            credential = await login.credential()
            pair = credential.cert_pem, credential.key_pem
            if pair != self._shown and credential.cert_pem and self._certified is not None:
                # Connections are kept per TLS context: new ones use the new certificate.
                self._tls = self._certified(*pair)
                self._shown = pair
        except (LoginFailed, BadCredentials) as error:
            raise NoCredentials(f"no credentials for {self._server}: {error}") from None
        if not (credential.token.isascii() and credential.token.isprintable()):
            reason = "the token contains a line break, or a character that no token has"
            raise NoCredentials(f"no credentials for {self._server}: {reason}")
        return credential

    async def close(self) -> None:
        """Close all connections, also those of watches."""
        self._closed = True
        for lease in tuple(self.leases):
            lease.end()
        self.drop_idle()
        # The event loop closes aborted sockets in its next turn.
        await asyncio.sleep(0)


class _Lease:
    """A slot of the pool, and the connection in it."""

    def __init__(self, transport: HttpsTransport) -> None:
        self._transport = transport
        self._connection: Connection | None = None
        self._tls: ssl.SSLContext | None = None
        transport.leases.add(self)

    @property
    def connection(self) -> Connection:
        """The connection. There must be one."""
        assert self._connection is not None
        return self._connection

    def take(self, connection: Connection, tls: ssl.SSLContext) -> None:
        """Occupy the place with a connection, and close the one before."""
        if self._connection is not None:
            self._connection.abort()
        self._connection, self._tls = connection, tls

    def silent(self) -> None:
        """Record that the server has stopped sending its response."""
        self._transport.drop_idle()

    def end(self) -> None:
        """Give the place and the connection back, once."""
        if self not in self._transport.leases:
            return
        self._transport.leases.discard(self)
        self._transport.release()
        if self._connection is not None and self._tls is not None:
            self._transport.keep(self._connection, self._tls)


class _Stream:
    """The body of a watch. A class, because a generator that was never started would not close the
    response. `beat_s`: the interval of the server's heartbeats; None: it sends none."""

    def __init__(self, lease: _Lease, server: str, beat_s: int | None) -> None:
        self._lease = lease
        self._server = server
        self._beat_s = beat_s

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with _unreachable(self._server):
            chunk = await self._read()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def _read(self) -> bytes:
        if self._beat_s is None:
            async with asyncio.timeout(_WATCH_SILENCE_S):
                return await self._lease.connection.read()
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * self._beat_s):
                return await self._lease.connection.read()
        try:
            async with asyncio.timeout(_UNREAD_S):
                return await self._lease.connection.read()
        except TimeoutError:
            self._lease.silent()
            raise

    async def aclose(self) -> None:
        self._lease.end()


def _no_check() -> None:
    """The check of an unconditional request."""


@contextmanager
def _unreachable(server: str) -> Iterator[None]:
    """Translate every exception of a connection to `Unreachable`, without a word of what the server sent."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable(f"{server} did not answer in time") from error
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message or one_line(str(error))
        sentence = f"the certificate of {server} is not trusted: {reason}"
        raise Untrusted(sentence, error.verify_code) from error
    except OSError as error:
        raise Unreachable(_sentence(server, error)) from error


def _sentence(server: str, error: OSError) -> str:
    match error:
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return f"what answered at {server} does not speak TLS"
        case ssl.SSLError():
            return f"no TLS connection to {server}: {one_line(str(error))}"
        case socket.gaierror():
            return f"the name of {server} cannot be resolved: {in_words(error)}"
        case ProxyFailed():
            return f"the proxy on the way to {server} cannot be used: {one_line(str(error))}"
        case ConnectionRefusedError():
            return f"connection refused by {server}"
        case ClosedEarly() | ConnectionResetError():
            return f"{server} closed the connection without an answer"
        case CutShort():
            return f"the answer of {server} ended before it was complete"
        case NotHttp():
            return f"what answered at {server} does not speak HTTP"
        case _:
            return f"{server} cannot be reached: {in_words(error)}"
