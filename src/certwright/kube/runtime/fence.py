"""Fencing: a replica that has lost its Lease stops writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from certwright.kube.api.errors import Unreachable
from certwright.kube.client.transport import CheckingTransport, Transport
from certwright.kube.util.http_messages import Response

_READING = ("GET", "HEAD", "OPTIONS")


class FencedTransport:
    """A transport that passes writes only while `may_write`.

    Where a request may wait for a connection, it is checked again when it has one, so a process that was
    stopped for longer than its Lease lasts sends nothing afterwards. A request in flight at that moment may
    still be carried out; writes carry the resourceVersion that was read, so such a write cannot undo changes
    by the next holder.
    """

    def __init__(self, inner: Transport, may_write: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The response. Raises `Unreachable` for a write that is no longer allowed."""
        if method in _READING:
            return await self._inner.request(method, target, headers=headers, body=body)
        self._check()
        if isinstance(self._inner, CheckingTransport):
            return await self._inner.request_if(self._check, method, target, headers=headers, body=body)
        return await self._inner.request(method, target, headers=headers, body=body)

    def _check(self) -> None:
        if not self._may_write():
            raise Unreachable("another replica may have taken over: nothing is changed from here")

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()
