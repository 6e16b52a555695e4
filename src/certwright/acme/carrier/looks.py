"""The child's looks for proofs.

Imported with the first one: what asks name servers costs 10 MB.
"""

from __future__ import annotations

from certwright.acme.carrier.frames import Look, Seen
from certwright.acme.solvers.checking import make_check
from certwright.acme.solvers.contract import Check, Looking, NotYet
from certwright.acme.solvers.names import NameServers


class Looks:
    """Looks as it is told to. Checks are kept: what they learn of zones serves the next looks."""

    def __init__(self) -> None:
        self._checks: dict[Looking, Check] = {}

    async def look(self, order: Look) -> Seen:
        """What is seen. What goes wrong is told as that."""
        try:
            found = await self._check(order.looking).check(order.task)
        except ValueError as error:
            return Seen(order.number, str(error))
        if isinstance(found, NotYet):
            return Seen(order.number, found.reason, found.not_before.total_seconds())
        return Seen(order.number)

    def _check(self, looking: Looking) -> Check:
        if looking not in self._checks:
            self._checks[looking] = make_check(looking, _names)
        return self._checks[looking]


def _names(looking: Looking) -> NameServers:
    return NameServers(looking.servers, authority_port=looking.authority_port)
