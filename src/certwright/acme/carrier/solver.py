"""A `Solver` by way of the child: the one of dynamic updates, whose messages and signatures take a processor
longest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from certwright.acme.carrier.child import CannotCarry, Child
from certwright.acme.carrier.frames import Shown
from certwright.acme.carrier.link import Ended
from certwright.acme.solvers.contract import Solver, SolverError, Task, Updating

# Each of its questions has a shorter one.
_TIMEOUT_S = 120.0


class CarriedSolver:
    """Has a child write and take away; where there is none to be had, does as `make_inside()` does: to write
    a value twice is to write it once. Both raise `SolverError`."""

    def __init__(self, child: Child, updating: Updating, make_inside: Callable[[], Solver]) -> None:
        self._child = child
        self._updating = updating
        self._make_inside = make_inside

    async def present(self, task: Task) -> None:
        """See `Solver`."""
        if not await self._carried(task, away=False):
            await self._make_inside().present(task)

    async def clean_up(self, task: Task) -> None:
        """See `Solver`."""
        if not await self._carried(task, away=True):
            await self._make_inside().clean_up(task)

    async def _carried(self, task: Task, *, away: bool) -> bool:
        """Whether the child has done it."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                link = await self._child.link()
                result = await link.show(self._updating, task, away=away)
        except TimeoutError:
            host, port = self._updating.server
            raise SolverError(f"{host}:{port} could not be asked within {_TIMEOUT_S:g} s") from None
        except (CannotCarry, Ended, UnicodeEncodeError):
            return False
        assert isinstance(result, Shown)
        if result.words:
            raise SolverError(result.words)
        return True
