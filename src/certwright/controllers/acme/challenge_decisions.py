"""The next step of a Challenge, as a pure function of what is known about it.

`next_step` reads a frozen `Snapshot` and returns a `Step`. It neither waits nor changes anything, so that
deciding twice on one snapshot gives the same step.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, assert_never

from msgspec.structs import replace

from certwright.acme.protocol.errors import AcmeError, Reaction, Refused
from certwright.acme.solvers.contract import NotYet, Ready, SolverError
from certwright.controllers.acme import announcing
from certwright.controllers.acme.announcing import Announced
from certwright.controllers.acme.challenge_state import (
    Accepted,
    Prepared,
    Presented,
    Proven,
    Visible,
    Work,
    is_blank,
    is_offered,
)
from certwright.controllers.acme.challenge_steps import (
    Accept,
    AcquireSlot,
    Admit,
    CheckAuthor,
    Compare,
    Enter,
    Fail,
    Hold,
    NotifyOrder,
    Poll,
    Prepare,
    Present,
    Refuse,
    RemoveFinalizer,
    RemoveProof,
    ResolveIssuer,
    Rest,
    Settle,
    Snapshot,
    StartCheck,
    Step,
)
from certwright.controllers.acme.pause import Pause
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.retry.backoff import LONGEST_OBEYED
from certwright.kit.outgoing import quote
from certwright.kube.runtime import idle_priority
from certwright.kube.util.durations import doubled, parse_duration
from certwright.resources import names
from certwright.resources.retry import parse_moment, with_not_before

if TYPE_CHECKING:
    # Loaded with the first Challenge only.
    from certwright.acme.protocol.orders import Authorization

VALID: Final = "Successfully authorized domain"
FINALIZERS: Final = frozenset({names.ACME_FINALIZER, names.ACME_FINALIZER_LEGACY})
_FIRST_CHECK = timedelta(seconds=0.25)
_LONGEST_POLL = timedelta(seconds=10)
# For a name that is never proven: the CA's authorization expires some day, and the CA reports it when asked.
_QUERY_CA_AFTER = timedelta(hours=6)
# A verdict that takes longer is worth four writes, because the reason is copied to four objects.
_VERDICT_UNTOLD = timedelta(seconds=3)
# A verdict is written if the Order, which knows it, has not ended by then. The Order may be delayed once for
# its last pass, and once more for the deletion of the Challenge.
_PROOF_UNTOLD = 2 * timedelta(seconds=idle_priority.AT_MOST_S)

# States of an authorization (RFC 8555 §7.1.6) that settle its challenge. Unknown ones are waited out, like
# unknown states of orders.
VERDICTS: Final = frozenset({"valid", "invalid", "deactivated", "expired", "revoked"})
_NOT_OFFERED = "the ACME server does not offer this challenge for this name at {}"


def next_step(known: Snapshot) -> Step:
    """The next step of an existing Challenge, whose memory is of the same UID."""
    status, facts, work = known.challenge.status, known.facts, known.memory.work
    if known.challenge.metadata.deletion_timestamp is not None:
        return _deleted(known)
    if status.is_final:
        return _final(known)
    if facts.error is not None:
        return _failed(known, facts.error)
    if work is not None and isinstance(work.stage, Proven):
        until = work.stage.proven_at + _PROOF_UNTOLD
        return Rest(until) if known.now < until else Settle(state="valid", reason=VALID)
    if facts.order_ended:
        return _stopped(known, facts.order_ended, "errored")
    match facts.issuer:
        case None:
            return ResolveIssuer()
        case Wait(is_final=True, why=why):
            return _stopped(known, why, "errored")
        case Wait() as wait:
            announced = Announced.of(wait.why, wait.until, known.now)
            return Hold(announced=announced, until=wait.until, releases=True)
        case ResolvedIssuer():
            return _with_issuer(known)
        case _:
            assert_never(facts.issuer)


def _with_issuer(known: Snapshot) -> Step:
    facts, work = known.facts, known.memory.work
    if problem := facts.refused or facts.problem:
        if facts.refused:
            return _stopped(known, problem)
        if work is None:
            return Refuse(problem)
        changed = "Given up, because the issuer or the Order has changed"
        return Refuse(f"{changed}: {problem.removeprefix('Refused: ')}", has_worked=True)
    if not facts.is_admitted:
        pause = work.pause if work is not None else None
        if pause is not None and known.now < pause.until and not facts.is_hurried:
            # The CA has named the time, or is unavailable: other wake-ups do not change that.
            return Rest(pause.until)
        named = parse_moment(known.challenge.metadata.annotations.get(names.NOT_BEFORE, ""))
        if work is None and named is not None and known.now < named:
            # Recorded before a restart.
            return Rest(min(named, known.now + LONGEST_OBEYED))
        return Admit()
    if work is None:
        return Prepare()
    if (compared := facts.compared) is not None:
        if not is_offered(known.challenge, compared):
            return Refuse(f"Refused: {_NOT_OFFERED.format(compared.url)}")
        if compared.status in VERDICTS:
            return _judged(known, compared)
    elif work.asked_at is None and _must_compare(known):
        return Compare()
    match work.stage:
        case Prepared():
            return Present()
        case Presented():
            return _presented(known, work, work.stage)
        case Visible():
            return _visible(known, work, work.stage)
        case Accepted():
            return _accepted(known, work.stage)
        case Proven():
            raise AssertionError("settled before an issuer is needed")
        case _:
            assert_never(work.stage)


def _must_compare(known: Snapshot) -> bool:
    """The previous process may have done more than it has written. And what this process has not read from
    the CA itself may be from another author."""
    status = known.challenge.status
    return status.processing or status.presented or not known.facts.is_described


def _presented(known: Snapshot, work: Work, stage: Presented) -> Step:
    patience = known.challenge.spec.solver.wait_instead_of_self_check
    if patience is not None or work.means.check is None:
        until = stage.presented_at + parse_duration(patience or "0s")
        if known.now >= until:
            return Enter(Visible(stage.presented_at))
        why = f"Waiting until {until:%Y-%m-%dT%H:%M:%SZ} before the CA is notified (waitInsteadOfSelfCheck)"
        return Hold(announced=Announced(why), until=until)
    if known.facts.not_yet is not None:
        return _not_visible(known, work, stage, known.facts.not_yet)
    match known.check:
        case Ready():
            return Enter(Visible(stage.presented_at))
        case NotYet() as not_yet:
            checks = stage.checks + 1
            delay = doubled(_FIRST_CHECK, checks, cap=_longest_wait(known, stage))
            check_at = known.now + max(delay, not_yet.not_before)
            return Enter(replace(stage, checks=checks, check_at=check_at), not_yet)
        case None:
            waits = stage.check_at is not None and known.now < stage.check_at
            return Rest(stage.check_at) if waits else StartCheck(stage.checks)
        case _:
            assert_never(known.check)


def _longest_wait(known: Snapshot, stage: Presented) -> timedelta:
    # A name that is not seen after an hour will not be seen in the next ten seconds either.
    age = known.now - stage.presented_at
    return max(known.check_period, min(age / 30, announcing.LONGEST_INTERVAL))


def _not_visible(known: Snapshot, work: Work, stage: Presented, not_yet: NotYet) -> Step:
    authorization = known.facts.authorization
    if authorization is not None and authorization.status in VERDICTS:
        return _judged(known, authorization)
    if authorization is None and known.now - (work.asked_at or stage.presented_at) > _QUERY_CA_AFTER:
        return Poll()
    reason = f"Waiting for {known.challenge.spec.type} challenge propagation: {not_yet.reason}"
    period = max(_longest_wait(known, stage), not_yet.not_before)
    announced = Announced(f"{reason}; checked again {announcing.within(period)}")
    return Hold(announced=announced, until=stage.check_at)


def _visible(known: Snapshot, work: Work, stage: Visible) -> Step:
    facts = known.facts
    if (waiting := _slot(known)) is not None:
        return waiting
    if facts.refusal is None:
        return Accept()
    # Accepted before a crash, or proven by another challenge since: the authorization shows which.
    if facts.authorization is None:
        return Poll()
    if facts.authorization.status in VERDICTS:
        return _judged(known, facts.authorization)
    states = {offered.type: offered.status for offered in facts.authorization.challenges}
    if facts.authorization.status == "pending" and states.get(work.task.type) != "processing":
        return Fail(facts.refusal)
    return Enter(Accepted(stage.presented_at, known.now))


def _accepted(known: Snapshot, stage: Accepted) -> Step:
    authorization = known.facts.authorization
    if (waiting := _slot(known)) is not None:
        return waiting
    if stage.poll_at is None:
        return _poll_later(known, stage, None)
    if authorization is None:
        return Rest(stage.poll_at) if known.now < stage.poll_at else Poll()
    return (
        _judged(known, authorization)
        if authorization.status in VERDICTS
        else _poll_later(known, stage, authorization)
    )


def _slot(known: Snapshot) -> Step | None:
    """None if the Challenge has a slot."""
    if known.facts.has_slot is None:
        return AcquireSlot()
    return None if known.facts.has_slot else Rest()


def _poll_later(known: Snapshot, stage: Accepted, authorization: Authorization | None) -> Step:
    retry_after = authorization.retry_after if authorization is not None else None
    why = "Waiting for the CA's verdict"
    if authorization is not None and authorization.status not in ("pending", "processing"):
        why = f'{why}: the CA calls the authorization "{quote(authorization.status, 40)}"'
    now, polls, since = known.now, stage.polls + 1, known.now - stage.accepted_at
    delay = doubled(known.first_poll, polls, cap=_LONGEST_POLL)
    delay = announcing.growing(since, at_least=delay, at_most=announcing.LONGEST_INTERVAL)
    poll_at = max(now + delay, retry_after or now)
    stage = replace(stage, polls=polls, poll_at=poll_at)
    if since < _VERDICT_UNTOLD and poll_at - now < announcing.RECURRING:
        return Rest(poll_at, stage)
    announced = Announced.of(why, poll_at, now, brief=announcing.RECURRING)
    return Hold(announced=announced, until=poll_at, stage=stage, is_processing=True)


def _judged(known: Snapshot, authorization: Authorization) -> Step:
    """The CA's verdict. The proof is removed first, because a final state means that nothing is left."""
    is_removed = known.facts.is_removed
    if is_removed is None:
        return RemoveProof(keeps_slot=True, is_answered=True)
    state = authorization.status if authorization.status in ("valid", "invalid", "expired") else "errored"
    if state == "valid":
        reason = VALID
    elif authorization.error is not None:
        reason = f"Error accepting authorization: {authorization.error.sentence_with_urn}"
    else:
        reason = f"the authorization is {quote(authorization.status, 40)}"
    if state == "valid" and is_removed and known.notifies_order and is_blank(known.challenge):
        return NotifyOrder(Proven(known.now), known.now + _PROOF_UNTOLD)
    return Settle(
        state=state,
        reason=reason,
        is_presented=not is_removed,
        retry_at=None if is_removed else known.retry_at,
        forgets=is_removed,
        event="" if state == "valid" else reason,
    )


def _failed(known: Snapshot, error: AcmeError | SolverError) -> Step:
    """A request to the CA or the solver has failed: the type of the error decides."""
    now, until, work = known.now, known.retry_at, known.memory.work
    if isinstance(error, SolverError):
        why, before = f"Error presenting challenge: {error}", known.memory.announced
        if error.not_before is not None:
            until = max(until, min(error.not_before, now + LONGEST_OBEYED))
        return Hold(
            announced=announcing.announced_retry(now, why, until),
            until=until,
            releases=True,
            # Another Secret, or another listener, may help: build the solver again.
            forgets=work is not None and work.presented_at is None,
            is_failure=True,
            event=why if before is None or not before.why.startswith(why) else "",
        )
    if error.reaction not in (Reaction.WAIT, Reaction.ACCOUNT):
        if work is not None and known.facts.is_removed is None:
            return RemoveProof(is_answered=isinstance(error, Refused))
        # What the CA does not know any more has expired: the Order decides whether to order again.
        is_lost = isinstance(error, Refused) and error.is_gone
        return Settle(
            state="expired" if is_lost else "errored",
            reason=error.in_full,
            is_presented=known.facts.is_removed is False,
            retry_at=until if known.facts.is_removed is False else None,
            forgets=False,
            event=error.in_full,
        )
    announced = announcing.announced_retry(now, str(error), until)
    named = error.retry_after if isinstance(error, Refused) else None
    if named is not None:
        until = max(min(named, now + LONGEST_OBEYED), now + timedelta(seconds=1))
        announced = Announced(with_not_before(str(error), until))
    return Hold(
        announced=announced,
        until=until,
        releases=True,
        is_failure=True,
        pause=Pause(until, now, is_ours=named is None),
        error=error,
        named=named,
    )


def _stopped(known: Snapshot, why: str, state: str = "") -> Step:
    """Stop a Challenge that is kept for reading; its proof is removed."""
    work = known.memory.work
    presented = known.challenge.status.presented if work is None else work.presented_at is not None
    if presented and (waiting := _without_proof(known)) is not None:
        return waiting
    return Settle(state=state, reason=why)


def _final(known: Snapshot) -> Step:
    """A final Challenge whose proof may still be presented."""
    if not known.challenge.status.presented:
        return Rest(releases=True, forgets=True)
    if (waiting := _without_proof(known)) is not None:
        return waiting
    return Rest() if known.facts.may_be_foreign else Settle()


def _deleted(known: Snapshot) -> Step:
    """A Challenge that is being deleted, while our finalizer keeps it until the proof is removed."""
    status, work = known.challenge.status, known.memory.work
    if not FINALIZERS & set(known.challenge.metadata.finalizers):
        return Rest(releases=True)
    is_proven = work is not None and isinstance(work.stage, Proven)
    may_be_presented = not is_proven and (status.presented or not status.is_final)
    waiting = _without_proof(known) if may_be_presented else None
    return RemoveFinalizer() if waiting is None else waiting


def _without_proof(known: Snapshot) -> Step | None:
    """None once the proof is removed, or must not be removed."""
    facts = known.facts
    if known.memory.work is None and facts.may_be_foreign is None:
        return CheckAuthor()
    if facts.may_be_foreign:
        return None
    match facts.is_removed:
        case None:
            return RemoveProof()
        case True:
            return None
        case False:
            return Rest(known.retry_at, is_failure=True)
