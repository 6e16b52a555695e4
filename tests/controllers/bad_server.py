"""API servers that misbehave towards the controllers, on the clock of the test."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from urllib.parse import parse_qs

from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Request, Response
from controllers.crashes import Handler, cut_short
from support.world import CONTROLLER


def _status(code: int, reason: str) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", "reason": reason, "code": code}).encode()


Fault = Callable[[Request], Response | None]
"""The answer in place of the server's own; None: it is served."""


def refuses(code: int, reason: str, *, share: float = 1.0, **headers: str) -> Callable[[int], Fault]:
    """Answers so many of all requests so; `seed` makes it the same in every run."""

    def made(seed: int) -> Fault:
        dice = random.Random(seed)

        def fault(_: Request) -> Response | None:
            if dice.random() >= share:
                return None
            return Response(
                code, {name.replace("_", "-"): v for name, v in headers.items()}, _status(code, reason)
            )

        return fault

    return made


def expires(_: int) -> Fault:
    """Answers every watch with 410."""
    return lambda request: (
        Response(410, {}, _status(410, "Expired")) if "watch=true" in request.target else None
    )


def closes_watches(_: int) -> Fault:
    """Ends every watch at once."""

    async def nothing() -> AsyncIterator[bytes]:
        chunks: tuple[bytes, ...] = ()
        for chunk in chunks:
            yield chunk

    return lambda request: Response(200, {}, stream=nothing()) if "watch=true" in request.target else None


class BadServer:
    """Stands before a server. It ends watches when their time is over, as every server does.

    `fault` is what is wrong with it now; `loses` the share of watch events that get lost; `takes_s` the time
    that each answer takes. `requests` counts what was asked.
    """

    def __init__(self, handler: Handler, clock: Clock, seed: int = 1) -> None:
        self.fault: Fault | None = None
        self.loses = 0.0
        self.takes_s = 0.0
        self.requests = 0
        self.lost = 0
        self._handler = handler
        self._clock = clock
        self._dice = random.Random(seed)

    async def handle(self, request: Request) -> Response:
        """Serve, well or badly."""
        if request.user != CONTROLLER:
            return await self._handler(request)
        self.requests += 1
        if self.takes_s:
            await self._clock.sleep(self.takes_s)
        if self.fault is not None and (answer := self.fault(request)) is not None:
            return answer
        response = await self._handler(request)
        if response.stream is None:
            return response
        query = parse_qs(request.target.partition("?")[2])
        life_s = float(query.get("timeoutSeconds", ["1800"])[0])
        return Response(response.status, response.headers, stream=self._ending(response.stream, life_s))

    async def _ending(self, stream: AsyncIterator[bytes], life_s: float) -> AsyncIterator[bytes]:
        async for chunk in cut_short(stream, self._clock.sleep(life_s)):
            if kept := self._left_of(chunk):
                yield kept

    def _left_of(self, chunk: bytes) -> bytes:
        if not self.loses:
            return chunk
        lines = chunk.splitlines(keepends=True)
        kept = [line for line in lines if self._dice.random() >= self.loses]
        self.lost += len(lines) - len(kept)
        return b"".join(kept)
