"""HTTPS front end: accepts connections within the limits, and serves a handler behind TLS.

The limits apply to each socket before anything is read from it. The handler does not depend on this module,
so that another front end can replace it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from certwright.kube.apiserver.http.connections import Connection, ConnectionLimits, Connections
from certwright.kube.apiserver.http.protocol import HttpProtocol, Traffic
from certwright.kube.apiserver.http.response_writer import MAX_UNREAD, WRITE_S, Unread
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.http_messages import Handler

_log = logging.getLogger(__name__)

_PER_TURN = 8
"""Sockets accepted in one turn of the event loop, because a TLS handshake takes about a millisecond of it."""
_BACKLOG = 2048
HANDSHAKE_S = 10.0
"""Time limit of the TLS handshake, in seconds."""
_PAUSE_S = 0.1
"""Seconds until the next attempt after the system has refused to accept."""


class Listener:
    """A listening socket. `make` returns the protocol of a new connection."""

    def __init__(
        self,
        bound: socket.socket,
        context: ssl.SSLContext,
        connections: Connections,
        make: Callable[[Connection], asyncio.BaseProtocol],
    ) -> None:
        self.context = context
        """The TLS context of new connections."""
        self._loop = asyncio.get_running_loop()
        self._socket = bound
        self._connections = connections
        self._make = make
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(_BACKLOG)
        self._loop.add_reader(bound, self._accept)

    def close(self) -> None:
        """Stop accepting, and cancel pending handshakes; idempotent."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
        for handshake in self._handshakes:
            handshake.cancel()

    def _accept(self) -> None:
        for _ in range(_PER_TURN):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No file descriptors or no memory: the socket stays readable, so each turn would try again.
                _log.warning("cannot accept connections: %s; trying again", error)
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(
                    _PAUSE_S, self._loop.add_reader, self._socket, self._accept
                )
                return
            self._secure(accepted, address[0])

    def _secure(self, accepted: socket.socket, address: str) -> None:
        """Count a connection, and start its TLS handshake; or close it, where there are too many."""

        def close() -> None:
            handshake.cancel()

        connection = self._connections.accept(address, close)
        if connection is None:
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        has_begun = has_succeeded = False

        async def shake_hands() -> None:
            nonlocal has_begun, has_succeeded
            has_begun = True
            try:
                await self._loop.connect_accepted_socket(
                    lambda: self._make(connection),
                    accepted,
                    ssl=self.context,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=WRITE_S,
                )
            except OSError as error:
                _log.debug("a TLS handshake failed: %s", error)
                return
            has_succeeded = True

        def end(handshake: asyncio.Task[None]) -> None:
            self._handshakes.discard(handshake)
            if not has_begun:
                accepted.close()  # otherwise the socket belongs to a transport
            if not has_succeeded:
                connection.release()

        handshake = self._loop.create_task(shake_hands())
        handshake.add_done_callback(end)
        self._handshakes.add(handshake)


class HttpsServer:
    """An HTTPS server of a handler."""

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
    def connections(self) -> list[HttpProtocol]:
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
        self._listener.context = _context(certfile, keyfile, client_ca_file)

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
    certfile: Path | None = None,
    keyfile: Path | None = None,
    client_ca_file: Path | None = None,
    context: ssl.SSLContext | None = None,
    is_fair: bool = True,
    max_unread: int = MAX_UNREAD,
    limits: ConnectionLimits | None = None,
    clock: Clock | None = None,
) -> HttpsServer:
    """Serve `handler` over TLS, with the certificate of the files or with `context`; port 0 picks a free one.
    `is_fair`: announce to clients that they need not limit their rate. `max_unread`: bytes that all
    connections may buffer for clients that do not read. `limits`: of connections. `clock`: for the field
    `Date`; the system's by default.

    Clients may present a certificate of `client_ca_file`'s CAs; one of another CA fails the handshake. Raises
    `OSError` when the address is not available or a file cannot be read, `ssl.SSLError` for an invalid file.
    """
    if context is None:
        assert certfile is not None
        assert keyfile is not None
        context = _context(certfile, keyfile, client_ca_file)
    traffic = Traffic(handler, clock or SystemClock(), is_fair=is_fair, max_unread=max_unread)
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
    accepted = Connections(limits or ConnectionLimits())
    listener = Listener(bound, context, accepted, lambda connection: HttpProtocol(traffic, connection))
    return HttpsServer(listener, traffic, accepted, port=bound.getsockname()[1])
