"""Prove one name: present the solution, self-check it, notify the CA, wait for its verdict, clean up.

Wakes on:  Challenge; an ended self-check; a slot that has become free; its issuer; Secrets of its solver
Reads:     Challenge, issuer
Writes:    Challenge.status: presented, processing, reason, state; the finalizer
Next:      orders

`ChallengeReconciler.reconcile` reads from top to bottom: each pass goes through the stages of a Challenge
until it must wait or has ended.

Short-lived states are not persisted: when a name is proven immediately, the Order is notified without a
write, and the Challenge is deleted with the Order's success; if it still exists then, its status becomes
valid.

Source: cert-manager design "ACME Order & Challenge CRDs"; `pkg/controller/acmechallenges/sync.go`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from certwright.acme.protocol import orders
from certwright.acme.protocol.errors import AcmeError, Reaction, Refused
from certwright.acme.protocol.orders import Authorization
from certwright.acme.solvers.contract import NotYet, Ready, SolverError, SolverNotAllowed
from certwright.controllers.acme import waits
from certwright.controllers.acme.challenge_progress import (
    Accepted,
    ChallengeTracker,
    FindSolver,
    Prepared,
    Presented,
    Proven,
    Stage,
    Visible,
    is_blank,
    is_offered,
    make_work,
    self_check,
    slot_request,
)
from certwright.controllers.acme.challenge_queues import SelfChecks, ValidationSlots
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.provenance import ChallengeOrigin
from certwright.controllers.acme.waits import Announced, Pause, Wait
from certwright.controllers.backoff import LONGEST_OBEYED
from certwright.controllers.cache.shard_filter import working_on
from certwright.controllers.precedence import flow_of
from certwright.controllers.toolbox import Toolbox
from certwright.kit.outgoing import quote
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime import idle_priority
from certwright.kube.runtime.controller import Result
from certwright.kube.util.durations import doubled, parse_duration
from certwright.resources import names
from certwright.resources.acme import Challenge
from certwright.resources.retry import parse_moment, with_not_before
from certwright.resources.table import CHALLENGES

VALID: Final = "Successfully authorized domain"
_FINALIZERS: Final = frozenset({names.ACME_FINALIZER, names.ACME_FINALIZER_LEGACY})
_FIRST_CHECK = timedelta(seconds=0.25)
_LONGEST_POLL = timedelta(seconds=10)
_FIRST_POLL, _SHORTEST_FIRST_POLL = timedelta(seconds=0.1), timedelta(seconds=0.05)
_LONGEST_FIRST_POLL = timedelta(seconds=1)
# Forty-nine of fifty first polls shall find the verdict: the delay settles where a step up for each miss
# equals 49 steps down for hits. Of many concurrent polls, one miss delays the end.
_UP, _DOWN = 1.25, 1.25 ** (-1 / 49)
# For a name that is never proven: the CA's authorization expires some day, and the CA reports it when asked.
_QUERY_CA_AFTER = timedelta(hours=6)
# A verdict that takes longer is worth four writes, because the reason is copied to four objects.
_VERDICT_UNTOLD = timedelta(seconds=3)
# A verdict is written if the Order, which knows it, has not ended by then. The Order may be delayed once for
# its last pass, and once more for the deletion of the Challenge.
_PROOF_UNTOLD = 2 * timedelta(seconds=idle_priority.AT_MOST_S)
# States of an authorization (RFC 8555 §7.1.6) that settle its challenge. Unknown states are waited out, like
# unknown states of orders.
_VERDICTS: Final = frozenset({"valid", "invalid", "deactivated", "expired", "revoked"})
# In place of the type of a problem document, where the CA has sent none.
_NO_RESPONSE = "noResponse"

_log = logging.getLogger(__name__)

StageT = TypeVar("StageT", bound=Stage)


class ChallengeTools(msgspec.Struct, frozen=True, kw_only=True):
    """The functions that the reconciler of Challenges calls; `Wiring` binds them. `resolve_issuer`:
    `IssuerResolver.find`; `find_solver`: `SolverLookup.find`. `wake` enqueues a Challenge; `enqueue_order`
    its Order, which then calls `is_proven`; None: every verdict is written immediately."""

    origin: ChallengeOrigin
    resolve_issuer: Callable[[Challenge], Awaitable[ResolvedIssuer | Wait]]
    find_solver: FindSolver
    circuit_gate: CircuitGate
    wake: Callable[[ObjectKey], None]
    enqueue_order: Callable[[Challenge], None] | None


class ChallengeReconciler:
    """Reconciles Challenges. `settings` limits the challenges under validation, the concurrent self-checks
    and their period. A Challenge that this process has not read from the CA itself is compared with the CA
    first."""

    def __init__(
        self, challenges: Informer[Challenge], toolbox: Toolbox, tools: ChallengeTools, settings: AcmeOptions
    ) -> None:
        self._challenges = challenges
        self._tools = tools
        self._status = toolbox.status_of(challenges)
        self._client = toolbox.client
        self._recorder = toolbox.recorder
        self._now = toolbox.now
        self._check_period = settings.dns01_check_period
        self._tracker = ChallengeTracker()
        self.refused: set[ObjectKey] = set()
        """Challenges that are not acted on until their Order changes."""
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self.slots = ValidationSlots(settings.max_concurrent_challenges, tools.wake)
        self.checks: SelfChecks[ObjectKey, Ready | NotYet] = SelfChecks(
            settings.concurrent_checks, tools.wake
        )

    async def close(self) -> None:
        """Cancel all self-checks."""
        await self.checks.close()

    def is_seen(self, key: ObjectKey) -> bool:
        """Whether this process has seen the proof in a self-check."""
        stage = self._tracker.stage_of(key)
        has_passed = isinstance(stage, Presented) and isinstance(self.checks.peek(key), Ready)
        return has_passed or isinstance(stage, Visible | Accepted | Proven)

    def is_proven(self, challenge: Challenge) -> bool:
        """Whether the CA has called the challenge valid, though its status may not say so yet."""
        work = self._tracker.of(challenge).work
        is_known = work is not None and isinstance(work.stage, Proven)
        return is_known or challenge.status.state == "valid"

    # --- a pass -------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """Advance the Challenge until it must wait or has ended. Raises what writes to the API raise."""
        # A pass continues from its own writes: writing a reason with the next try must not requeue it.
        with working_on(CHALLENGES, key):
            challenge = self._challenges.cache.get(key)
            former = self._tracker.pop_former(key, challenge)
            if former is not None:
                self._release(key)
                if not isinstance(former.stage, Proven):
                    # The Challenge was deleted without our finalizer, because only this process presents it.
                    try:
                        await former.solver.clean_up(former.task)
                    except SolverError as error:
                        _log.warning("%s: the proof could not be removed: %s", key, error)
            if challenge is None:
                self.refused.discard(key)
                return Result()
            if challenge.metadata.deletion_timestamp is not None:
                return await self._delete(challenge)
            if not challenge.status.is_final:
                return await self._advance(challenge)
            if not challenge.status.presented:
                self._release(key)
                self._tracker.forget_work(challenge)
                return Result()
            # A verdict is written though the proof could not be removed.
            match await self._remove_proof(challenge):
                case True:
                    return await self._settle(challenge)
                case False:
                    return self._retry(challenge)
                case None:
                    return Result()

    async def _delete(self, challenge: Challenge) -> Result:
        """Remove the proof, then our finalizer, which keeps a Challenge that is being deleted until then."""
        status, meta, work = challenge.status, challenge.metadata, self._tracker.of(challenge).work
        if not _FINALIZERS & set(meta.finalizers):
            self._release(meta.key)
            return Result()
        is_proven = work is not None and isinstance(work.stage, Proven)
        may_be_presented = not is_proven and (status.presented or not status.is_final)
        if may_be_presented and await self._remove_proof(challenge) is False:
            return self._retry(challenge)
        self._release(meta.key)
        with suppress(NotFound):
            finalizers = [name for name in meta.finalizers if name not in _FINALIZERS]
            await self._patch(challenge, finalizers=finalizers)
        self._tracker.forget_work(challenge)
        return Result()

    async def _advance(self, challenge: Challenge) -> Result:
        tools, key, now = self._tools, challenge.metadata.key, self._now()
        work = self._tracker.of(challenge).work
        if work is not None and isinstance(work.stage, Proven):
            until = work.stage.proven_at + _PROOF_UNTOLD
            if now < until:
                return Result(wake_at=until)
            return await self._settle(challenge, state="valid", reason=VALID)
        if ended := tools.origin.order_ended(challenge):
            return await self._stop(challenge, ended, "errored")
        issuer = await tools.resolve_issuer(challenge)
        if isinstance(issuer, Wait):
            if issuer.is_final:
                return await self._stop(challenge, issuer.why, "errored")
            return await self._wait(challenge, issuer)
        if problem := tools.origin.problem(challenge, issuer):
            if work is None:
                return await self._refuse(challenge, problem)
            changed = "Given up, because the issuer or the Order has changed"
            why = f"{changed}: {problem.removeprefix('Refused: ')}"
            return await self._refuse(challenge, why, has_worked=True)
        self.refused.discard(key)

        if work is None:
            named = parse_moment(challenge.metadata.annotations.get(names.NOT_BEFORE, ""))
            if named is not None and now < named:
                # Recorded before a restart.
                return Result(wake_at=min(named, now + LONGEST_OBEYED))
        elif (
            (pause := work.pause) is not None
            and now < pause.until
            and not (pause.is_ours and tools.circuit_gate.ends_pause(challenge, pause.since))
        ):
            # The CA has named the time, or is unavailable: other wake-ups do not change that.
            return Result(wake_at=pause.until)
        if (wait := tools.circuit_gate.admit_continuation(challenge)) is not None:
            return await self._wait(challenge, wait)
        try:
            result = await self._prove(challenge, issuer)
        except (AcmeError, SolverError) as error:
            return await self._failed(challenge, error)
        self._tracker.keep(challenge, replace(self._tracker.of(challenge), failures=0))
        return result

    # --- the proof ----------------------------------------------------------------------------------------

    async def _prove(self, challenge: Challenge, issuer: ResolvedIssuer) -> Result:
        """Take the Challenge through the stages that are left. Raises `AcmeError`, `SolverError`."""
        status, work = challenge.status, self._tracker.of(challenge).work
        if work is None:
            work = await make_work(challenge, issuer, self._tools.find_solver)
            self._tracker.keep_work(challenge, work)
        # The previous process may have done more than it has written. And what this process has not read from
        # the CA itself may be from another author.
        is_trusted = not (status.processing or status.presented) and self._tools.origin.is_described(
            challenge
        )
        if work.asked_at is None and not is_trusted:
            authorization = await self._fetch(challenge, issuer)
            if not is_offered(challenge, authorization):
                why = "the ACME server does not offer this challenge for this name at"
                return await self._refuse(challenge, f"Refused: {why} {authorization.url}")
            if authorization.status in _VERDICTS:
                return await self._judge(challenge, authorization)

        stage = work.stage
        if isinstance(stage, Prepared):
            await work.solver.present(work.task)
            stage = self._enter(challenge, Presented(status.presented_at or self._now()))
        if isinstance(stage, Presented):
            if (waiting := await self._check(challenge, issuer, stage)) is not None:
                return waiting
            stage = self._enter(challenge, Visible(stage.presented_at))

        if not self.slots.acquire(slot_request(challenge)):
            return Result()
        if isinstance(stage, Visible):
            try:
                await issuer.client.run(orders.accept_challenge, challenge.spec.url)
            except Refused as error:
                if error.reaction in (Reaction.WAIT, Reaction.ACCOUNT):
                    raise
                # Accepted before a crash, or proven by another challenge since: the authorization shows it.
                authorization = await self._fetch(challenge, issuer)
                if authorization.status in _VERDICTS:
                    return await self._judge(challenge, authorization)
                states = {offered.type: offered.status for offered in authorization.challenges}
                if authorization.status == "pending" and states.get(work.task.type) != "processing":
                    raise
            stage = self._enter(challenge, Accepted(stage.presented_at, self._now()))
        assert isinstance(stage, Accepted)
        if stage.poll_at is None:
            return await self._poll_later(challenge, issuer, stage, None)
        if self._now() < stage.poll_at:
            return Result(wake_at=stage.poll_at)
        authorization = await self._fetch(challenge, issuer)
        if authorization.status in _VERDICTS:
            return await self._judge(challenge, authorization)
        return await self._poll_later(challenge, issuer, stage, authorization)

    async def _check(self, challenge: Challenge, issuer: ResolvedIssuer, stage: Presented) -> Result | None:
        """Self-check the presented solution, or wait instead of it. Returns how the pass ends; None: the CA
        can be notified. Raises `AcmeError`."""
        key, spec, now = challenge.metadata.key, challenge.spec, self._now()
        work = self._tracker.work_of(challenge)
        patience = spec.solver.wait_instead_of_self_check
        if patience is not None or work.check is None:
            until = stage.presented_at + parse_duration(patience or "0s")
            if now >= until:
                return None
            why = (
                f"Waiting until {until:%Y-%m-%dT%H:%M:%SZ} before the CA is notified (waitInsteadOfSelfCheck)"
            )
            return await self._hold(challenge, Announced(why), until)
        if self.checks.peek(key) is None:
            if stage.check_at is not None and now < stage.check_at:
                return Result(wake_at=stage.check_at)
            # The self-check wakes the Challenge when it ends.
            flow = flow_of(key, spec.issuer_ref, spec.dns_name)
            self.checks.start(key, self_check(key, work, stage.checks), attempt=stage.checks, flow=flow)
            return Result()
        result = self.checks.pop(key)
        if not isinstance(result, NotYet):
            return None

        # A name that is not seen after an hour will not be seen in the next ten seconds either.
        longest = max(self._check_period, min((now - stage.presented_at) / 30, waits.LONGEST_INTERVAL))
        delay = doubled(_FIRST_CHECK, stage.checks + 1, cap=longest)
        check_at = now + max(delay, result.not_before)
        self._enter(challenge, replace(stage, checks=stage.checks + 1, check_at=check_at))
        if now - (work.asked_at or stage.presented_at) > _QUERY_CA_AFTER:
            authorization = await self._fetch(challenge, issuer)
            if authorization.status in _VERDICTS:
                return await self._judge(challenge, authorization)
        reason = f"Waiting for {spec.type} challenge propagation: {result.reason}"
        period = waits.within(max(longest, result.not_before))
        return await self._hold(challenge, Announced(f"{reason}; checked again {period}"), check_at)

    async def _fetch(self, challenge: Challenge, issuer: ResolvedIssuer) -> Authorization:
        now, work = self._now(), self._tracker.work_of(challenge)
        answer = await issuer.client.run(orders.fetch_authorization, challenge.spec.authorization_url)
        self._tracker.keep_work(challenge, dataclasses.replace(work, asked_at=now))
        if isinstance(work.stage, Accepted) and work.stage.polls == 1:
            pace = self._paces[issuer.client.directory_url]
            pace.asked(after=now - work.stage.accepted_at, is_there=answer.status in _VERDICTS)
        return answer

    async def _poll_later(
        self,
        challenge: Challenge,
        issuer: ResolvedIssuer,
        stage: Accepted,
        authorization: Authorization | None,
    ) -> Result:
        """Wait for the CA's verdict; `authorization` as polled last."""
        now, polls, since = self._now(), stage.polls + 1, self._now() - stage.accepted_at
        retry_after = authorization.retry_after if authorization is not None else None
        why = "Waiting for the CA's verdict"
        if authorization is not None and authorization.status not in ("pending", "processing"):
            why = f'{why}: the CA calls the authorization "{quote(authorization.status, 40)}"'
        delay = doubled(self._paces[issuer.client.directory_url].delay, polls, cap=_LONGEST_POLL)
        delay = waits.growing(since, at_least=delay, at_most=waits.LONGEST_INTERVAL)
        poll_at = max(now + delay, retry_after or now)
        self._enter(challenge, replace(stage, polls=polls, poll_at=poll_at))
        if since < _VERDICT_UNTOLD and poll_at - now < waits.RECURRING:
            return Result(wake_at=poll_at)
        if retry_after is not None:
            # `certwright renew` does not override a time that the CA has named.
            named = {names.NOT_BEFORE: poll_at.astimezone(UTC).isoformat()}
            challenge = await self._patch(challenge, annotations=named)
        announced = Announced.of(why, poll_at, now, brief=waits.RECURRING)
        return await self._hold(challenge, announced, poll_at, is_processing=True)

    async def _judge(self, challenge: Challenge, authorization: Authorization) -> Result:
        """Settle the Challenge by the CA's verdict. The proof is removed first, because a final state means
        that nothing is left."""
        self._tools.circuit_gate.record_answer(challenge)
        # The slot is kept until the verdict is written.
        is_removed = await self._clean_up(challenge)
        state = authorization.status if authorization.status in ("valid", "invalid", "expired") else "errored"
        if state == "valid":
            enqueue_order = self._tools.enqueue_order
            if is_removed and enqueue_order is not None and is_blank(challenge):
                now = self._now()
                self._enter(challenge, Proven(now))
                self._release(challenge.metadata.key)
                enqueue_order(challenge)
                return Result(wake_at=now + _PROOF_UNTOLD)
            reason = VALID
        elif authorization.error is not None:
            reason = f"Error accepting authorization: {authorization.error.sentence_with_urn}"
        else:
            reason = f"the authorization is {quote(authorization.status, 40)}"
        event = "" if state == "valid" else reason
        return await self._settle(
            challenge, state=state, reason=reason, is_removed=is_removed, forgets=is_removed, event=event
        )

    # --- ends ---------------------------------------------------------------------------------------------

    async def _failed(self, challenge: Challenge, error: AcmeError | SolverError) -> Result:
        """End the pass after a failed request to the CA or the solver: the type of the error decides whether
        the Challenge ends or waits."""
        now, progress, key = self._now(), self._tracker.of(challenge), challenge.metadata.key
        work, until = progress.work, self._retry_at(challenge)
        if isinstance(error, SolverError):
            why = f"Error presenting challenge: {error}"
            if error.not_before is not None:
                until = max(until, min(error.not_before, now + LONGEST_OBEYED))
            self._release(key)
            if progress.announced is None or not progress.announced.why.startswith(why):
                self._recorder.event(CHALLENGES, challenge, "Warning", "PresentError", why)
            if work is not None and work.presented_at is None:
                # Another Secret, or another listener, may help: the solver is built again.
                work = None
            self._tracker.keep(challenge, replace(progress, work=work, failures=progress.failures + 1))
            return await self._hold(challenge, waits.announced_retry(now, why, until), until)

        refused = error if isinstance(error, Refused) else None
        if error.reaction not in (Reaction.WAIT, Reaction.ACCOUNT):
            is_removed = True
            if work is not None:
                if refused is not None:
                    self._tools.circuit_gate.record_answer(challenge)
                is_removed = await self._clean_up(challenge)
            # What the CA does not know any more has expired: the Order decides whether to order again.
            state = "expired" if refused is not None and refused.is_gone else "errored"
            return await self._settle(
                challenge,
                state=state,
                reason=error.in_full,
                is_removed=is_removed,
                forgets=False,
                event=error.in_full,
            )

        announced = waits.announced_retry(now, str(error), until)
        problem = {names.ACME_PROBLEM: refused.problem.name if refused is not None else _NO_RESPONSE}
        named = refused.retry_after if refused is not None else None
        if named is not None:
            until = max(min(named, now + LONGEST_OBEYED), now + timedelta(seconds=1))
            announced = Announced(with_not_before(str(error), until))
            problem[names.NOT_BEFORE] = until.astimezone(UTC).isoformat()
        self._release(key)
        if work is not None:
            # The CA must not be asked meanwhile.
            work = dataclasses.replace(work, pause=Pause(until, now, is_ours=named is None))
        self._tracker.keep(challenge, replace(progress, work=work, failures=progress.failures + 1))
        self._tools.circuit_gate.record_failure(challenge, error, named)
        challenge = await self._patch(challenge, annotations=problem)
        return await self._hold(challenge, announced, until)

    async def _refuse(self, challenge: Challenge, problem: str, *, has_worked: bool = False) -> Result:
        """Do not act on the Challenge until its Order changes. `has_worked`: this process has, so that the
        issuer or the Order has changed since."""
        self.refused.add(challenge.metadata.key)
        if challenge.status.reason != problem:
            if has_worked:
                self._recorder.event(CHALLENGES, challenge, "Normal", "Superseded", problem)
            else:
                self._recorder.event(CHALLENGES, challenge, "Warning", "Refused", problem)
        return await self._stop(challenge, problem)

    async def _stop(self, challenge: Challenge, why: str, state: str = "") -> Result:
        """Stop a Challenge that is kept for users to read; its proof is removed."""
        work = self._tracker.of(challenge).work
        is_presented = challenge.status.presented if work is None else work.presented_at is not None
        if is_presented and await self._remove_proof(challenge) is False:
            return self._retry(challenge)
        return await self._settle(challenge, state=state, reason=why)

    async def _settle(
        self,
        challenge: Challenge,
        *,
        state: str = "",
        reason: str | None = None,
        is_removed: bool = True,
        forgets: bool = True,
        event: str = "",
    ) -> Result:
        """Write a state to stay. `state` "": it does not change; `reason` None: likewise. `is_removed` False:
        the removal of the proof is to be retried. `forgets`: the work. `event`: a Warning to record."""
        changes: dict[str, Any] = {"state": state} if state else {}
        if reason is not None:
            changes["reason"] = reason
        await self._write(challenge, processing=False, presented=not is_removed, **changes)
        result = Result() if is_removed else self._retry(challenge)
        self._release(challenge.metadata.key)
        if forgets:
            self._tracker.forget_work(challenge)
        if event:
            self._recorder.event(CHALLENGES, challenge, "Warning", "Failed", event)
        return result

    async def _remove_proof(self, challenge: Challenge) -> bool | None:
        """Remove the proof, and release the slot. False: it must be tried again; None: no solver runs,
        because another author may have written the Challenge."""
        self._release(challenge.metadata.key)
        if self._tracker.of(challenge).work is None:
            problem = await self._tools.origin.problem_of_clean_up(challenge)
            if problem and challenge.status.presented:
                message = f"No solver was run to remove a proof that may still be shown: {problem}"
                self._recorder.event(CHALLENGES, challenge, "Warning", "CleanUpSkipped", message)
            if problem:
                return None
        return await self._clean_up(challenge)

    async def _clean_up(self, challenge: Challenge) -> bool:
        """Run the solver's clean-up; return whether that is done. Errors are reported."""
        try:
            work = self._tracker.of(challenge).work
            work = work or await make_work(challenge, None, self._tools.find_solver)
            await work.solver.clean_up(work.task)
        except SolverError as error:
            # Only a process with other flags can have shown what is not allowed here: this process must not
            # keep the object.
            is_done = isinstance(error, SolverNotAllowed)
            left = "a proof shown earlier, if any, is left in place: " if is_done else ""
            message = f"Error cleaning up challenge: {left}{error}"
            self._recorder.event(CHALLENGES, challenge, "Warning", "CleanUpError", message)
            return is_done
        return True

    # --- waits and writes ---------------------------------------------------------------------------------

    def _retry_at(self, challenge: Challenge) -> datetime:
        """When to try again after one failure more."""
        failures = self._tracker.of(challenge).failures + 1
        return self._now() + doubled(timedelta(seconds=1), failures, cap=waits.LONGEST_INTERVAL)

    def _retry(self, challenge: Challenge) -> Result:
        """Count a failure, and try again."""
        until, progress = self._retry_at(challenge), self._tracker.of(challenge)
        self._tracker.keep(challenge, replace(progress, failures=progress.failures + 1))
        return Result(wake_at=until)

    async def _wait(self, challenge: Challenge, wait: Wait) -> Result:
        self._release(challenge.metadata.key)
        return await self._hold(challenge, Announced.of(wait.why, wait.until, self._now()), wait.until)

    async def _hold(
        self,
        challenge: Challenge,
        announced: Announced,
        until: datetime | None,
        *,
        is_processing: bool = False,
    ) -> Result:
        """Wait with a written reason."""
        progress, reason = self._tracker.of(challenge), challenge.status.reason
        if not reason or announced.is_news(progress.announced, self._now()):
            self._tracker.keep(challenge, replace(progress, announced=announced))
            reason = announced.text
        at = progress.work.presented_at if progress.work is not None else None
        at = at.replace(microsecond=0) if at is not None else None
        await self._write(
            challenge,
            reason=reason,
            state="processing" if is_processing else "pending",
            processing=is_processing,
            presented=at is not None or challenge.status.presented,
            presented_at=at or challenge.status.presented_at,
        )
        return Result(wake_at=until)

    def _enter(self, challenge: Challenge, stage: StageT) -> StageT:
        self._tracker.keep_work(challenge, dataclasses.replace(self._tracker.work_of(challenge), stage=stage))
        return stage

    def _release(self, key: ObjectKey) -> None:
        self.slots.release(key)
        self.checks.forget(key)

    async def _patch(self, challenge: Challenge, **metadata: Any) -> Challenge:
        meta = challenge.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version, **metadata}}
        written = await self._client.patch(CHALLENGES, meta.name, meta.namespace, patch)
        self._challenges.put(written)
        return written

    async def _write(self, challenge: Challenge, **changes: Any) -> None:
        status = msgspec.structs.replace(challenge.status, **changes)
        with suppress(NotFound):
            changed = msgspec.structs.replace(challenge, status=status)
            await self._status.commit(CHALLENGES, challenge, changed)


class Pace:
    """The wait before a first poll of a server, estimated from its last validations: 0.1 s in the beginning,
    later between 0.05 s and 1 s.

    A server that is polled too early names a time for the next poll, usually a second away: a poll that comes
    50 ms too early costs a second, and a request.
    """

    def __init__(self) -> None:
        self.delay = _FIRST_POLL

    def asked(self, *, after: timedelta, is_there: bool) -> None:
        """Record whether a first poll, so long after the server was notified, has found a verdict.

        Sixty concurrent early polls count as one: polls after the first, which had not waited as long as a
        poll would now, change nothing.
        """
        if is_there:
            self.delay = max(self.delay * _DOWN, _SHORTEST_FIRST_POLL)
        elif after >= self.delay:
            self.delay = min(self.delay * _UP, _LONGEST_FIRST_POLL)
