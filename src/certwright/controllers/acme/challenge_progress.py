"""Progress of Challenges, which only this process knows: the solver and its task, and how far each has come.

Nothing of it is stored; after a restart the work is repeated.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from certwright.acme.protocol import challenges
from certwright.acme.protocol.challenges import PersistentRecord
from certwright.acme.solvers import contract
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.controllers.acme.challenge_queues import SlotRequest
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.identifiers import canonical
from certwright.controllers.acme.waits import Announced, Pause
from certwright.issuers.contract import GetSecret
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.resources import names
from certwright.resources.acme import Challenge
from certwright.resources.solver import Solver

if TYPE_CHECKING:
    # The solvers are loaded with the first Challenge.
    from certwright.acme.protocol.orders import Authorization

# A live name answers immediately, and a dead name must not delay it: the first self-check is short; later
# self-checks (which queue behind every first one) take the time that they need.
_FIRST_CHECK_TIMEOUT_S = 1.5

_log = logging.getLogger(__name__)

SolverAndCheck = tuple[contract.Solver, contract.Check | None]
"""The solver and the self-check of one challenge; None: there is no self-check."""

FindSolver = Callable[[Challenge], Awaitable[SolverAndCheck]]
"""Raises `SolverError` where the challenge cannot be answered."""


class SolverUse(msgspec.Struct, frozen=True, kw_only=True):
    """A solver of an issuer. `get_secret` reads the issuer's Secrets, from the namespace `secrets_in`.
    `challenge` is the Challenge to solve; None: the solver is only verified."""

    solver: Solver
    issuer_kind: str
    get_secret: GetSecret
    secrets_in: str
    challenge: Challenge | None = None


class Prepared(msgspec.Struct, frozen=True):
    """The solver is built; nothing is presented."""


class Presented(msgspec.Struct, frozen=True):
    """The solution is presented, and no self-check has succeeded. `checks` counts the failed ones. The next
    self-check is made at `check_at` (None: now)."""

    presented_at: datetime
    checks: int = 0
    check_at: datetime | None = None


class Visible(msgspec.Struct, frozen=True):
    """A self-check has succeeded, or is not required: the CA is notified as soon as there is a slot."""

    presented_at: datetime


class Accepted(msgspec.Struct, frozen=True):
    """The CA validates the challenge. It has been polled `polls` - 1 times; the next poll is at `poll_at`
    (None: not planned yet)."""

    presented_at: datetime
    accepted_at: datetime
    polls: int = 0
    poll_at: datetime | None = None


class Proven(msgspec.Struct, frozen=True):
    """The CA has called the challenge valid, and the proof is removed; the status may lack the verdict."""

    proven_at: datetime


Stage = Prepared | Presented | Visible | Accepted | Proven
"""How far this process has come with one challenge."""


@dataclass(frozen=True, slots=True)
class Work:
    """What this process has done for one challenge. `asked_at`: when the CA was last asked for the
    authorization; None: this process has not compared the Challenge with the CA."""

    task: Task
    solver: contract.Solver = field(repr=False)
    check: contract.Check | None = field(repr=False)
    stage: Stage = field(default_factory=Prepared)
    asked_at: datetime | None = None
    pause: Pause | None = None

    @property
    def presented_at(self) -> datetime | None:
        """Since when this process presents the solution; None: it does not."""
        return None if isinstance(self.stage, Prepared | Proven) else self.stage.presented_at


class ChallengeProgress(msgspec.Struct, frozen=True):
    """The progress of the Challenge with that UID. `failures`: in a row. `announced`: the last reason that
    was written."""

    uid: str
    failures: int = 0
    announced: Announced | None = None
    work: Work | None = None


def is_blank(challenge: Challenge) -> bool:
    """Whether the status shows nothing that a verdict would have to take back."""
    status = challenge.status
    return not (status.state or status.reason or status.presented or status.processing)


def slot_request(challenge: Challenge) -> SlotRequest:
    """The slot that a Challenge requests."""
    meta, spec = challenge.metadata, challenge.spec
    owner = controller_of(meta)
    return SlotRequest(
        key=meta.key,
        order=owner.uid if owner is not None else meta.uid,
        subject=(spec.dns_name, spec.type),
    )


def is_offered(challenge: Challenge, authorization: Authorization) -> bool:
    """Whether the CA's authorization is for the Challenge's name, and offers its challenge."""
    spec = challenge.spec
    if authorization.wildcard != spec.wildcard or canonical(
        "dns", authorization.identifier.value
    ) != canonical("dns", spec.dns_name):
        return False
    return any(
        (offered.url, offered.token, offered.type) == (spec.url, spec.token, spec.type.lower())
        for offered in authorization.challenges
    )


class ChallengeTracker:
    """The progress of all Challenges, by key."""

    def __init__(self) -> None:
        self._progress: dict[ObjectKey, ChallengeProgress] = {}

    def stage_of(self, key: ObjectKey) -> Stage | None:
        """How far the Challenge of that name has come."""
        progress = self._progress.get(key)
        return progress.work.stage if progress is not None and progress.work is not None else None

    def of(self, challenge: Challenge) -> ChallengeProgress:
        """The progress of the Challenge; blank if none is known."""
        progress, uid = self._progress.get(challenge.metadata.key), challenge.metadata.uid
        return progress if progress is not None and progress.uid == uid else ChallengeProgress(uid)

    def keep(self, challenge: Challenge, progress: ChallengeProgress) -> None:
        """Replace the progress of the Challenge."""
        if progress == ChallengeProgress(progress.uid):
            self._progress.pop(challenge.metadata.key, None)
        else:
            self._progress[challenge.metadata.key] = progress

    def work_of(self, challenge: Challenge) -> Work:
        """The work for the Challenge, which MUST exist."""
        work = self.of(challenge).work
        assert work is not None
        return work

    def keep_work(self, challenge: Challenge, work: Work) -> None:
        """Replace the work for the Challenge."""
        self.keep(challenge, replace(self.of(challenge), work=work))

    def forget_work(self, challenge: Challenge) -> None:
        """Remove the work for the Challenge."""
        self.keep(challenge, replace(self.of(challenge), work=None))

    def pop_former(self, key: ObjectKey, challenge: Challenge | None) -> Work | None:
        """Remove the progress of an earlier object of that name. Returns its work."""
        progress = self._progress.get(key)
        if progress is None or (challenge is not None and challenge.metadata.uid == progress.uid):
            return None
        return self._progress.pop(key).work


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
    return await with_account(dataclasses.replace(task, key=key), issuer)


async def with_account(task: Task, issuer: ResolvedIssuer) -> Task:
    """The task with the account and the persistent record. Raises `AcmeError`."""
    kid = issuer.client.kid
    if task.type != challenges.DNS_PERSIST_01:
        return dataclasses.replace(task, account=kid)
    directory = await issuer.client.directory()
    return dataclasses.replace(task, account=kid, persistent=PersistentRecord(directory.caa_identities, kid))


async def make_work(challenge: Challenge, issuer: ResolvedIssuer | None, find_solver: FindSolver) -> Work:
    """The initial state, also after a restart: nothing is known. Without `issuer` it is only fit to be
    cleaned up, because the proof is computed from the account's key, not from the object. Raises
    `SolverError` and `AcmeError`."""
    solver, check = await find_solver(challenge)
    return Work(await task_of(challenge, issuer), solver, check)


def self_check(key: ObjectKey, work: Work, attempt: int) -> Callable[[], Awaitable[Ready | NotYet]]:
    """The self-check as a function that never raises and, at its first attempt, ends soon."""
    check, task = work.check, work.task
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
