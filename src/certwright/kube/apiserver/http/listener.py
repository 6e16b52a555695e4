"""Listener: accepts connections; the limits apply to each socket before anything is read from it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from certwright.kube.apiserver.http.connections import Connection, Connections

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
