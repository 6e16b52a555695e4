"""A `Check` by way of the child."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from certwright.acme.carrier.child import Child
from certwright.acme.carrier.frames import Seen
from certwright.acme.solvers.contract import Check, Looking, NotYet, Ready, Task


class CarriedCheck:
    """Has a child look; where there is none to be had, looks as `make_inside()` does: to look twice changes
    nothing."""

    def __init__(self, child: Child, looking: Looking, make_inside: Callable[[], Check]) -> None:
        self._child = child
        self._looking = looking
        self._make_inside = make_inside

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        try:
            result = await self._child.prove(lambda link: link.look(self._looking, task))
        except TimeoutError:
            return NotYet(f"{task.identifier} could not be looked at within {self._child.proof_s:g} s")
        if result is None:
            return await self._make_inside().check(task)
        assert isinstance(result, Seen)
        if not result.reason:
            return Ready()
        return NotYet(result.reason, timedelta(seconds=result.not_before_s))
