"""Heartbeats of a watch: empty lines at a fixed interval, for clients that request them.

They show that this process works: TCP does not show that a process stands still, and HTTP/1.1 has no ping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from certwright.kube.apiserver.http import wire
from certwright.kube.apiserver.model.negotiation import JSON
from certwright.kube.apiserver.model.routes import is_watch
from certwright.kube.util.http_messages import HEARTBEAT, Request, Response

_INTERVALS_S = range(1, 61)
_EMPTY_LINE = wire.chunk(b"\n")


def accept(request: Request, response: Response) -> int | None:
    """The interval in seconds that a watch requests, which the response then repeats; None: no heartbeats."""
    text = request.headers.get(HEARTBEAT, "")
    # An empty line means nothing between JSON documents only.
    if not is_watch(request.target) or not response.headers.get("content-type", "").startswith(JSON):
        return None
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) <= len("60") else 0
    if seconds not in _INTERVALS_S:
        return None
    response.headers[HEARTBEAT] = text
    return seconds


@contextmanager
def beating(seconds: int | None, write: Callable[[bytes], object]) -> Iterator[None]:
    """Pass an empty line to `write` every so many seconds; None: never."""
    if seconds is None:
        yield
        return
    task = asyncio.create_task(_beat(seconds, write), name="heartbeats of a watch")
    try:
        yield
    finally:
        task.cancel()


async def _beat(seconds: int, write: Callable[[bytes], object]) -> None:
    while True:
        await asyncio.sleep(seconds)
        write(_EMPTY_LINE)
