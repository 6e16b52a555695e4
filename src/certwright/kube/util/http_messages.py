"""One HTTP exchange as plain values: what a handler takes and gives, whatever carries it.

The API server's handler is a function from `Request` to `Response`. The HTTP face makes a `Request` of what
came in on a socket; inside one process the client calls the handler with one it made itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, once that has been established (Kubernetes' `UserInfo`)."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Caller(Protocol):
    """The connection that requests come from."""

    def identify(self, user: str, *, is_privileged: bool) -> None:
        """Note who sends requests on it. Raises `resources.errors.ApiError`: the user, or all users together,
        have too many connections."""


@dataclass(slots=True)
class Request:
    """A request.

    `target` is the path and query as on the request line (percent-encoded). Header names are lower-case.
    `user` is None until somebody authenticated the caller; a caller in the same process sets it itself.
    `peer_certificate` is the DER of the verified TLS client certificate, where there was one. `caller` is
    None within one process.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: Identity | None = None
    peer_certificate: bytes | None = None
    caller: Caller | None = None


Write = Callable[[bytes], bool]
"""Puts a chunk on the way to the client; False, and nothing done, where it would have to wait."""


@runtime_checkable
class PushStream(Protocol):
    """A stream that can also write for itself, without its consumer being woken for each chunk.

    Between a chunk's being handed out and the request for the next one it does not write; what could not be
    written it hands out.
    """

    def push_into(self, write: Write) -> None:
        """Write to there from now on, while the next chunk is waited for."""


@dataclass(slots=True)
class Response:
    """An answer: whole (`body`), or a stream of chunks.

    A stream MUST be closed (`aclose`) by whoever consumes it, also when it is not read to its end; each
    chunk of a watch holds one or more whole lines.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[[Request], Awaitable[Response]]
"""Answers any request; never raises but `asyncio.CancelledError`."""
