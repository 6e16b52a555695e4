"""In-process transport to the API server: no socket, the same semantics."""

from __future__ import annotations

from collections.abc import Mapping

from certwright.kube.api.errors import Unreachable
from certwright.kube.util.http_messages import Handler, Identity, Request, Response


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
        """Accept no more requests; the handler itself stays open, because its owner closes it."""
        self._closed = True
