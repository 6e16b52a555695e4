"""The ACME clients of this process, made when the first is needed.

What speaks HTTP to an ACME server costs 25 MB: a process without ACME issuers never loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from certwright.acme.carrier.choice import Transports
    from certwright.acme.protocol.client import MakeTransport, Observer, Registry
    from certwright.controllers.acme.solving import Carrier
    from certwright.kit.workshop import Workshop


class AcmeClients:
    """`observe` hears of every request; `timeout_s` is for one of them; `apart` says whether a process of its
    own makes them (None: where that pays), `make_transport` replaces HTTP; what takes a processor long is
    done in the `workshop`."""

    def __init__(
        self,
        *,
        user_agent: str,
        now: Callable[[], datetime],
        observe: Observer | None = None,
        timeout_s: float = 30.0,
        apart: bool | None = None,
        make_transport: MakeTransport | None = None,
        workshop: Workshop | None = None,
    ) -> None:
        self._user_agent = user_agent
        self._now = now
        self._observe = observe
        self._timeout_s = timeout_s
        self._make_transport = make_transport or (lambda tls: self._open()(tls))
        self._proves_here = make_transport is not None
        self._apart = apart
        self._workshop = workshop
        self._transports: Transports | None = None
        self._registry: Registry | None = None

    def registry(self) -> Registry:
        """The clients, by server, key and trust."""
        if self._registry is None:
            from certwright.acme.protocol.client import Registry  # see the module's text

            self._registry = Registry(
                self._make_transport, now=self._now, observe=self._observe, workshop=self._workshop
            )
        return self._registry

    def carrier(self) -> Carrier | None:
        """Who does the work with proofs, beside the requests; None where those go another way than HTTP."""
        return None if self._proves_here else self._open()

    async def close(self) -> None:
        """Let go of the connections."""
        if self._registry is not None:
            await self._registry.close()
        if self._transports is not None:
            await self._transports.close()

    def _open(self) -> Transports:
        if self._transports is None:
            from certwright.acme.carrier.choice import Transports  # see the module's text

            self._transports = Transports(
                user_agent=self._user_agent, now=self._now, timeout_s=self._timeout_s, apart=self._apart
            )
        return self._transports
