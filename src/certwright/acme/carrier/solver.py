"""A `Solver` by way of the child: the one of dynamic updates, whose messages and signatures take a processor
longest."""

from __future__ import annotations

from collections.abc import Callable

from certwright.acme.carrier.child import Child
from certwright.acme.carrier.frames import Shown
from certwright.acme.solvers.contract import Solver, SolverError, Task, Updating


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
            result = await self._child.prove(lambda link: link.show(self._updating, task, away=away))
        except TimeoutError:
            host, port = self._updating.server
            raise SolverError(f"{host}:{port} could not be asked within {self._child.proof_s:g} s") from None
        if result is None:
            return False
        assert isinstance(result, Shown)
        if result.words:
            raise SolverError(result.words)
        return True
