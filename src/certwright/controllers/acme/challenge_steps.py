"""The steps of a Challenge, and what is known when the next one is decided: values only.

`challenge_decisions.py` decides, `challenges.py` carries out. A step that reads or does something adds a
fact, and the next step of the same pass follows from it; the others end the pass.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.acme.solvers.contract import NotYet, Ready, SolverError
from certwright.controllers.acme import announcing
from certwright.controllers.acme.announcing import Announced
from certwright.controllers.acme.challenge_state import Memory, Proven, Stage
from certwright.controllers.acme.pause import Pause
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.kube.util.durations import doubled
from certwright.resources.acme import Challenge

if TYPE_CHECKING:
    # Loaded with the first Challenge only.
    from certwright.acme.protocol.orders import Authorization


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps of one pass have found out so far; None: not yet.

    `order_ended`: the Challenge's Order has failed, as a sentence. `issuer`: its issuer and account, or why
    there is none. `problem`: why it must not be acted on. `is_described`: this process has read it from the
    CA for its Order. `is_hurried`: its pause is cut short. `is_admitted`: the circuit breaker lets it ask the
    CA. `compared` and `authorization`: the CA's authorization, on first sight and when polled. `not_yet`: the
    self-check that has just failed. `refusal`: the CA did not accept the challenge. `refused`: it is reported
    that the Challenge is not acted on. `may_be_foreign`: another author may have written it. `is_removed`:
    the proof is no longer presented, or could not be removed.
    """

    order_ended: str = ""
    issuer: ResolvedIssuer | Wait | None = None
    problem: str = ""
    is_described: bool = False
    is_hurried: bool = False
    is_admitted: bool = False
    compared: Authorization | None = None
    authorization: Authorization | None = None
    not_yet: NotYet | None = None
    has_slot: bool | None = None
    refusal: Refused | None = None
    error: AcmeError | SolverError | None = None
    refused: str = ""
    may_be_foreign: bool | None = None
    is_removed: bool | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides the next step. `check`: the result of a self-check that has ended. `first_poll`: the
    wait before a first poll of the CA. `check_period`: the longest wait between two self-checks of a recent
    challenge. `notifies_order`: the Order learns of a proof without a write."""

    challenge: Challenge
    memory: Memory
    now: datetime
    facts: Facts = Facts()
    check: Ready | NotYet | None = None
    first_poll: timedelta = timedelta(seconds=0.1)
    check_period: timedelta = timedelta(seconds=10)
    notifies_order: bool = False

    @property
    def retry_at(self) -> datetime:
        """When to try again after one failure more."""
        wait = doubled(timedelta(seconds=1), self.memory.failures + 1, cap=announcing.LONGEST_INTERVAL)
        return self.now + wait


# Steps that add a fact; the pass continues.


class ResolveIssuer(msgspec.Struct, frozen=True):
    """Find the issuer and its account, and check who wrote the Challenge."""


class Admit(msgspec.Struct, frozen=True):
    """Ask the circuit breaker whether the CA may be asked."""


class Prepare(msgspec.Struct, frozen=True):
    """Build the solver and the task."""


class Compare(msgspec.Struct, frozen=True):
    """Read the authorization from the CA before the Challenge is trusted."""


class Present(msgspec.Struct, frozen=True):
    """Present the solution."""


class Enter(msgspec.Struct, frozen=True):
    """Only the stage changes. `not_yet`: because of this self-check."""

    stage: Stage
    not_yet: NotYet | None = None


class AcquireSlot(msgspec.Struct, frozen=True):
    """Request a slot from the scheduler."""


class Accept(msgspec.Struct, frozen=True):
    """Notify the CA that the challenge can be validated."""


class Poll(msgspec.Struct, frozen=True):
    """Ask the CA for the authorization."""


class Fail(msgspec.Struct, frozen=True):
    """The CA's refusal to accept the challenge stands: the error decides how the pass ends."""

    error: Refused


class Refuse(msgspec.Struct, frozen=True):
    """Report that the Challenge is not acted on until its Order changes. `has_worked`: this process has, so
    that the issuer or the Order has changed since."""

    problem: str
    has_worked: bool = False


class CheckAuthor(msgspec.Struct, frozen=True):
    """Check whether another author may have written the Challenge: then no solver runs for it."""


class RemoveProof(msgspec.Struct, frozen=True):
    """Run the solver's clean-up. `keeps_slot`: until the verdict is written. `is_answered`: the CA has
    responded about this challenge, so that its issuer works."""

    keeps_slot: bool = False
    is_answered: bool = False


# Steps that end the pass.


class Rest(msgspec.Struct, frozen=True):
    """Wait, without a write, until `until` or a change. `releases`: the slot; `forgets`: the work;
    `is_failure`: one more in a row."""

    until: datetime | None = None
    stage: Stage | None = None
    releases: bool = False
    forgets: bool = False
    is_failure: bool = False


class StartCheck(msgspec.Struct, frozen=True):
    """Enqueue a self-check, which wakes the Challenge when it ends."""

    attempt: int


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Wait with a written reason. `event`: a Warning to record. `pause`: the CA must not be asked meanwhile,
    because of `error`, for which it may have named a time (`named`)."""

    announced: Announced
    until: datetime | None
    stage: Stage | None = None
    is_processing: bool = False
    releases: bool = False
    forgets: bool = False
    is_failure: bool = False
    event: str = ""
    pause: Pause | None = None
    error: AcmeError | None = None
    named: datetime | None = None


class NotifyOrder(msgspec.Struct, frozen=True):
    """Report the proof to the Order without a write; it is written at `until` if it still matters."""

    stage: Proven
    until: datetime


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """Write a state to stay. `state` "": it does not change; `reason` None: likewise. `is_presented`: the
    proof could not be removed, which is retried at `retry_at`. `event`: a Warning to record."""

    state: str = ""
    reason: str | None = None
    is_presented: bool = False
    retry_at: datetime | None = None
    forgets: bool = True
    event: str = ""


class RemoveFinalizer(msgspec.Struct, frozen=True):
    """Let the API server delete the Challenge."""


Request = Prepare | Compare | Present | Accept | Poll
"""Steps that the CA or a solver can refuse."""

Inquiry = ResolveIssuer | Admit | Enter | AcquireSlot | Fail | Refuse | CheckAuthor | RemoveProof
"""The other steps that add a fact."""

Ending = Rest | StartCheck | Hold | NotifyOrder | Settle | RemoveFinalizer
"""Steps that end the pass."""

Step = Request | Inquiry | Ending
