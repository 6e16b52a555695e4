"""Verification of an issuer's solvers before anything is ordered: Secrets, credentials, listeners."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from certwright.acme.solvers.contract import SolverError, Verifiable
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.solver_lookup import SolverLookup
from certwright.controllers.acme.solver_use import SolverUse, missing_listener
from certwright.issuers.contract import GetSecret, IssuerView, SolverProblem
from certwright.resources.solver import Solver

_TAKES_S: Final = 10.0
_RETRY: Final = timedelta(minutes=1)
# The Secret may stay as it is while the provider accepts the credentials again.
_RETRY_REJECTED: Final = timedelta(minutes=10)


class SolverVerification:
    """Verifies with the solvers of `lookup`, which share connections and cached answers with challenges."""

    def __init__(self, lookup: SolverLookup, options: AcmeOptions, now: Callable[[], datetime]) -> None:
        self._lookup = lookup
        self._options = options
        self._now = now

    async def problems(
        self, issuer: IssuerView, get_secret: GetSecret, secrets_in: str
    ) -> tuple[SolverProblem, ...]:
        """What is known to be wrong with the solvers of an ACME issuer, in their order."""
        spec = issuer.spec.acme
        assert spec is not None
        uses = [
            SolverUse(solver=solver, issuer_kind=issuer.kind, get_secret=get_secret, secrets_in=secrets_in)
            for solver in spec.solvers
        ]
        paths = (f"spec.acme.solvers[{number}]" for number in range(len(uses)))
        problems = await asyncio.gather(*map(self._problem, paths, uses))
        return tuple(problem for problem in problems if problem is not None)

    async def _problem(self, path: str, use: SolverUse) -> SolverProblem | None:
        if why := missing_listener(use.solver, self._options) or self._unusable_program(use.solver):
            return SolverProblem(path, why)
        if use.solver.dns01 is None:
            return None
        try:
            means = await self._lookup.make(use)
        except SolverError as error:
            return SolverProblem(path, str(error))
        if not isinstance(means.solver, Verifiable):
            return None
        try:
            async with asyncio.timeout(_TAKES_S):
                await means.solver.verify()
        except CredentialsRejected as error:
            return SolverProblem(path, str(error), retry_at=self._now() + _RETRY_REJECTED)
        except SolverError as error:
            retry_at = max(self._now() + _RETRY, error.not_before or self._now())
            return SolverProblem(path, str(error), retry_at=retry_at, is_certain=False)
        except TimeoutError:
            why = f"the DNS provider did not answer within {_TAKES_S:g} s"
            return SolverProblem(path, why, retry_at=self._now() + _RETRY, is_certain=False)
        return None

    def _unusable_program(self, solver: Solver) -> str:
        command = self._options.policy.command_of(solver.exec.command) if solver.exec is not None else None
        if command is None or os.access(command[0], os.X_OK):
            return ""
        return f"the program {command[0]} does not exist or is not executable"
