"""Wire format of responses: head, common header fields, compression, indentation.

Source: RFC 9112 §4, §6.3; Kubernetes documentation, "Kubernetes API Concepts", compression; "Auditing"
(Audit-Id); "API Priority and Fairness", diagnostics (the X-Kubernetes-PF header fields).
"""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

import msgspec

from certwright.kube.api import naming
from certwright.kube.apiserver.model.negotiation import JSON
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Request, Response

GZIP_FROM = 128 * 1024
"""Answers above this size are compressed for clients that accept gzip, as in Kubernetes."""
LAST_CHUNK = b"0\r\n\r\n"
_AUDIT_ID = re.compile(r"[\x20-\x7e]+")
_PRETTY = re.compile(r"[?&]pretty=([^&]+)")
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CACHE_CONTROL = {"cache-control": "no-cache, private"}
_NO_CONTENT = frozenset({204, 304})


class ExtraFields:
    """The header fields of every answer; `is_fair`: the server has priority and fairness."""

    def __init__(self, clock: Clock, *, is_fair: bool) -> None:
        self._clock = clock
        self._second = -1
        self._date = ""
        # client-go's controllers check for these: with such a server they need no client-side rate limit.
        names = ("x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid") if is_fair else ()
        self._fixed = {name: naming.new_uid() for name in names}

    def added(self, request: Request, fields: Mapping[str, str]) -> dict[str, str]:
        """The fields of the answer to `request`, with the common ones added."""
        own = {"audit-id": _audit_id(request), "date": self.date()}
        return {**_CACHE_CONTROL, **fields, **self._fixed, **own}

    def date(self) -> str:
        """The value of `Date`, which every answer must have (RFC 9110 §6.6.1)."""
        second = int(self._clock.now().timestamp())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True)
        return self._date


def _audit_id(request: Request) -> str:
    """The audit ID of a reverse proxy, or a new one."""
    given = request.headers.get("audit-id", "")
    return given if given and _AUDIT_ID.fullmatch(given) else naming.new_uid()


def head(response: Response) -> bytes:
    """Status line and header fields, with the empty line after them.

    Raises `ValueError` for a value with control characters, such as a line break.
    """
    fields = response.headers
    if _NOT_IN_A_VALUE.search("".join(fields.values())):
        raise ValueError("control characters in a header field")
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
    return f"{_status_line(response.status)}{lines}\r\n".encode("latin-1", "replace")


@lru_cache(maxsize=64)
def _status_line(code: int) -> str:
    phrase = HTTPStatus(code).phrase if code in HTTPStatus.__members__.values() else ""
    return f"HTTP/1.1 {code} {phrase}\r\n"


async def encode_response(request: Request, response: Response) -> bytes:
    """A complete answer: head and body, in the encoding that `request` accepts. Raises as `head` does."""
    body = response.body
    if response.headers.get("content-type") == JSON and wants_pretty(request):
        body = msgspec.json.format(body, indent=2)
    if len(body) > GZIP_FROM and takes_gzip(request):
        # Compressing a megabyte takes milliseconds and releases the GIL.
        body = await asyncio.to_thread(gzip.compress, body, 1)
        mark_as_gzip(response)
    if response.status not in _NO_CONTENT:
        response.headers["content-length"] = str(len(body))
    start = head(response)
    return start if request.method == "HEAD" else start + body


def mark_as_gzip(response: Response) -> None:
    """Set the header fields of a compressed body."""
    response.headers["content-encoding"] = "gzip"
    response.headers["vary"] = "Accept-Encoding"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body (RFC 9112 §7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


shared_chunk = lru_cache(maxsize=1)(chunk)
"""`chunk`, cached for the watchers of one event."""


def wants_pretty(request: Request) -> bool:
    """Whether to indent the answer: the query asks for it, or the client is a browser, curl or Wget."""
    if match := _PRETTY.search(request.target):
        return match[1] in _TRUE
    # OpenAPI documents are the same bytes for every client, under one ETag.
    by_people = request.headers.get("user-agent", "").startswith(_READ_BY_PEOPLE)
    return by_people and request.target.startswith("/api")


def takes_gzip(request: Request) -> bool:
    """Whether the client accepts gzip."""
    accepted = request.headers.get("accept-encoding", "")
    return any(part.strip() == "gzip" for part in accepted.split(","))


async def compressed(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of `stream` in gzip."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)  # 16: gzip format
    async for piece in stream:
        if squeezed := await asyncio.to_thread(squeeze.compress, piece):
            yield squeezed
    yield squeeze.flush()
