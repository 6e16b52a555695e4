"""Prove one name: present the solution, self-check it, notify the CA, wait for its verdict, clean up.

Wakes on:  Challenge; an ended self-check; a slot that has become free; its issuer; Secrets of its solver
Reads:     Challenge, issuer
Writes:    Challenge.status: presented, processing, reason, state; the finalizer
Next:      orders

Short-lived states are not persisted: when a name is proven immediately, the Order is notified without a
write, and the Challenge is deleted with the Order's success; if it still exists then, its status becomes
valid.

What is done next is decided in `challenge_decisions.py`; this module carries it out.

Source: cert-manager design "ACME Order & Challenge CRDs"; `pkg/controller/acmechallenges/sync.go`.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, assert_never

import msgspec
from msgspec.structs import replace

from certwright.acme.protocol import orders
from certwright.acme.protocol.errors import AcmeError, Reaction, Refused
from certwright.acme.protocol.orders import Authorization
from certwright.acme.solvers.contract import NotYet, Ready, SolverError
from certwright.controllers.acme import challenge_solving
from certwright.controllers.acme import challenge_steps as steps
from certwright.controllers.acme.challenge_decisions import FINALIZERS, VERDICTS, next_step
from certwright.controllers.acme.challenge_state import (
    Accepted,
    Memories,
    Presented,
    Proven,
    Visible,
    Work,
    slot_request,
)
from certwright.controllers.acme.challenge_steps import Facts, Snapshot, Step
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.pace import Pace
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.acme.scheduler import Slots
from certwright.controllers.acme.self_checks import Checks
from certwright.controllers.cache.own_writes import working_on
from certwright.controllers.precedence import flow_of
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.resources.acme import Challenge
from certwright.resources.table import CHALLENGES


class Origin(Protocol):
    """Where a Challenge comes from: see `challenge_origin.py`."""

    def problem(self, challenge: Challenge, issuer: ResolvedIssuer) -> str:
        """Why the Challenge must not be acted on, as a sentence; empty where it may be."""

    async def problem_of_clean_up(self, challenge: Challenge) -> str:
        """The same for a Challenge that is being deleted."""

    def is_described(self, challenge: Challenge) -> bool:
        """Whether this process has read the challenge from the CA itself."""

    def order_ended(self, challenge: Challenge) -> str:
        """That the Challenge's Order has failed, as a sentence; empty where it has not."""


class ChallengeTools(msgspec.Struct, frozen=True, kw_only=True):
    """What the reconciler calls. `wake` enqueues a Challenge, `enqueue_order` the Order of one, which then
    calls `is_proven`; None: every verdict is written immediately."""

    origin: Origin
    resolve_issuer: Callable[[Challenge], Awaitable[ResolvedIssuer | Wait]]
    find_means: challenge_solving.FindMeans
    circuit_gate: CircuitGate
    wake: Callable[[ObjectKey], None]
    enqueue_order: Callable[[Challenge], None] | None


class ChallengeReconciler:
    """Of the settings: the number of challenges that are with the CA, of self-checks, and the longest wait
    between two self-checks of a recent challenge. A Challenge that this process has not read from the CA
    itself is compared with the CA first."""

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
        self._memories = Memories()
        self.refused: set[ObjectKey] = set()
        """Challenges that are not acted on until their Order changes."""
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)

        def granted(key: Hashable) -> None:
            assert isinstance(key, ObjectKey)
            tools.wake(key)

        self.slots = Slots(settings.max_concurrent_challenges, granted)
        self.checks: Checks[ObjectKey, Ready | NotYet] = Checks(settings.concurrent_checks, tools.wake)

    async def close(self) -> None:
        """Cancel all self-checks."""
        await self.checks.close()

    def is_seen(self, key: ObjectKey) -> bool:
        """Whether this process has seen the proof in a self-check."""
        stage = self._memories.stage_of(key)
        has_passed = isinstance(stage, Presented) and isinstance(self.checks.peek(key), Ready)
        return has_passed or isinstance(stage, Visible | Accepted | Proven)

    def is_proven(self, challenge: Challenge) -> bool:
        """Whether the CA has called the challenge valid, though its status may not say so yet."""
        work = self._memories.of(challenge).work
        is_known = work is not None and isinstance(work.stage, Proven)
        return is_known or challenge.status.state == "valid"

    async def reconcile(self, key: ObjectKey) -> Result:
        """Take steps until one ends the pass. Raises what writes to the API raise."""
        # A pass continues from its own writes: a reason that names the next try must not cause it.
        with working_on(CHALLENGES, key):
            return await self._pass(key)

    async def _pass(self, key: ObjectKey) -> Result:
        challenge = self._challenges.cache.get(key)
        former = self._memories.pop_former(key, challenge)
        if former is not None:
            self._release(key)
            await challenge_solving.discard(key, former)
        if challenge is None:
            self.refused.discard(key)
            return Result()
        facts = Facts(order_ended=self._tools.origin.order_ended(challenge))
        while True:
            known = self._snapshot(challenge, facts)
            outcome = await self._carry_out(next_step(known), known)
            if isinstance(outcome, Result):
                if facts.is_admitted and facts.error is None:
                    self._memories.keep(challenge, replace(self._memories.of(challenge), failures=0))
                return outcome
            facts = outcome

    def _snapshot(self, challenge: Challenge, facts: Facts) -> Snapshot:
        issuer = facts.issuer
        return Snapshot(
            challenge=challenge,
            memory=self._memories.of(challenge),
            now=self._now(),
            facts=facts,
            check=self.checks.peek(challenge.metadata.key),
            first_poll=self._pace_of(issuer).delay if isinstance(issuer, ResolvedIssuer) else timedelta(0),
            check_period=self._check_period,
            notifies_order=self._tools.enqueue_order is not None,
        )

    async def _carry_out(self, step: Step, known: Snapshot) -> Facts | Result:
        """Do what the step says. Returns what is known now, or how the pass ends."""
        if isinstance(step, steps.Request):
            try:
                return await self._request(step, known)
            except (AcmeError, SolverError) as error:
                return replace(known.facts, error=error)
        if isinstance(step, steps.Inquiry):
            return await self._learn(step, known)
        return await self._end_pass(step, known)

    async def _request(self, step: steps.Request, known: Snapshot) -> Facts:
        """Steps that the CA or a solver can refuse. Raises `AcmeError`, `SolverError`."""
        challenge, facts, issuer, work = known.challenge, known.facts, known.facts.issuer, known.memory.work
        assert isinstance(issuer, ResolvedIssuer)
        if isinstance(step, steps.Prepare):
            made = await challenge_solving.make_work(challenge, issuer, self._tools.find_means)
            self._memories.keep_work(challenge, made)
            return facts
        assert work is not None
        match step:
            case steps.Present():
                await work.means.solver.present(work.task)
                presented_at = challenge.status.presented_at or self._now()
                self._memories.keep_work(challenge, dataclasses.replace(work, stage=Presented(presented_at)))
                return facts
            case steps.Compare():
                return replace(facts, compared=await self._fetch(challenge, work, issuer))
            case steps.Poll():
                return replace(facts, authorization=await self._fetch(challenge, work, issuer))
            case steps.Accept():
                return await self._accept(known, work, issuer)
            case _:
                assert_never(step)

    async def _accept(self, known: Snapshot, work: Work, issuer: ResolvedIssuer) -> Facts:
        assert isinstance(work.stage, Visible)
        try:
            await issuer.client.run(orders.accept_challenge, known.challenge.spec.url)
        except Refused as error:
            if error.reaction in (Reaction.WAIT, Reaction.ACCOUNT):
                raise
            return replace(known.facts, refusal=error)
        accepted = Accepted(work.stage.presented_at, self._now())
        self._memories.keep_work(known.challenge, dataclasses.replace(work, stage=accepted))
        return known.facts

    async def _fetch(self, challenge: Challenge, work: Work, issuer: ResolvedIssuer) -> Authorization:
        now = self._now()
        self._memories.keep_work(challenge, dataclasses.replace(work, asked_at=now))
        answer = await issuer.client.run(orders.fetch_authorization, challenge.spec.authorization_url)
        if isinstance(work.stage, Accepted) and work.stage.polls == 1:
            is_there = answer.status in VERDICTS
            self._pace_of(issuer).asked(after=now - work.stage.accepted_at, is_there=is_there)
        return answer

    async def _learn(self, step: steps.Inquiry, known: Snapshot) -> Facts:
        """Steps that add a fact and that nothing remote refuses."""
        challenge, facts, key = known.challenge, known.facts, known.challenge.metadata.key
        match step:
            case steps.ResolveIssuer():
                return await self._find_issuer(known)
            case steps.Admit():
                wait = self._tools.circuit_gate.admit_continuation(challenge)
                return replace(facts, issuer=wait) if wait is not None else replace(facts, is_admitted=True)
            case steps.Enter(stage=stage, not_yet=not_yet):
                self.checks.pop(key)
                self._memories.enter(challenge, stage)
                return replace(facts, not_yet=not_yet)
            case steps.AcquireSlot():
                return replace(facts, has_slot=self.slots.acquire(slot_request(challenge)))
            case steps.Fail(error=error):
                return replace(facts, error=error)
            case steps.Refuse(problem=problem, has_worked=has_worked):
                self.refused.add(key)
                if challenge.status.reason != problem and has_worked:
                    self._recorder.event(CHALLENGES, challenge, "Normal", "Superseded", problem)
                elif challenge.status.reason != problem:
                    self._recorder.event(CHALLENGES, challenge, "Warning", "Refused", problem)
                return replace(facts, refused=problem)
            case steps.CheckAuthor():
                self._release(key)
                problem = await self._tools.origin.problem_of_clean_up(challenge)
                challenge_solving.report_skipped(challenge, problem, self._recorder)
                return replace(facts, may_be_foreign=bool(problem))
            case steps.RemoveProof():
                if step.is_answered:
                    self._tools.circuit_gate.answered(challenge)
                if not step.keeps_slot:
                    self._release(key)
                is_removed = await challenge_solving.clean_up(
                    challenge, known.memory.work, self._tools.find_means, self._recorder
                )
                return replace(facts, is_removed=is_removed)
            case _:
                assert_never(step)

    async def _find_issuer(self, known: Snapshot) -> Facts:
        challenge, facts, work = known.challenge, known.facts, known.memory.work
        issuer = await self._tools.resolve_issuer(challenge)
        if isinstance(issuer, Wait):
            return replace(facts, issuer=issuer)
        if problem := self._tools.origin.problem(challenge, issuer):
            return replace(facts, issuer=issuer, problem=problem)
        self.refused.discard(challenge.metadata.key)
        is_hurried = False
        if (pause := work.pause if work is not None else None) and pause.is_ours:
            is_hurried = self._now() < pause.until and self._tools.circuit_gate.is_hurried(
                challenge, pause.since
            )
        return replace(
            facts,
            issuer=issuer,
            is_described=self._tools.origin.is_described(challenge),
            is_hurried=is_hurried,
        )

    async def _end_pass(self, step: steps.Ending, known: Snapshot) -> Result:
        """Steps that end the pass."""
        challenge, key = known.challenge, known.challenge.metadata.key
        match step:
            case steps.Rest():
                self._note(step, challenge)
                return Result(wake_at=step.until)
            case steps.StartCheck(attempt=attempt):
                self._start_check(known, attempt)
                return Result()
            case steps.Hold():
                return await self._postpone(step, challenge)
            case steps.NotifyOrder():
                self._memories.enter(challenge, step.stage)
                self._release(key)
                assert self._tools.enqueue_order is not None
                self._tools.enqueue_order(challenge)
                return Result(wake_at=step.until)
            case steps.Settle():
                return await self._settle(step, challenge)
            case steps.RemoveFinalizer():
                self._release(key)
                finalizers = [name for name in challenge.metadata.finalizers if name not in FINALIZERS]
                with suppress(NotFound):
                    await self._patch(challenge, finalizers=finalizers)
                self._note(steps.Rest(forgets=True), challenge)
                return Result()
            case _:
                assert_never(step)

    def _note(self, step: steps.Rest | steps.Hold, challenge: Challenge) -> None:
        """Put into the memory, and into the queues, what the step says of them."""
        if step.releases:
            self._release(challenge.metadata.key)
        if step.stage is not None:
            self._memories.enter(challenge, step.stage)
        memory = self._memories.of(challenge)
        if step.forgets:
            memory = replace(memory, work=None)
        if step.is_failure:
            memory = replace(memory, failures=memory.failures + 1)
        self._memories.keep(challenge, memory)

    async def _postpone(self, step: steps.Hold, challenge: Challenge) -> Result:
        self._note(step, challenge)
        if step.event:
            self._recorder.event(CHALLENGES, challenge, "Warning", "PresentError", step.event)
        memory = self._memories.of(challenge)
        work = memory.work
        if step.pause is not None and work is not None:
            memory = replace(memory, work=dataclasses.replace(work, pause=step.pause))
        if step.error is not None:
            self._tools.circuit_gate.troubled(challenge, step.error, step.named)
        text = challenge.status.reason
        if not text or step.announced.is_news(memory.announced, self._now()):
            memory, text = replace(memory, announced=step.announced), step.announced.text
        self._memories.keep(challenge, memory)
        if step.error is not None:
            problem = challenge_solving.problem_annotations(step.error, step.named, step.until)
            challenge = await self._patch(challenge, annotations=problem)
        at = work.presented_at if work is not None else None
        at = at.replace(microsecond=0) if at is not None else None
        await self._write(
            challenge,
            reason=text,
            state="processing" if step.is_processing else "pending",
            processing=step.is_processing,
            presented=at is not None or challenge.status.presented,
            presented_at=at or challenge.status.presented_at,
        )
        return Result(wake_at=step.until)

    async def _settle(self, step: steps.Settle, challenge: Challenge) -> Result:
        changes: dict[str, Any] = {"state": step.state} if step.state else {}
        if step.reason is not None:
            changes["reason"] = step.reason
        await self._write(challenge, processing=False, presented=step.is_presented, **changes)
        is_failure = step.retry_at is not None
        self._note(steps.Rest(releases=True, forgets=step.forgets, is_failure=is_failure), challenge)
        if step.event:
            self._recorder.event(CHALLENGES, challenge, "Warning", "Failed", step.event)
        return Result(wake_at=step.retry_at)

    def _start_check(self, known: Snapshot, attempt: int) -> None:
        challenge, work = known.challenge, known.memory.work
        assert work is not None
        key = challenge.metadata.key
        flow = flow_of(key, challenge.spec.issuer_ref, challenge.spec.dns_name)
        run = challenge_solving.self_check(key, work, attempt)
        self.checks.start(key, run, attempt=attempt, flow=flow)

    async def _patch(self, challenge: Challenge, **metadata: Any) -> Challenge:
        meta = challenge.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version, **metadata}}
        written = await self._client.patch(CHALLENGES, meta.name, meta.namespace, patch)
        self._challenges.put(written)
        return written

    def _pace_of(self, issuer: ResolvedIssuer) -> Pace:
        return self._paces[issuer.client.directory_url]

    def _release(self, key: ObjectKey) -> None:
        self.slots.release(key)
        self.checks.forget(key)

    async def _write(self, challenge: Challenge, **changes: Any) -> None:
        status = msgspec.structs.replace(challenge.status, **changes)
        with suppress(NotFound):
            changed = msgspec.structs.replace(challenge, status=status)
            await self._status.commit(CHALLENGES, challenge, changed)
