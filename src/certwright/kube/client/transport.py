"""Transport of requests to an API server, and of its responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from certwright.kube.util import http_messages


class Transport(Protocol):
    """Sends requests to one API server, as one user.

    A response of 400 and above is a response: `request` MUST NOT raise for it. Without a response it MUST
    raise `resources.errors.Unreachable` with one sentence that names the server. Requests may be made
    concurrently and may be cancelled; whether a cancelled one was carried out is unknown.
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
