"""Running the solver and the self-check of a Challenge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from certwright.acme.protocol import challenges
from certwright.acme.protocol.challenges import PersistentRecord
from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.acme.solvers.contract import NotYet, Ready, SolverError, SolverNotAllowed, Task
from certwright.controllers.acme.challenge_state import Proven, Work
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.recorder import Recorder
from certwright.resources import names
from certwright.resources.acme import Challenge
from certwright.resources.table import CHALLENGES

if TYPE_CHECKING:
    # The solvers are loaded with the first Challenge.
    from certwright.controllers.acme.solver_factory import Means

# A live name answers immediately. A dead one must not keep later ones waiting: the first self-check is short,
# later ones (which queue behind every first one) take the time that they need.
_FIRST_CHECK_TIMEOUT_S = 1.5

# In place of the type of a problem document, where the CA has sent none.
_NO_RESPONSE = "noResponse"

_log = logging.getLogger(__name__)

FindMeans = Callable[[Challenge], Awaitable["Means"]]
"""Raises `SolverError` where the challenge cannot be answered."""


def problem_annotations(error: AcmeError, named: datetime | None, until: datetime | None) -> dict[str, str]:
    """The annotations of a Challenge with the CA's problem, and the time `until` if the CA has named one."""
    problem = {names.ACME_PROBLEM: error.problem.name if isinstance(error, Refused) else _NO_RESPONSE}
    if named is not None and until is not None:
        problem[names.NOT_BEFORE] = until.astimezone(UTC).isoformat()
    return problem


async def task_of(challenge: Challenge, issuer: ResolvedIssuer | None) -> Task:
    """The challenge as solvers see it.

    The proof is computed from the token and the account's key, never taken from the object, which a tenant
    may have written. Without `issuer` (the issuer is missing) the Task is only fit to be cleaned up. Raises
    `AcmeError` if the server's directory is needed and cannot be read.
    """
    spec = challenge.spec
    type_ = spec.type.lower()
    task = Task(
        type=type_,
        identifier=spec.dns_name,
        wildcard=spec.wildcard,
        token=spec.token,
        key=spec.key,
        uid=challenge.metadata.uid,
        account=challenge.metadata.annotations.get(names.ACME_ACCOUNT, ""),
    )
    if issuer is None:
        return task
    key = challenges.shown_value(type_, spec.token, issuer.client.key)
    return await with_account(replace(task, key=key), issuer)


async def with_account(task: Task, issuer: ResolvedIssuer) -> Task:
    """The task with what its record depends on. Raises `AcmeError`."""
    kid = issuer.client.kid
    if task.type != challenges.DNS_PERSIST_01:
        return replace(task, account=kid)
    directory = await issuer.client.directory()
    return replace(task, account=kid, persistent=PersistentRecord(directory.caa_identities, kid))


async def make_work(challenge: Challenge, issuer: ResolvedIssuer | None, find_means: FindMeans) -> Work:
    """The initial state, also after a restart: nothing is known. Without `issuer` it is only fit to be
    cleaned up, because the proof is computed from the account's key, not from the object. Raises
    `SolverError` and `AcmeError`."""
    means = await find_means(challenge)
    return Work(await task_of(challenge, issuer), means)


async def clean_up(
    challenge: Challenge, work: Work | None, find_means: FindMeans, recorder: Recorder
) -> bool:
    """Clean up the presented solution; return whether that is done. Errors are reported."""
    try:
        work = work or await make_work(challenge, None, find_means)
        await work.means.solver.clean_up(work.task)
    except SolverNotAllowed as error:
        # Only a process with other flags can have shown anything: this one must not keep the object.
        message = f"Error cleaning up challenge: a proof shown earlier, if any, is left in place: {error}"
        recorder.event(CHALLENGES, challenge, "Warning", "CleanUpError", message)
        return True
    except SolverError as error:
        recorder.event(
            CHALLENGES, challenge, "Warning", "CleanUpError", f"Error cleaning up challenge: {error}"
        )
        return False
    return True


def report_skipped(challenge: Challenge, problem: str, recorder: Recorder) -> None:
    """Report a proof that may remain, because no solver runs for a Challenge with that `problem`."""
    if problem and challenge.status.presented:
        message = f"No solver was run to remove a proof that may still be shown: {problem}"
        recorder.event(CHALLENGES, challenge, "Warning", "CleanUpSkipped", message)


async def discard(key: ObjectKey, work: Work) -> None:
    """Remove what only this process presents, after the Challenge was deleted without our finalizer."""
    if isinstance(work.stage, Proven):
        return
    try:
        await work.means.solver.clean_up(work.task)
    except SolverError as error:
        _log.warning("%s: the proof could not be removed: %s", key, error)


def self_check(key: ObjectKey, work: Work, attempt: int) -> Callable[[], Awaitable[Ready | NotYet]]:
    """The self-check as a function that never raises and, at its first attempt, ends soon."""
    check, task = work.means.check, work.task
    assert check is not None
    timeout_s = None if attempt else _FIRST_CHECK_TIMEOUT_S

    async def run() -> Ready | NotYet:
        try:
            async with asyncio.timeout(timeout_s):
                return await check.check(task)
        except TimeoutError:
            return NotYet(f"no answer within {_FIRST_CHECK_TIMEOUT_S:g} s")
        except Exception as error:
            # A check must not raise; one that does must not be repeated immediately, for ever.
            _log.exception("the self-check of %s failed", key)
            return NotYet(f"the self-check failed: {type(error).__name__}: {error}")

    return run
