"""Connections to a server: addresses, proxies, TLS."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import h11
import msgspec
from aiohappyeyeballs import AddrInfoType, start_connection

from certwright.kube.client.http1 import Connection

# RFC 8305 §5: the recommended delay before the next address is tried as well.
_HEAD_START_S = 0.25
_DEFAULT_PORTS = {"http": 80, "https": 443}


class ProxyFailed(ConnectionError):
    """The proxy cannot be reached, or does not let the connection through; the text is the reason."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a URL leads to. `authority` is the value of a Host header, `path` the path without a final slash,
    `credentials` those of a proxy (`user:password`)."""

    secure: bool
    host: str
    port: int
    authority: str
    path: str
    credentials: str = ""


def endpoint(url: str) -> Endpoint:
    """The endpoint of an http or https URL. Raises `ValueError`."""
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"{url} is not the address of a server")
    port = parts.port if parts.port is not None else _DEFAULT_PORTS[parts.scheme]
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    authority = parts.netloc.rpartition("@")[2]
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode()
        authority = f"{host}:{port}"
    return Endpoint(parts.scheme == "https", host, port, authority, parts.path.rstrip("/"), credentials)


async def dial(
    server: Endpoint,
    *,
    tls: ssl.SSLContext,
    server_name: str = "",
    proxy: str = "",
    connection: Connection | None = None,
) -> Connection:
    """A connection to the server, through the proxy if there is one; `connection`, if given, is used.
    `server_name`: the name in the server's certificate, if it is not the host. Raises `OSError`,
    `ssl.SSLError` and `ProxyFailed`."""
    connection = connection or Connection()
    if proxy:
        return await _through(endpoint(proxy), server, tls, server_name, connection)
    return await _open(server, tls, server_name, connection)


async def _open(
    server: Endpoint, tls: ssl.SSLContext, server_name: str, connection: Connection
) -> Connection:
    # The first address that answers (RFC 8305).
    sock = await start_connection(
        await _addresses(server.host, server.port),
        happy_eyeballs_delay=_HEAD_START_S,
        socket_factory=lambda address: keepalive_socket(address[0]),
    )
    name = server_name or server.host
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: connection,
            sock=sock,
            ssl=tls if server.secure else None,
            server_hostname=name if server.secure else None,
        )
    except BaseException:
        # If the handshake completes during a cancellation, uvloop does not notify its TLS layer of the closed
        # socket, and the layer reports its next write as a fatal error (`kit/event_loop.py`).
        connection.abort()
        sock.close()
        raise
    return connection


async def _through(
    proxy: Endpoint, server: Endpoint, tls: ssl.SSLContext, server_name: str, inner: Connection
) -> Connection:
    """A connection to the server through the proxy: a tunnel (RFC 9110 §9.3.6), or for plain HTTP the
    connection to the proxy itself."""
    try:
        context = ssl.create_default_context() if proxy.secure else tls
        outer = await _open(proxy, context, "", Connection() if server.secure else inner)
    except OSError as error:
        raise ProxyFailed(error.strerror or type(error).__name__) from error
    if not server.secure:
        return outer
    try:
        place = f"{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"
        headers = {"host": place} | proxy_authorization(proxy)
        status, _ = await outer.response(
            h11.Request(method="CONNECT", target=place, headers=list(headers.items()))
        )
        if status != 200:
            raise ProxyFailed(f"it answered CONNECT with status {status}")
        transport = await asyncio.get_running_loop().start_tls(
            outer.transport, inner, tls, server_hostname=server_name or server.host
        )
    except BaseException:
        outer.abort()
        raise
    assert transport is not None
    inner.connection_made(transport)
    return inner


def proxy_authorization(proxy: Endpoint) -> dict[str, str]:
    """The header with the credentials in the proxy's URL, if it has any."""
    if not proxy.credentials:
        return {}
    return {"proxy-authorization": f"Basic {base64.b64encode(proxy.credentials.encode()).decode()}"}


async def _addresses(host: str, port: int) -> Sequence[AddrInfoType]:
    """The addresses of the host. Raises `OSError`."""
    try:
        # An address needs no resolver, and so no thread.
        return socket.getaddrinfo(
            host.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def keepalive_socket(family: int) -> socket.socket:
    """A TCP socket with keepalive, which notices within a minute that the other machine is gone, also when
    idle."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
