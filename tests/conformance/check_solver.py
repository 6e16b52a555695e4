"""What every solver must do, whichever it is: see `acme/solvers/contract.py`.

Whoever writes a solver runs this: `see` tells which values are shown to the world for a task's name (for
HTTP-01: for its token).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from certwright.acme.solvers.contract import Solver, Task

See = Callable[[Task], Awaitable[set[str]]]


async def check_solver(solver: Solver, see: See, task: Task) -> None:
    """Raises `AssertionError` where the solver breaks the contract."""
    await _shows_and_takes_away(solver, see, task)
    await _is_idempotent(solver, see, task)
    await _leaves_others_alone(solver, see, task)
    await _cleans_up_after_a_crash(solver, see, task)


async def _shows_and_takes_away(solver: Solver, see: See, task: Task) -> None:
    assert await see(task) == set()
    await solver.present(task)
    assert await see(task) == {task.key}
    await solver.clean_up(task)
    assert await see(task) == set()


async def _is_idempotent(solver: Solver, see: See, task: Task) -> None:
    await solver.present(task)
    await solver.present(task)
    assert await see(task) == {task.key}
    await solver.clean_up(task)
    await solver.clean_up(task)
    assert await see(task) == set()


async def _leaves_others_alone(solver: Solver, see: See, task: Task) -> None:
    other = replace(task, token=f"{task.token}-2", key=f"{task.key}-2", uid=f"{task.uid}-2")
    await solver.present(task)
    await solver.present(other)
    assert other.key in await see(other)
    assert task.key in await see(task)
    await solver.clean_up(task)
    assert other.key in await see(other)
    await solver.clean_up(other)
    assert await see(other) == set()


async def _cleans_up_after_a_crash(solver: Solver, see: See, task: Task) -> None:
    await solver.clean_up(replace(task, token="never", key="never-shown", uid="never"))
    assert await see(task) == set()
