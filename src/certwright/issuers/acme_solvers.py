"""The solvers of an `acme` issuer in its condition: what is known to be wrong before anything is ordered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from certwright.issuers.contract import Checked, SolverProblem
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.reasons import SOLVERS_NOT_VERIFIED

_SHORTEST_RETRY = timedelta(seconds=1)
_MOST_SHOWN = 3


def with_solvers(
    account: Checked, spec: ACMEIssuer, problems: Sequence[SolverProblem], now: datetime
) -> Checked:
    """The verdict on an issuer whose account is ready. It is not Ready if no solver can be used; the others
    serve the names that they are for, and the message has the problems."""
    if not problems:
        return account
    shown = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:_MOST_SHOWN])
    if more := len(problems) - _MOST_SHOWN if len(problems) > _MOST_SHOWN else 0:
        shown += f"; and {more} more"
    retry_after = _retry_after(problems, now)
    if len(problems) < len(spec.solvers) or not all(problem.is_certain for problem in problems):
        return replace(account, message=f"{account.message}; but {shown}", retry_after=retry_after)
    message = f"Failed to verify solvers: {shown}"
    return replace(
        account, ready=False, reason=SOLVERS_NOT_VERIFIED, message=message, retry_after=retry_after
    )


def _retry_after(problems: Sequence[SolverProblem], now: datetime) -> timedelta | None:
    moments = [problem.retry_at for problem in problems if problem.retry_at is not None]
    return max(min(moments) - now, _SHORTEST_RETRY) if moments else None
