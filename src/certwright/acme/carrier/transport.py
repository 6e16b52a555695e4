"""A `Transport` by way of the child."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime

from certwright.acme.carrier.child import CannotCarry, Child
from certwright.acme.carrier.frames import Answer, Failure, Open
from certwright.acme.carrier.link import Ended
from certwright.acme.protocol.errors import AcmeError, NotAcme, Unreachable, Untrusted
from certwright.acme.protocol.messages import Request, Response
from certwright.acme.protocol.transport import TlsOptions, Transport

_KINDS: dict[str, type[AcmeError]] = {kind.__name__: kind for kind in (Unreachable, Untrusted, NotAcme)}
_senders = itertools.count()


class CarriedTransport:
    """Has a child send the requests; where there is none to be had, does as `make_inside()` does.

    `timeout_s` is for one whole request. Raises `ValueError` for TLS options that make no sense.
    """

    def __init__(
        self,
        child: Child,
        tls: TlsOptions,
        *,
        user_agent: str,
        now: Callable[[], datetime],
        timeout_s: float,
        make_inside: Callable[[], Transport],
    ) -> None:
        tls.check()
        self._child = child
        self._options = Open(next(_senders), tls.ca_bundle, tls.skip_verify, user_agent, timeout_s)
        self._now = now
        self._make_inside = make_inside
        self._inside: Transport | None = None

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        try:
            link = await self._child.link()
            result = await link.ask(self._options, request)
        except CannotCarry:
            return await self._send_from_inside(request)
        except (Ended, UnicodeEncodeError) as error:
            raise Unreachable(f"{request.url} cannot be reached: {error}") from error
        if isinstance(result, Failure):
            raise _KINDS[result.kind](result.words)
        assert isinstance(result, Answer)
        return Response(result.status, result.headers, result.body, request.url, self._now())

    async def close(self) -> None:
        """See `Transport`."""
        self._child.close_sender(self._options.sender)
        if self._inside is not None:
            await self._inside.close()
            self._inside = None

    async def _send_from_inside(self, request: Request) -> Response:
        if self._inside is None:
            self._inside = self._make_inside()
        return await self._inside.send(request)
