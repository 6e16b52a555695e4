"""One gRPC call with one request and a stream of responses, on an HTTP/2 connection of its own.

etcd sends a message for each transaction, and each costs 160 µs of processor time in `grpc.aio`, which polls
in a thread of its own; here it costs 40 µs. That is what following the store costs a server that nobody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from certwright.kube.store.etcd.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    FrameConnection,
    Headers,
    Peer,
    frame,
    message_end,
    message_in,
    with_head,
)

_STREAM = 1
_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `peer`: the method's path, further headers, and the request's bytes."""

    peer: Peer
    path: str
    headers: Headers
    request: bytes


@asynccontextmanager
async def responses(call: Call) -> AsyncGenerator[AsyncGenerator[list[bytes], None], None]:
    """The bytes of the responses, in batches of those that are there, until the server ends the stream.
    Raises `StreamBroken`, `OSError` (`ssl.SSLError` among them) and `TimeoutError`."""
    loop, peer = asyncio.get_running_loop(), call.peer
    async with asyncio.timeout(_CONNECT_S):
        transport, stream = await loop.create_connection(
            lambda: _Stream(call), peer.host, peer.port, ssl=peer.tls, server_hostname=peer.server_name
        )
    try:
        yield stream.messages()
    finally:
        transport.abort()


class _Stream(FrameConnection):
    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._data = bytearray()
        self._messages = list[bytes]()
        self._wake: asyncio.Future[None] | None = None

    async def messages(self) -> AsyncGenerator[list[bytes], None]:
        """The messages, in order. While the caller is busy with some, further ones are left to the system."""
        while True:
            while self._messages:
                messages, self._messages = self._messages, []
                yield messages
            if isinstance(self.ended, Exception):
                raise self.ended
            if self.ended:
                return
            self._wake = asyncio.get_running_loop().create_future()
            self.resume_reading()
            await self._wake
            self._wake = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        super().connection_made(transport)
        call = self._call
        block = call.peer.header_block(call.path, call.headers)
        self.send(
            frame(HEADERS, END_HEADERS, _STREAM, block), frame(DATA, 0, _STREAM, with_head(call.request))
        )

    def handled(self) -> None:
        """Wake the reader, if there is something for it; read no more while it is busy."""
        if self._wake is None:
            self.pause_reading()
        elif (self._messages or self.ended is not False) and not self._wake.done():
            self._wake.set_result(None)

    def handle_stream(self, kind: int, flags: int, stream: int, payload: bytes) -> None:  # noqa: ARG002
        """Take the messages out of a frame's data."""
        if kind == DATA:
            data = self._data
            data += payload
            while end := message_end(data):
                self._messages.append(message_in(data, end))
                del data[:end]
        if kind == RST_STREAM or flags & END_STREAM:
            self.end(True)
