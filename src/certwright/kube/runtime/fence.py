"""Fencing: a replica that has lost its Lease changes nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from certwright.kube.api.errors import Unreachable
from certwright.kube.client.transport import Transport
from certwright.kube.util.http_messages import Response

_READING = ("GET", "HEAD", "OPTIONS")


class FencedTransport:
    """Lets changes through only while `may_write`.

    A request that is under way at that moment may still be carried out; objects are changed with the
    resourceVersion that was seen, so it cannot undo what the next holder did.
    """

    def __init__(self, inner: Transport, may_write: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The answer. Raises `Unreachable` for a change that is no longer ours to make."""
        if method not in _READING and not self._may_write():
            raise Unreachable("another replica may have taken over: nothing is changed from here")
        return await self._inner.request(method, target, headers=headers, body=body)

    async def close(self) -> None:
        """Close the transport behind it."""
        await self._inner.close()
