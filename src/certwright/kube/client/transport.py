"""Transport of requests to an API server, and of its responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from certwright.kube.api.errors import Unreachable
from certwright.kube.util import http_messages
from certwright.kube.util.http_messages import Handler, Identity, Request, Response


class Transport(Protocol):
    """Sends requests to one API server, as one user.

    A response of 400 and above is a response: `request` MUST NOT raise for it. Without a response, `request`
    MUST raise `resources.errors.Unreachable` with one sentence that names the server. Requests may be made
    concurrently and may be cancelled; whether the server carries out a cancelled request is unknown.
    """

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> http_messages.Response:
        """The response. Header names are lower-case, both ways. A `stream` in it MUST be closed by the caller
        (`close_stream`); reading it raises `Unreachable` when the connection breaks."""

    async def close(self) -> None:
        """Close the connections. Requests after this raise `Unreachable`."""


@runtime_checkable
class CheckingTransport(Protocol):
    """A transport on which a request may wait for a connection."""

    async def request_if(
        self,
        check: Callable[[], None],
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> http_messages.Response:
        """As `Transport.request`. `check` is called when the request has a connection, immediately before it
        is sent; if `check` raises `Unreachable`, the request is not sent, and that error is raised."""


def retry_after_s(response: http_messages.Response) -> float | None:
    """The seconds until the server wants the next attempt; None if it does not say.

    Source: RFC 9110 §10.2.3: a number of seconds, or a date.
    """
    value = response.headers.get("retry-after", "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    # Not at the top: only proxies write dates.
    from email.utils import parsedate_to_datetime

    try:
        until = parsedate_to_datetime(value)
        # By the server's own clock, which may differ from this machine's.
        begun = parsedate_to_datetime(response.headers.get("date", ""))
        return max(0.0, (until - begun).total_seconds())
    except (ValueError, TypeError):
        return None


class LocalTransport:
    """Calls the handler as `user`, authenticated because the caller is in the process; the handler's
    authorization and admission apply as for every other user."""

    def __init__(self, handler: Handler, user: Identity) -> None:
        self._handler = handler
        self._user = user
        self._closed = False

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The handler's response. Raises `Unreachable` after `close`."""
        if self._closed:
            raise Unreachable("the API server inside this process has been closed")
        return await self._handler(Request(method, target, headers, body, self._user))

    async def close(self) -> None:
        """Refuse further requests. The handler stays open, because its owner closes it."""
        self._closed = True
