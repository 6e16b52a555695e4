"""A server that is a script, for tests of what stands on a transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity, Request, Response

ALICE = Identity("alice")


class Stream:
    """A watch's body, fed by the test; `closed` tells whether it was let go."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False

    def send(self, *events: dict[str, object]) -> None:
        self._chunks.put_nowait(b"".join(msgspec.json.encode(event) + b"\n" for event in events))

    def end(self) -> None:
        self._chunks.put_nowait(None)

    def fail(self, error: Exception) -> None:
        self._chunks.put_nowait(error)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._chunks.get()
        if isinstance(chunk, Exception):
            raise chunk
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        self.closed = True


class Peer:
    """A server that is a list of answers, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[Response | Exception | Callable[[Request], Response]] = []

    def answer(self, status: int, body: object = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append(Response(status, named, msgspec.json.encode(body)))

    def answer_stream(self) -> Stream:
        stream = Stream()
        self.answers.append(Response(200, {}, stream=stream))
        return stream

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Response) else answer(request)

    def client(self, **options: Any) -> Client:
        """A client of this server."""
        return Client(LocalTransport(self.handle, ALICE), user_agent="test", **options)

    @property
    def targets(self) -> list[str]:
        return [f"{request.method} {request.target}" for request in self.requests]
