"""The API server in the same process: no socket, the same semantics."""

from __future__ import annotations

from collections.abc import Mapping

from certwright.kube.api.errors import Unreachable
from certwright.kube.util.http_messages import Handler, Identity, Request, Response


class LocalTransport:
    """Calls the handler as `user`, who is authenticated by being in the process; authorisation and admission
    are the handler's, as for everybody else."""

    def __init__(self, handler: Handler, user: Identity) -> None:
        self._handler = handler
        self._user = user
        self._closed = False

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The handler's answer. Raises `Unreachable` after `close`."""
        if self._closed:
            raise Unreachable("the API server inside this process has been closed")
        return await self._handler(Request(method, target, headers, body, self._user))

    async def close(self) -> None:
        """Take no more requests; the handler itself belongs to somebody else."""
        self._closed = True
