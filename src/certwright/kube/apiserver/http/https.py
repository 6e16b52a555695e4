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

import msgspec
from msgspec.structs import replace

from certwright.kube.apiserver.http.connections import Connection, ConnectionLimits, Connections
from certwright.kube.apiserver.http.protocol import HttpProtocol, Open, Traffic
from certwright.kube.apiserver.http.response_writer import MAX_UNREAD, WRITE_S, Unread
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.http_messages import Handler

_log = logging.getLogger(__name__)

_PER_TURN = 8
"""Sockets accepted in one turn of the event loop, because a TLS handshake takes about a millisecond of it."""
_PAUSE_S = 0.1
"""Seconds until the next attempt after the system has refused to accept."""


class Tls(msgspec.Struct, frozen=True):
    """TLS settings: the context, and the seconds that a handshake and an orderly close may take."""

    context: ssl.SSLContext
    handshake_s: float
    shutdown_s: float


class Listener:
    """A listening socket. `make` returns the protocol of a new connection."""

    def __init__(
        self,
        bound: socket.socket,
        backlog: int,
        tls: Tls,
        connections: Connections,
        make: Callable[[Connection], asyncio.BaseProtocol],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = bound
        self._tls = tls
        self._connections = connections
        self._make = make
        self._handshakes: set[_Handshake] = set()
        self._retry: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(backlog)
        self._loop.add_reader(bound, self._accept)

    def use(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections."""
        self._tls = replace(self._tls, context=context)

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
                self._retry = self._loop.call_later(_PAUSE_S, self._resume)
                return
            self._admit(accepted, address[0])

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        handshake = _Handshake(self._loop, accepted)
        connection = self._connections.accept(address, handshake.cancel)
        if connection is None:
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._handshakes.add(handshake)
        handshake.start(self._tls, lambda: self._make(connection), lambda: self._ended(handshake, connection))

    def _ended(self, handshake: _Handshake, connection: Connection) -> None:
        self._handshakes.discard(handshake)
        if not handshake.has_succeeded:
            connection.release()


class _Handshake:
    """A TLS handshake on an accepted socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
        self._loop = loop
        self._accepted = accepted
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False  # then the socket belongs to a transport
        self.has_succeeded = False

    def start(self, tls: Tls, make: Callable[[], asyncio.BaseProtocol], ended: Callable[[], None]) -> None:
        """Start. `make`: the protocol; `ended` is called at the end, also after a failure."""
        self._task = self._loop.create_task(self._secure(tls, make))
        self._task.add_done_callback(lambda _: self._end(ended))

    def cancel(self) -> None:
        """Cancel it, and close the connection."""
        if self._task is not None:
            self._task.cancel()

    async def _secure(self, tls: Tls, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._has_begun = True
        try:
            await self._loop.connect_accepted_socket(
                make,
                self._accepted,
                ssl=tls.context,
                ssl_handshake_timeout=tls.handshake_s,
                ssl_shutdown_timeout=tls.shutdown_s,
            )
        except OSError as error:
            _log.debug("a TLS handshake failed: %s", error)
            return
        self.has_succeeded = True

    def _end(self, ended: Callable[[], None]) -> None:
        if not self._has_begun:
            self._accepted.close()
        ended()


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
