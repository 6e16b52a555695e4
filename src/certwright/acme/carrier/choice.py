"""Whether requests to ACME servers, and what proofs need, are made by this process or by a child of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime

from certwright.acme.carrier.check import CarriedCheck
from certwright.acme.carrier.child import Child
from certwright.acme.carrier.solver import CarriedSolver
from certwright.acme.carrier.transport import CarriedTransport
from certwright.acme.protocol.transport import TlsOptions, Transport
from certwright.acme.solvers.contract import Check, Looking, Solver, Updating
from certwright.kit.processors import usable_processors

_RUSH = 40
"""Requests and looks within two seconds that are not those of a few certificates: one takes 12. To start the
child takes 0.2 s of a processor, as much as it spares the event loop for 30 certificates."""


class Transports:
    """Makes transports, checks and solvers: by way of one child for all of them, or without.

    `apart` says which; None: by a child while it pays. `timeout_s` is for one request.
    """

    def __init__(
        self,
        *,
        user_agent: str,
        now: Callable[[], datetime],
        timeout_s: float = 30.0,
        apart: bool | None = None,
    ) -> None:
        self._user_agent = user_agent
        self._now = now
        self._timeout_s = timeout_s
        self._child: Child | None = None
        if apart or (apart is None and pays()):
            self._child = Child(rush=1 if apart else _RUSH)

    def __call__(self, tls: TlsOptions) -> Transport:
        """A transport that trusts these. Raises `ValueError` for options that make no sense."""
        if self._child is None:
            return self._inside(tls)
        return CarriedTransport(
            self._child,
            tls,
            user_agent=self._user_agent,
            now=self._now,
            timeout_s=self._timeout_s,
            make_inside=lambda: self._inside(tls),
        )

    def check(self, looking: Looking, make_inside: Callable[[], Check]) -> Check:
        """A check that looks so. `make_inside` makes one that this process looks by."""
        if self._child is None:
            return make_inside()
        return CarriedCheck(self._child, looking, make_inside)

    def solver(self, updating: Updating, make_inside: Callable[[], Solver]) -> Solver:
        """A solver that writes so. `make_inside` makes one that this process writes by, and may raise
        `SolverError`."""
        if self._child is None:
            return make_inside()
        return CarriedSolver(self._child, updating, make_inside)

    async def close(self) -> None:
        """End the child; return when it is gone."""
        if self._child is not None:
            await self._child.close()

    def _inside(self, tls: TlsOptions) -> Transport:
        # Here, not above: it loads aiohttp, which a process with a child does without.
        from certwright.acme.protocol.https import HttpTransport

        return HttpTransport(tls, user_agent=self._user_agent, now=self._now, timeout_s=self._timeout_s)


def pays() -> bool:
    """Whether a child would have a processor of its own."""
    # Windows: no socket can be somebody's standard input there.
    return bool(sys.executable) and sys.platform != "win32" and usable_processors() >= 2
