"""Revocation, and the check of a solver, for the commands `revoke` and `check solver`. Not in `app` itself,
because it loads the ACME client and the solvers.
"""

from __future__ import annotations

from collections.abc import Callable

from certwright.app.options import StartError
from certwright.controllers.acme.listeners import AcmeSettings, CannotListen, open_listeners
from certwright.controllers.acme.revoking import CannotRevoke, Holder, Revoked, revoke
from certwright.controllers.acme.solver_check import (
    Environment,
    SolverCheck,
    SolverCheckFailed,
    check_solver,
)
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import SystemClock

__all__ = [
    "CannotRevoke",
    "Holder",
    "Revoked",
    "SolverCheck",
    "SolverCheckFailed",
    "check",
    "revoke",
]


async def check(
    solver_check: SolverCheck,
    client: Client,
    settings: AcmeSettings,
    *,
    user_agent: str,
    report: Callable[[str, str], None],
) -> None:
    """Check a solver in this process, which listens as the settings say while the check runs.

    Raises `SolverCheckFailed`, `ApiError`, and `StartError` if it cannot listen.
    """
    try:
        listeners = await open_listeners(settings)
    except CannotListen as error:
        raise StartError(str(error)) from error
    environment = Environment(
        client=client, options=listeners.options, clock=SystemClock(), user_agent=user_agent, report=report
    )
    try:
        await check_solver(solver_check, environment)
    finally:
        await listeners.close()
