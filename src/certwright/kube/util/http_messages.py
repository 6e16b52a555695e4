"""HTTP requests and responses as plain values, independent of the transport.

The API server's handler is a function from `Request` to `Response`. The HTTP server makes a `Request` from
the bytes on a socket; inside one process the client calls the handler with a `Request` of its making.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

import msgspec

HEARTBEAT = "x-watch-heartbeat"
"""Header of a watch, ours: the interval in seconds, a whole number, at which the server sends an empty line.
A client requests it; a server that repeats it in its response does so; others ignore it."""


class Identity(msgspec.Struct, frozen=True):
    """The authenticated identity of a caller (Kubernetes' `UserInfo`)."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Caller(Protocol):
    """The connection on which requests arrive."""

    def identify(self, flow: str, *, is_privileged: bool) -> None:
        """Record the flow of the connection: its user, or the ServiceAccounts of a namespace. Raises
        `resources.errors.ApiError`: the flow, or all together, have too many connections."""

    def is_closed(self) -> bool:
        """Whether the client has closed it."""


class Request(msgspec.Struct):
    """A request.

    `target` is the path and query as on the request line (percent-encoded). Header names are lower-case.
    `user` is None until the caller is authenticated; a caller in the same process sets it itself.
    `peer_certificate` is the DER of the verified TLS client certificate, if any. `caller` is None within one
    process.
    """

    method: str
    target: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    user: Identity | None = None
    peer_certificate: bytes | None = None
    caller: Caller | None = None


Write = Callable[[bytes], bool]
"""Sends a chunk to the client without waiting; returns False, and sends nothing, where it would have to
wait."""


@runtime_checkable
class PushStream(Protocol):
    """A stream that can also write directly, without waking its consumer for each chunk.

    Writes to the socket directly only while the consumer waits for a chunk; what does not fit is yielded.
    """

    def push_into(self, write: Write) -> None:
        """Write through that function from now on, while the consumer waits for the next chunk."""


class Response(msgspec.Struct):
    """A response: complete (`body`), or a stream of chunks.

    The consumer MUST close a stream (`aclose`), also when it does not read the stream to its end; each chunk
    of a watch contains one or more complete lines.
    """

    status: int
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[[Request], Awaitable[Response]]
"""Handles any request; never raises except `asyncio.CancelledError`."""


async def close_stream(stream: AsyncIterator[bytes] | None) -> None:
    """Close the stream of a response, read to its end or not."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


class ClosingStream:
    """A stream that calls `at_end`, which MUST be idempotent, when its consumer closes it."""

    def __init__(self, chunks: AsyncIterator[bytes], at_end: Callable[[], None]) -> None:
        self._chunks = chunks
        self._at_end = at_end

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Stop; idempotent."""
        self._at_end()
        await close_stream(self._chunks)


async def whole_body(response: Response) -> bytes:
    """The body of a response, gathered if it comes in chunks. Raises what the stream raises."""
    if response.stream is None:
        return response.body
    try:
        return b"".join([chunk async for chunk in response.stream])
    finally:
        await close_stream(response.stream)
