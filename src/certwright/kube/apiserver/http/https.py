"""HTTPS front end: a handler behind TLS.

The handler does not depend on this module, so that another front end can replace it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

from certwright.kube.apiserver.http.connections import ConnectionLimits, Connections
from certwright.kube.apiserver.http.listener import Listener, Tls
from certwright.kube.apiserver.http.protocol import HttpProtocol
from certwright.kube.apiserver.http.response_writer import WRITE_S
from certwright.kube.apiserver.http.traffic import Open, Traffic
from certwright.kube.apiserver.http.unread import MAX_UNREAD, Unread
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.http_messages import Handler

HANDSHAKE_S = 10.0
"""Time limit of the TLS handshake, in seconds."""
_BACKLOG = 2048


class HttpsFace:
    """A handler served over HTTPS."""

    def __init__(
        self,
        listener: Listener,
        traffic: Traffic,
        accepted: Connections,
        *,
        port: int,
    ) -> None:
        self.port = port
        self.accepted = accepted
        self._listener = listener
        self._traffic = traffic

    @property
    def connections(self) -> list[Open]:
        """The open connections."""
        return list(self._traffic.connections)

    @property
    def unread(self) -> Unread:
        """The answers that clients have not read yet, in bytes per connection."""
        return self._traffic.unread

    def reload(self, certfile: Path, keyfile: Path, client_ca_file: Path | None) -> None:
        """Use another certificate and other CAs of clients for new connections.

        Raises `OSError` and `ssl.SSLError`; nothing has changed then.
        """
        self._listener.use(_context(certfile, keyfile, client_ca_file))

    async def close(self, grace_s: float = 1.0) -> None:
        """Stop accepting requests, end all streams, give pending answers `grace_s`, then close."""
        self._traffic.is_closing = True
        self._listener.close()
        for connection in self.connections:
            connection.end()
        try:
            async with asyncio.timeout(grace_s):
                await self._traffic.wait_ended()
        except TimeoutError:
            for connection in self.connections:
                connection.abort()
            await self._traffic.wait_ended()


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket. Raises `OSError`: the address is in use, or not available."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def _context(certfile: Path, keyfile: Path, client_ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Of TLS 1.2 only what RFC 9325 §4.2 recommends: ephemeral keys and AEAD, no CBC.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certfile, keyfile)
    if client_ca_file is not None:
        context.load_verify_locations(client_ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def serve_https(
    handler: Handler,
    *,
    host: str,
    port: int,
    certfile: Path,
    keyfile: Path,
    client_ca_file: Path | None,
    is_fair: bool = True,
    max_unread: int = MAX_UNREAD,
    limits: ConnectionLimits | None = None,
    clock: Clock | None = None,
) -> HttpsFace:
    """Serve `handler` over TLS; port 0 picks a free one. `is_fair`: announce to clients that they need not
    limit their rate. `max_unread`: bytes that all connections may buffer for clients that do not read.
    `limits`: of connections. `clock`: for the field `Date`; the system's by default.

    Clients may present a certificate of `client_ca_file`'s CAs; one of another CA fails the handshake. Raises
    `OSError` when the address is not available or a file cannot be read, `ssl.SSLError` for an invalid file.
    """
    context = _context(certfile, keyfile, client_ca_file)
    traffic = Traffic(handler, clock or SystemClock(), is_fair=is_fair, max_unread=max_unread)
    bound = _bind(host, port)
    accepted = Connections(limits or ConnectionLimits())
    tls = Tls(context, handshake_s=HANDSHAKE_S, shutdown_s=WRITE_S)
    listener = Listener(bound, _BACKLOG, tls, accepted, lambda connection: HttpProtocol(traffic, connection))
    return HttpsFace(listener, traffic, accepted, port=bound.getsockname()[1])
