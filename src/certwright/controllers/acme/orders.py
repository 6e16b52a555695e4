"""Bring one Order to its end: placed, proven, finalised, downloaded.

Wakes on:  Order; its Challenges; its issuer; Secrets of the issuer; the time that the server has named
Reads:     Order, its Challenges, issuer
Writes:    Challenges; Order.status: url, authorizations, state, reason, certificate
Next:      challenges, signing

What is done next is decided in `order_decisions.py`; this module carries it out.

Source: cert-manager design "ACME Order & Challenge CRDs"; `pkg/controller/acmeorders/sync.go`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import assert_never

import msgspec
from msgspec.structs import replace

from certwright.acme.protocol.directory import Directory
from certwright.acme.protocol.errors import AcmeError, Refused, Unreachable
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.controllers.acme import order_requests
from certwright.controllers.acme import order_steps as steps
from certwright.controllers.acme.challenge_plan import ChallengeChanged, NoSolver
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.identifiers import names_of_spec
from certwright.controllers.acme.order_challenges import OrderChallenges
from certwright.controllers.acme.order_decisions import next_step
from certwright.controllers.acme.order_requests import Contents, NotOrdered
from certwright.controllers.acme.order_state import Lines, Memories, Stage, Unplaced, shown_state
from certwright.controllers.acme.order_steps import Facts, Snapshot
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.cache.own_writes import working_on
from certwright.controllers.requests.departures import Departures
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.pki.certificates import CertificateFacts
from certwright.pki.errors import PkiError
from certwright.pki.verify import verify
from certwright.resources.acme import ACMEAuthorization, Challenge, Order, OrderStatus
from certwright.resources.table import ORDERS

COMPLETE = "Order completed successfully"
# Orders that a CA has yet to process go before those it has finished: of each CA, certificates are downloaded
# and stored a few at a time. Where there is nothing else to do, that is hundreds in a second.
_END_AT_ONCE = 6
_CHANGED_CHALLENGE_RETRY = timedelta(minutes=10)


class OrderTools(msgspec.Struct, frozen=True, kw_only=True):
    """What the reconciler calls.

    `orders_at`: the Orders with that URL at the CA. `superseded`: how many Orders of the Order's request were
    given up in the last day. `wake` enqueues an Order. `has_issued`: whether that account of the CA
    issued the certificate that the Order replaces. `is_proven`: whether the CA has called a
    Challenge valid. `problem_of`: why an Order must not be acted on (see `provenance.py`). `limited`: the CA
    has refused a new order for now because of a limit; returns whether that concerns orders for other names
    too. `distrust` has an issuer checked. `downloaded` is called with a certificate before it is stored; it
    MUST NOT raise, and MUST have a timeout.
    """

    challenges: OrderChallenges
    orders_at: Callable[[str], Sequence[Order]]
    superseded: Callable[[Order], int]
    wake: Callable[[ObjectKey], None]
    has_issued: Callable[[Order, Directory, str], bool]
    is_proven: Callable[[Challenge], bool]
    problem_of: Callable[[Order], str]
    resolve_issuer: Callable[[Order], Awaitable[ResolvedIssuer | Wait]]
    circuit_gate: CircuitGate
    limited: Callable[[Order, ResolvedIssuer, Refused], bool]
    distrust: Callable[[IssuerView], None]
    downloaded: Callable[[Order, ResolvedIssuer, CertificateFacts], Awaitable[None]]
    members: Departures


class OrderReconciler:
    """An Order that is older than this object may have been placed by a previous process."""

    def __init__(self, orders: Informer[Order], toolbox: Toolbox, tools: OrderTools) -> None:
        self._orders = orders
        self._tools = tools
        self._status = toolbox.status_of(orders)
        self._client = toolbox.client
        self._executor = toolbox.executor
        self._recorder = toolbox.recorder
        self._now = toolbox.now
        self._began_at = toolbox.now()
        self._memories = Memories()
        self._lines = Lines(tools.wake)
        self._contents: Contents = {}
        self._endings = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_END_AT_ONCE))

    def described(self, order: Order, url: str) -> ACMEAuthorization | None:
        """The authorization with that URL as this process has read it from the server for this Order."""
        return next(
            (authorization for authorization in self._memories.described(order) if authorization.url == url),
            None,
        )

    async def reconcile(self, key: ObjectKey) -> Result:
        """Take steps until one ends the pass. Raises what writes to the API raise."""
        # Writes made here continue in this pass; their watch events do not requeue the key.
        with working_on(ORDERS, key):
            return await self._pass(key)

    async def _pass(self, key: ObjectKey) -> Result:
        order = self._orders.cache.get(key)
        if order is None:
            self._memories.forget(key)
            return Result()
        known = self._snapshot(order, Facts())
        async with AsyncExitStack() as places:
            while True:
                outcome = await self._carry_out(next_step(known), known, places)
                if isinstance(outcome, Result):
                    break
                known = self._snapshot(*outcome)
        if known.facts.issuer is None:
            return outcome
        patience = self._tools.members.patience_ends(known.order)
        if patience is not None and (outcome.wake_at is None or patience < outcome.wake_at):
            return Result(wake_at=patience)
        return outcome

    def _snapshot(self, order: Order, facts: Facts) -> Snapshot:
        now = self._now()
        memory = self._memories.of(order, now)
        return Snapshot(order=order, memory=memory, now=now, began_at=self._began_at, facts=facts)

    async def _carry_out(
        self, step: steps.Step, known: Snapshot, places: AsyncExitStack
    ) -> tuple[Order, Facts] | Result:
        """Do what the step says. Returns what is known now, or how the pass ends. `places`: what is occupied
        until the end of the pass."""
        if isinstance(step, steps.Ending):
            return await self._end_pass(step, known)
        if isinstance(step, steps.Inquiry):
            return await self._learn(step, known)
        issuer = known.facts.issuer
        assert isinstance(issuer, ResolvedIssuer)
        try:
            return await self._request(step, known, issuer, places)
        except (AcmeError, NotOrdered, PkiError) as error:
            # The step may have written the order's URL.
            order = self._orders.cache.get(known.order.metadata.key) or known.order
            return order, replace(known.facts, error=error)

    # --- steps that the CA can refuse ---------------------------------------------------------------------

    async def _request(
        self, step: steps.Request, known: Snapshot, issuer: ResolvedIssuer, places: AsyncExitStack
    ) -> tuple[Order, Facts]:
        """Raises `AcmeError`, `NotOrdered`, `PkiError`."""
        order, facts, client = known.order, known.facts, issuer.client
        match step:
            case steps.CheckServer():
                directory = await client.directory()
                return order, replace(facts, is_served=directory.serves(order.status.url))
            case steps.CheckPredecessor():
                directory = await client.directory()
                has_issued = self._tools.has_issued(order, directory, client.kid)
                return order, replace(facts, may_replace=bool(directory.renewal_info) and has_issued)
            case steps.PlaceOrder():
                placed = await self._place(step, order, issuer)
                return order, replace(facts, placed=placed, before=self._join(order, issuer, placed.url))
            case steps.ReadAuthorizations():
                return await self._describe(step, order, issuer), replace(facts, is_described=True)
            case steps.CheckAuthorizations(urls=urls):
                found = await order_requests.fetch_authorizations(client, order.spec, urls)
                return order, replace(facts, authorizations=found)
            case steps.PollOrder():
                return order, replace(
                    facts, current=await order_requests.fetch_order(client, order.status.url)
                )
            case steps.Finalize(stage=stage):
                csr = order_requests.csr_of(order.spec)
                self._enter(order, stage)
                finalized, refusal = await order_requests.finalize(client, order, csr)
                return order, replace(facts, finalized=finalized, refusal=refusal, csr=csr)
            case steps.Download(url=url, stage=stage):
                self._enter(order, stage)
                csr = facts.csr or order_requests.csr_of(order.spec)
                await places.enter_async_context(self._endings[client.directory_url])
                downloaded = await order_requests.download(client, url, issuer.spec.preferred_chain)
                chain, now = downloaded.chain, self._now()
                result = await self._executor.run(lambda: verify(chain, (), now), order.metadata.namespace)
                return order, replace(facts, downloaded=downloaded, verification=result, csr=csr)
            case _:
                assert_never(step)

    async def _place(self, step: steps.PlaceOrder, order: Order, issuer: ResolvedIssuer) -> ServerOrder:
        if step.may_exist:
            lost = await order_requests.find_lost(
                issuer.client, order.spec, self._tools.orders_at, self._contents
            )
            if lost is not None:
                return lost
        stage = self._memories.of(order, self._now()).stage
        assert isinstance(stage, Unplaced)
        # Only a response shows whether the server has received it.
        self._enter(order, replace(stage, may_exist=True))
        try:
            return await order_requests.place(issuer.client, order.spec, step.replaces, self._now())
        except Unreachable:
            raise
        except Exception:
            self._enter(order, replace(stage, may_exist=False))
            raise

    def _join(self, order: Order, issuer: ResolvedIssuer, url: str) -> tuple[ObjectKey, datetime] | None:
        """The Order to wait for, because the CA has answered with the order that another one has."""
        key, now = order.metadata.key, self._now()
        holders = (other.metadata.key for other in self._tools.orders_at(url) if not other.status.is_final)
        holder = next((other for other in holders if other != key), None)
        if holder is None:
            return None
        account = issuer.client.directory_url, issuer.client.kid
        self._lines.join((*account, names_of_spec(order.spec)), holder, key, now)
        before = self._lines.before(key, now)
        if before is not None:
            self._tools.circuit_gate.answered(order)
        return before

    def ended(self, key: ObjectKey) -> None:
        """Wake the Order that waits until the Order of that name has ended."""
        self._lines.ended(key, self._now())

    async def _describe(self, step: steps.ReadAuthorizations, order: Order, issuer: ResolvedIssuer) -> Order:
        """Write the authorizations, "to save subsequent calls to the ACME server"."""
        urls = [authorization.url for authorization in step.status.authorizations]
        try:
            described = await order_requests.fetch_authorizations(issuer.client, order.spec, urls)
        except (AcmeError, NotOrdered):
            await self._write(order, step.status)
            raise
        memory = self._memories.of(order, self._now())
        self._memories.keep(order, replace(memory, described=described))
        order = await self._write(order, msgspec.structs.replace(step.status, authorizations=described))
        if step.is_new:
            self._tools.circuit_gate.placed(order)
        return order

    # --- the other steps that add a fact ------------------------------------------------------------------

    async def _learn(self, step: steps.Inquiry, known: Snapshot) -> tuple[Order, Facts]:
        order, facts, tools = known.order, known.facts, self._tools
        match step:
            case steps.CheckRequest():
                departure = await tools.members.leaves(order)
                problem = tools.problem_of(order) if departure is None else None
                before = self._lines.before(order.metadata.key, known.now)
                superseded = tools.superseded(order)
                return order, replace(
                    facts, departure=departure, problem=problem, before=before, superseded=superseded
                )
            case steps.Migrate(annotations=annotations):
                return await self._annotate(order, annotations), replace(facts, is_migrated=True)
            case steps.ResolveIssuer():
                return order, await self._resolve_issuer(known)
            case steps.Resume(memory=memory):
                self._memories.keep(order, memory)
                is_doubtful = memory.failures and order.status.url
                wait = tools.circuit_gate.admit_continuation(order) if is_doubtful else None
                return order, replace(facts, is_resumed=True) if wait is None else replace(facts, issuer=wait)
            case steps.RecordAttempt():
                asked_at = self._now()
                if tools.circuit_gate.is_doubted(order):
                    await tools.circuit_gate.record(order)
                return order, replace(facts, asked_at=asked_at)
            case steps.RecordFailure():
                return await self._record_failure(step, known)
            case _:
                return order, await self._learn_with_issuer(step, known)

    async def _learn_with_issuer(
        self,
        step: steps.Admit | steps.EnsureChallenges | steps.DoubtAccount | steps.ReportLimit,
        known: Snapshot,
    ) -> Facts:
        order, facts, tools, issuer = known.order, known.facts, self._tools, known.facts.issuer
        assert isinstance(issuer, ResolvedIssuer)
        match step:
            case steps.Admit(replaces=replaces):
                wait = await tools.circuit_gate.admit(order, issuer, replaces)
                if wait is None:
                    return replace(facts, is_admitted=True)
                until = None if wait.is_brief else wait.until
                return replace(facts, limit=wait, departure=await tools.members.leaves(order, until=until))
            case steps.EnsureChallenges():
                return await self._ensure_challenges(known, issuer)
            case steps.DoubtAccount():
                issuer.client.is_lost = True
                tools.distrust(issuer.view)
                return replace(facts, is_distrusted=True)
            case steps.ReportLimit(error=error):
                return replace(facts, concerns_others=tools.limited(order, issuer, error))
            case _:
                assert_never(step)

    async def _resolve_issuer(self, known: Snapshot) -> Facts:
        issuer = await self._tools.resolve_issuer(known.order)
        pause, is_hurried = known.memory.pause, False
        if pause is not None and pause.is_ours and self._now() < pause.until:
            is_hurried = self._tools.circuit_gate.is_hurried(known.order, pause.since)
        return replace(known.facts, issuer=issuer, is_hurried=is_hurried)

    async def _ensure_challenges(self, known: Snapshot, issuer: ResolvedIssuer) -> Facts:
        order, memory = known.order, known.memory
        try:
            challenges, ensured = await self._tools.challenges.ensure(order, issuer, memory.ensured)
        except NoSolver as error:
            until = self._now() + _CHANGED_CHALLENGE_RETRY if isinstance(error, ChallengeChanged) else None
            return replace(known.facts, no_solver=str(error), no_solver_until=until)
        self._memories.keep(order, replace(memory, ensured=ensured))
        unproven = tuple(challenge for challenge in challenges if not self._tools.is_proven(challenge))
        return replace(known.facts, challenges=challenges, unproven=unproven)

    async def _record_failure(self, step: steps.RecordFailure, known: Snapshot) -> tuple[Order, Facts]:
        order = await self._annotate(known.order, step.annotations)
        self._memories.keep(order, step.hold.memory)
        if step.is_about_names:
            self._tools.circuit_gate.answered(order)
        else:
            self._tools.circuit_gate.troubled(order, step.error, step.named)
        departure = await self._tools.members.leaves(order, has_failed=True, until=step.named)
        return order, replace(known.facts, recorded=step.hold, departure=departure)

    # --- steps that end the pass --------------------------------------------------------------------------

    async def _end_pass(self, step: steps.Ending, known: Snapshot) -> Result:
        order = known.order
        match step:
            case steps.Rest() | steps.Hold():
                if step.event:
                    self._recorder.event(ORDERS, order, "Warning", "Solver", step.event)
                self._memories.keep(order, step.memory)
                if isinstance(step, steps.Hold):
                    state = shown_state(step.memory.stage) or order.status.state
                    status = msgspec.structs.replace(order.status, reason=step.reason, state=state)
                    await self._write(order, status)
                return Result(wake_at=step.until)
            case steps.Fail():
                await self._fail(step, order)
                return Result()
            case steps.Store():
                await self._store(step, known)
                # The next pass deletes its Challenges, whatever wakes it.
                return Result(when_idle=True)
            case steps.Forget():
                self._memories.forget(order.metadata.key)
                if step.deletes_challenges:
                    await self._tools.challenges.delete(order)
                return Result()
            case _:
                assert_never(step)

    async def _fail(self, step: steps.Fail, order: Order) -> None:
        if step.is_answered:
            self._tools.circuit_gate.answered(order)
        if step.annotations:
            order = await self._annotate(order, step.annotations)
        failed_at = self._now().replace(microsecond=0)
        status = msgspec.structs.replace(
            order.status, state=step.state, reason=step.reason, failure_time=failed_at
        )
        written = await self._write(order, status)
        self._recorder.event(ORDERS, written, "Warning", "OrderFailed", step.reason)
        self._memories.forget(order.metadata.key)

    async def _store(self, step: steps.Store, known: Snapshot) -> None:
        order, issuer, downloaded = known.order, known.facts.issuer, step.downloaded
        assert isinstance(issuer, ResolvedIssuer)
        if step.event:
            self._recorder.event(ORDERS, order, "Warning", "PreferredChainMissing", step.event)
        await self._tools.downloaded(order, issuer, downloaded.chain[0])
        status = msgspec.structs.replace(order.status, state="valid", certificate=downloaded.pem, reason="")
        written = await self._write(order, status)
        self._recorder.event(ORDERS, written, "Normal", "Complete", COMPLETE)

    # --- writes -------------------------------------------------------------------------------------------

    def _enter(self, order: Order, stage: Stage) -> None:
        self._memories.keep(order, replace(self._memories.of(order, self._now()), stage=stage))

    async def _write(self, order: Order, status: OrderStatus) -> Order:
        return await self._status.commit(ORDERS, order, msgspec.structs.replace(order, status=status))

    async def _annotate(self, order: Order, annotations: Mapping[str, str]) -> Order:
        """Set annotations. State that a restart or a request needs is data, never a part of a reason."""
        meta = order.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": dict(annotations)}}
        written = await self._client.patch(ORDERS, meta.name, meta.namespace, patch)
        self._orders.put(written)
        return written
