"""What the HTTP face does to an answer on its way out: common header fields, compression, indentation.

Source: Kubernetes documentation, "Kubernetes API Concepts", compression; "Auditing" (Audit-Id); "API Priority
and Fairness", diagnostics (the X-Kubernetes-PF header fields).
"""

from __future__ import annotations

import asyncio
import re
import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from certwright.kit.exchange import Request

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_AUDIT_ID = re.compile(r"[\x20-\x7e]+")
_PRETTY = re.compile(r"[?&]pretty=([^&]+)")
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")


class ExtraHeaders:
    """The header fields that every answer carries; `is_fair`: the server has priority and fairness."""

    def __init__(self, *, is_fair: bool) -> None:
        # What client-go's controllers look for: a server with these needs no rate limit in its clients.
        names = (b"x-kubernetes-pf-flowschema-uid", b"x-kubernetes-pf-prioritylevel-uid") if is_fair else ()
        self._fixed = [(name, str(uuid.uuid4()).encode()) for name in names]

    def added(self, request: Request, send: Send) -> Send:
        """`send`, with the fields added to what it sends for `request`."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                headers += self._fixed
                headers.append((b"audit-id", _audit_id(request).encode()))
                if all(name != b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-cache, private"))
            await send(message)

        return with_headers


def _audit_id(request: Request) -> str:
    """The one that a proxy in front has given, or a new one."""
    given = request.headers.get("audit-id", "")
    return given if _AUDIT_ID.fullmatch(given) else str(uuid.uuid4())


def wants_pretty(request: Request) -> bool:
    """Whether a person is going to read the answer: the query says so, or a program that people use."""
    if wanted := _PRETTY.search(request.target):
        return wanted[1] in _TRUE
    # What a client sees of OpenAPI is the same bytes for everyone, under one ETag.
    by_people = request.headers.get("user-agent", "").startswith(_READ_BY_PEOPLE)
    return by_people and request.target.startswith("/api")


def takes_gzip(request: Request) -> bool:
    """Whether the client reads compressed answers."""
    accepted = request.headers.get("accept-encoding", "")
    return any(part.strip() == "gzip" for part in accepted.split(","))


async def compressed(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of `stream` in gzip."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)  # 16: in gzip's clothes
    async for chunk in stream:
        if squeezed := await asyncio.to_thread(squeeze.compress, chunk):
            yield squeezed
    yield squeeze.flush()
