"""A `Check` by way of the child."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from certwright.acme.carrier.child import CannotCarry, Child
from certwright.acme.carrier.frames import Seen
from certwright.acme.carrier.link import Ended
from certwright.acme.solvers.contract import Check, Looking, NotYet, Ready, Task

# The looks themselves have shorter ones, unless every one of many name servers takes its time.
_TIMEOUT_S = 120.0


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
            async with asyncio.timeout(_TIMEOUT_S):
                link = await self._child.link()
                result = await link.look(self._looking, task)
        except TimeoutError:
            return NotYet(f"{task.identifier} could not be looked at within {_TIMEOUT_S:g} s")
        except (CannotCarry, Ended, UnicodeEncodeError):
            return await self._make_inside().check(task)
        assert isinstance(result, Seen)
        if not result.reason:
            return Ready()
        return NotYet(result.reason, timedelta(seconds=result.not_before_s))
