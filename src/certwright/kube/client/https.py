"""HTTPS transport to an API server.

Import this module only if such a server is used: aiohttp costs 25 MB and a fifth of a second.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs

import aiohttp
import yarl

from certwright.kube.api.errors import Unreachable, Untrusted
from certwright.kube.client.login import Credential, Login, LoginFailed
from certwright.kube.util.connection_errors import unreachable
from certwright.kube.util.http_messages import Response
from certwright.kube.util.proxies import proxy_for
from certwright.kube.util.tls import BadCredentials

CONNECT_S = 10
REQUEST_S = 30

# The client requests watches that end after eight minutes, with a bookmark every minute. One that is silent
# for longer than that is dead, even if a proxy keeps its connection open.
_WATCH_SILENCE_S = 600

# Every watch occupies a connection (HTTP/1.1).
_CONNECTIONS = 100

_REQUEST = aiohttp.ClientTimeout(total=REQUEST_S, sock_connect=CONNECT_S)
_WATCH = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=_WATCH_SILENCE_S)


class HttpsTransport:
    """Connection pool of at most `connections`; `server` may have a path prefix.

    `login` is called for every request, so that changing credentials are followed; a request that was
    answered with 401 is repeated once if there is another credential by then. `certified` returns the TLS
    settings for a client certificate and its key (both PEM), `tls` those without. A proxy is taken from
    `proxy`, otherwise from the environment (HTTPS_PROXY, NO_PROXY), never for this machine itself. Redirects
    are not followed, because the credentials are for this server. Raises `ValueError` when `server` is no
    URL.
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
    ) -> None:
        self._server = server.rstrip("/")
        self._tls = tls if tls is not None else True
        self._login = login
        self._certified = certified
        self._shown: tuple[bytes, bytes] = (b"", b"")
        self._server_name = server_name or None
        self._proxy = proxy or proxy_for(self._server)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The server's response; that to a watch as a stream. Raises `Unreachable`."""
        if self._closed:
            raise Unreachable(f"the connection to {self._server} has been closed")
        if self._login is None:
            return await self._exchange(method, target, headers, body)
        for _ in range(2):
            credential = await self._credential(self._login)
            response = await self._exchange(method, target, _with_token(headers, credential), body)
            if response.status != 401 or not self._login_again(self._login, credential):
                break
        return response

    async def _exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        watch = _is_watch(target)
        with _unreachable(self._server):
            answer = await self._open_session().request(
                method,
                yarl.URL(self._server + target, encoded=True),
                data=body or None,
                headers=headers,
                timeout=_WATCH if watch else _REQUEST,
                ssl=self._tls,
                server_hostname=self._server_name,
                proxy=self._proxy or None,
                allow_redirects=False,
            )
            if watch and answer.status == 200:
                return Response(200, _headers(answer), stream=_Stream(answer, self._server))
            async with answer:
                return Response(answer.status, _headers(answer), await answer.read())

    async def _credential(self, login: Login) -> Credential:
        try:
            credential = await login.credential()
            pair = credential.cert_pem, credential.key_pem
            if pair != self._shown and credential.cert_pem and self._certified is not None:
                # Connections are kept per TLS context: new ones use the new certificate, and old ones end
                # when they have been idle for a while.
                self._tls = self._certified(*pair)
                self._shown = pair
        except (LoginFailed, BadCredentials) as error:
            raise Unreachable(f"no credentials for {self._server}: {error}") from None
        return credential

    def _login_again(self, login: Login, credential: Credential) -> bool:
        try:
            return login.refused(credential)
        except LoginFailed:
            return False

    def _open_session(self) -> aiohttp.ClientSession:
        # Not in __init__, because a session belongs to the loop on which it was made.
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections, socket_factory=_keepalive_socket)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
            )
        return self._session

    async def close(self) -> None:
        """Close all connections, also those of watches."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Stream:
    """The body of a watch. A class, because a generator that was never started would not close the
    response."""

    def __init__(self, answer: aiohttp.ClientResponse, server: str) -> None:
        self._answer = answer
        self._server = server

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with _unreachable(self._server):
            chunk = await self._answer.content.readany()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        # A graceful TLS shutdown would outlive the session and leave its socket open when the loop ends; an
        # abandoned watch has nothing left to send.
        connection = self._answer.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._answer.close()


def _with_token(headers: Mapping[str, str], credential: Credential) -> Mapping[str, str]:
    return {**headers, "authorization": f"Bearer {credential.token}"} if credential.token else headers


def _is_watch(target: str) -> bool:
    query = target.partition("?")[2]
    return "watch=" in query and parse_qs(query).get("watch", [""])[0] in ("true", "1")


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in answer.headers.items():
        lower = name.lower()
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return headers


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket with keepalive, which notices within a minute that the other machine is gone, also when
    idle."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


@contextmanager
def _unreachable(server: str) -> Iterator[None]:
    """Translate every exception of aiohttp, ssl or socket to `Unreachable`."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable(f"{server} did not answer in time") from error
    except aiohttp.ClientConnectorCertificateError as error:
        reason = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        raise Untrusted(f"the certificate of {server} is not trusted: {reason}") from error
    except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
        raise Unreachable(_sentence(server, error)) from error


def _sentence(server: str, error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, ConnectionRefusedError):
            return f"connection refused by {server}"
        case aiohttp.InvalidURL():
            return f"{server} is not the address of a server"
        case _:
            return unreachable(error, server)
