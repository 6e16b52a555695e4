"""The child's work with proofs: looks for them, and writes those that are TXT records.

Imported with the first one: what asks name servers costs 10 MB.
"""

from __future__ import annotations

from certwright.acme.carrier.frames import Look, Seen, Show, Shown
from certwright.acme.solvers.checking import make_check
from certwright.acme.solvers.contract import Check, Looking, NotYet, SolverError
from certwright.acme.solvers.dns01.rfc2136 import make_updater
from certwright.acme.solvers.names import NameServers


class Proofs:
    """Does as it is told to. Checks and name servers are kept: what is learned of zones serves the next
    ones. TSIG keys are not."""

    def __init__(self) -> None:
        self._checks: dict[Looking, Check] = {}
        self._names: dict[tuple[tuple[str, ...], int], NameServers] = {}

    async def look(self, order: Look) -> Seen:
        """What is seen. What goes wrong is told as that."""
        try:
            found = await self._check(order.looking).check(order.task)
        except ValueError as error:
            return Seen(order.number, str(error))
        if isinstance(found, NotYet):
            return Seen(order.number, found.reason, found.not_before.total_seconds())
        return Seen(order.number)

    async def show(self, order: Show) -> Shown:
        """Whether it is done."""
        updating = order.updating
        try:
            solver = make_updater(updating, self._asking(updating.servers, updating.authority_port))
            await (solver.clean_up if order.away else solver.present)(order.task)
        except (SolverError, ValueError) as error:
            return Shown(order.number, str(error))
        return Shown(order.number)

    def _check(self, looking: Looking) -> Check:
        if looking not in self._checks:
            self._checks[looking] = make_check(
                looking, lambda one: self._asking(one.servers, one.authority_port)
            )
        return self._checks[looking]

    def _asking(self, servers: tuple[str, ...], authority_port: int) -> NameServers:
        asked = servers, authority_port
        if asked not in self._names:
            self._names[asked] = NameServers(servers, authority_port=authority_port)
        return self._names[asked]
