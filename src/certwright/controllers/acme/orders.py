"""Bring one Order to its end: placed, proven, finalised, downloaded.

Wakes on:  Order; its Challenges; its issuer; Secrets of the issuer; the time that the server has named
Reads:     Order, its Challenges, issuer
Writes:    Challenges; Order.status: url, authorizations, state, reason, certificate
Next:      challenges, signing

"An order whose state is final is never spoken of to the server again": the design's promise, kept in
`reconcile`. When the server demands a wait, the Order waits and does not fail.

Source: cert-manager design "ACME Order & Challenge CRDs"; `pkg/controller/acmeorders/sync.go`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from certwright.acme.protocol.certificates import Download
from certwright.acme.protocol.errors import AcmeError, Refused, Unreachable
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.acme.protocol.origins import origin_of
from certwright.acme.protocol.problem import Reaction
from certwright.controllers.acme import order_requests
from certwright.controllers.acme.announcing import RECURRING, Announced, growing
from certwright.controllers.acme.challenge_plan import NoSolver, needed_challenges, take_same
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.order_requests import Contents, NotOrdered
from certwright.controllers.acme.order_state import (
    LONGEST_WAIT,
    SHORTEST_WAIT,
    FollowFrom,
    Memory,
    recalled,
    with_attempt,
)
from certwright.controllers.acme.provenance import is_of_another_account
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.cache.own_writes import working_on
from certwright.controllers.requests.departures import Departure, Departures
from certwright.controllers.retry.backoff import LONGEST_OBEYED
from certwright.issuers.contract import IssuerView
from certwright.kit.outgoing import quote
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.commit import StatusWriter
from certwright.kube.runtime.controller import Result
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.backoff import doubled
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import CsrFacts
from certwright.pki.errors import PkiError
from certwright.resources import migration, names
from certwright.resources.challenge import Challenge
from certwright.resources.order import ACMEAuthorization, Order, OrderStatus
from certwright.resources.retry import rfc3339, with_not_before
from certwright.resources.table import CHALLENGES, ORDERS

COMPLETE = "Order completed successfully"
# For an order that the server processes: at some CAs people review each.
_LONGEST_POLL = timedelta(hours=1)
# Orders that a CA has yet to process go before those it has finished: of each CA, certificates are downloaded
# and stored a few at a time. Where there is nothing else to do, that is hundreds in a second.
_END_AT_ONCE = 6


ResolveIssuer = Callable[[Order], Awaitable[ResolvedIssuer | Wait]]
"""Resolves the issuer of an Order; a `Wait` where it is missing or not ready."""

RefusedFor = Callable[[Order, ResolvedIssuer, Refused], bool]
"""Called when the CA has refused a new order for now because of a limit. Returns whether that concerns orders
for other names too."""

Downloaded = Callable[[Order, ResolvedIssuer, CertificateFacts], Awaitable[None]]
"""Called with a certificate before it is stored. MUST NOT raise, and MUST have a timeout."""


class OrderReconciler:
    """`problem_of` says why an Order must not be acted on (see `provenance.py`). `challenges_of` gives the
    Challenges that an Order owns, `is_known` whether an Order with that URL at the server exists. `began_at`
    is when this process began: an older Order may have been placed by the previous process."""

    def __init__(
        self,
        *,
        orders: Informer[Order],
        challenges: Informer[Challenge],
        challenges_of: Callable[[Order], Iterable[Challenge]],
        is_known: Callable[[str], bool],
        is_proven: Callable[[Challenge], bool],
        problem_of: Callable[[Order], str],
        resolve_issuer: ResolveIssuer,
        circuit_gate: CircuitGate,
        limited: RefusedFor,
        distrust: Callable[[IssuerView], None],
        downloaded: Downloaded,
        members: Departures,
        status: StatusWriter[Order],
        client: Client,
        recorder: Recorder,
        now: Callable[[], datetime],
        began_at: datetime,
    ) -> None:
        self._orders = orders
        self._challenges = challenges
        self._challenges_of = challenges_of
        self._is_known = is_known
        self._is_proven = is_proven
        self._problem_of = problem_of
        self._resolve_issuer = resolve_issuer
        self._circuit_gate = circuit_gate
        self._limited = limited
        self._distrust = distrust
        self._downloaded = downloaded
        self._members = members
        self._status = status
        self._client = client
        self._recorder = recorder
        self._now = now
        self._began_at = began_at
        self._memories: dict[ObjectKey, Memory] = {}
        self._contents: Contents = {}
        self._endings = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_END_AT_ONCE))

    async def reconcile(self, key: ObjectKey) -> Result:
        """One step, or as many as can be made without waiting. Raises what writes to the API raise."""
        # Writes made here continue in this pass; their watch events do not requeue the key.
        with working_on(ORDERS, key):
            return await self._pass(key)

    async def _pass(self, key: ObjectKey) -> Result:
        order = self._orders.cache.get(key)
        if order is None or order.metadata.deletion_timestamp is not None:
            self._memories.pop(key, None)
            return Result()
        if order.status.is_final:
            return await self._tidy(order)
        if (departure := await self._members.leaves(order)) is not None:
            return await self._depart(order, departure)
        if problem := self._problem_of(order):
            # Its owner's appearance or approval wakes it.
            return await self._wait(order, Wait(problem))
        if former := migration.order_annotations(order):
            order = await self._annotate(order, former)
        result = await self._go_on(order)
        patience = self._members.patience_ends(order)
        if patience is not None and (result.wake_at is None or patience < result.wake_at):
            return Result(wake_at=patience)
        return result

    async def _go_on(self, order: Order) -> Result:
        issuer = await self._resolve_issuer(order)
        if isinstance(issuer, Wait):
            if issuer.is_final:
                return await self._fail(order, "errored", issuer.why)
            return await self._wait(order, issuer)
        if is_of_another_account(order.metadata.annotations, _account_of(issuer)):
            return await self._supersede(order, issuer)
        return await self._go(order, issuer)

    async def _depart(self, order: Order, departure: Departure) -> Result:
        """End an Order of a request to a set, so that another member signs; nothing counts as a failure."""
        marks = {names.ACME_SUPERSEDED: "true", names.MEMBER_NOT_BEFORE: rfc3339(departure.not_before)}
        return await self._fail(await self._annotate(order, marks), "errored", departure.why)

    async def _supersede(self, order: Order, issuer: ResolvedIssuer) -> Result:
        """End an Order of a server or account that the issuer no longer uses: no other server knows it, and
        no other account may read it. Its request makes the next one immediately (`RequestOrders`), and
        nothing counts as a failure."""
        meta = order.metadata
        former = meta.annotations.get(names.ACME_SERVER) or origin_of(order.status.url) or "another server"
        if former == issuer.client.directory_url:
            former = f"account {meta.annotations.get(names.ACME_ACCOUNT, '')}"
        # First, so that its request never counts this end as a failure.
        order = await self._annotate(order, {names.ACME_SUPERSEDED: "true"})
        name = f'{issuer.view.kind} "{issuer.view.name}"'
        reason = f"{name} no longer uses {former}, where this order is; another Order takes its place"
        return await self._fail(order, "errored", reason)

    def described(self, order: Order, url: str) -> ACMEAuthorization | None:
        """The authorization with that URL as this process has read it from the server for this Order."""
        memory = self._memories.get(order.metadata.key)
        if memory is None or memory.uid != order.metadata.uid:
            return None
        return next((one for one in memory.described if one.url == url), None)

    async def _tidy(self, order: Order) -> Result:
        """After success the Challenges are deleted. "If the Order fails for any reason, the Challenge
        resources will be retained to allow users to debug the failures": their controller stops them."""
        self._memories.pop(order.metadata.key, None)
        if order.status.state != "valid":
            return Result()
        for challenge in list(self._challenges_of(order)):
            if challenge.metadata.deletion_timestamp is None:
                await self._delete(challenge)
        return Result()

    async def _go(self, order: Order, issuer: ResolvedIssuer) -> Result:

        memory = self._memory(order)
        if memory.account not in (None, issuer.client.directory_url + issuer.client.kid):
            # A wait that another server or account has demanded does not apply to this one.
            memory.not_before, memory.failures = None, 0
        memory.account = issuer.client.directory_url + issuer.client.kid
        if memory.not_before is not None and self._now() < memory.not_before:
            is_hurried = memory.is_patience and self._circuit_gate.is_hurried(order, memory.waits_since)
            if not is_hurried:
                return Result(wake_at=memory.not_before)
        memory.not_before = None
        if memory.failures and order.status.url and (wait := self._circuit_gate.may_go_on(order)) is not None:
            return await self._wait(order, wait)
        try:
            result = await self._advance(order, issuer, memory)
        except AcmeError as error:
            return await self._take(
                error, self._orders.cache.get(order.metadata.key) or order, issuer, memory
            )
        except NotOrdered as error:
            current = self._orders.cache.get(order.metadata.key) or order
            return await self._fail(current, "errored", str(error))
        except PkiError as error:
            return await self._fail(order, "errored", f"spec.request cannot be used: {error}")
        memory.failures = 0
        return result

    def _memory(self, order: Order) -> Memory:
        key, uid = order.metadata.key, order.metadata.uid
        held = self._memories.get(key)
        if held is None or held.uid != uid:
            held = self._memories[key] = recalled(order, self._now())
        return held

    async def _advance(self, order: Order, issuer: ResolvedIssuer, memory: Memory) -> Result:
        memory.asked_at = None
        if order.status.url and names.ACME_SERVER not in order.metadata.annotations:
            directory = await issuer.client.directory()
            if not directory.serves(order.status.url):
                return await self._supersede(order, issuer)
        if memory.polls:
            # The server has the signing request, so that all names are proven.
            return await self._finish(order, issuer, memory)
        if not order.status.url:
            names_other = bool(order.spec.replaces) and not memory.replaces_nothing
            if (wait := await self._circuit_gate.admit(order, issuer, names_other)) is not None:
                until = None if wait.is_brief else wait.until
                if (departure := await self._members.leaves(order, until=until)) is not None:
                    return await self._depart(order, departure)
                return await self._wait(order, wait)
            order = await self._place(await self._about_to_ask(order, memory), issuer, memory)
            self._circuit_gate.placed(order)
        elif any(not one.identifier for one in order.status.authorizations):
            order = await self._describe(order, order.status, issuer)
        try:
            challenges = await self._ensure_challenges(order, issuer, memory)
        except NoSolver as error:
            self._recorder.event(ORDERS, order, "Warning", "Solver", str(error))
            return await self._wait(order, Wait(str(error)))
        if any(one.status.is_final and one.status.state != "valid" for one in challenges):
            return await self._failed_proof(order, issuer, challenges)
        if not all(self._is_proven(one) for one in challenges):
            return await self._say_what_it_waits_for(order, challenges)
        return await self._finish(order, issuer, memory)

    async def _about_to_ask(self, order: Order, memory: Memory) -> Order:
        memory.asked_at = self._now()
        if self._circuit_gate.is_doubted(order):
            # Before the attempt: a crash must not lose it, because attempts in an hour are limited.
            await self._circuit_gate.record(order)
        return order

    async def _place(self, order: Order, issuer: ResolvedIssuer, memory: Memory) -> Order:

        born = order.metadata.creation_timestamp
        found: ServerOrder | None = None
        if memory.maybe_placed or born is None or born < self._began_at:
            found = await order_requests.find_lost(issuer.client, order.spec, self._is_known, self._contents)
        if found is None:
            # Only an answer shows whether the server has received it.
            memory.maybe_placed = True
            try:
                replaces = "" if memory.replaces_nothing else order.spec.replaces
                found = await order_requests.place(issuer.client, order.spec, replaces, self._now())
            except Unreachable:
                raise
            except Exception:
                memory.maybe_placed = False
                raise
        memory.maybe_placed = False
        return await self._describe(order, order_requests.placed(order.status, found), issuer)

    async def _describe(self, order: Order, status: OrderStatus, issuer: ResolvedIssuer) -> Order:
        """Write the authorizations, "to save subsequent calls to the ACME server". In any case the order's
        URL is written, because the order must not be made twice."""
        urls = [one.url for one in status.authorizations]
        try:
            described = await order_requests.fetch_authorizations(issuer.client, order.spec, urls)
        except (AcmeError, order_requests.NotOrdered):
            await self._write(order, status)
            raise
        self._memory(order).described = described
        return await self._write(order, msgspec.structs.replace(status, authorizations=described))

    async def _ensure_challenges(
        self, order: Order, issuer: ResolvedIssuer, memory: Memory
    ) -> list[Challenge]:

        held = {one.metadata.name: one for one in self._challenges_of(order)}
        follow_from = FollowFrom(
            order.metadata.resource_version, issuer.view.resource_version, issuer.client.key.thumbprint
        )
        if memory.ensured == (follow_from, set(held)):
            # An Order of a hundred names is enqueued for each that is proven.
            return list(held.values())
        found = []
        for wanted in needed_challenges(
            order,
            issuer.spec.solvers,
            lambda kind, token: order_requests.shown_for(issuer.client.key, kind, token),
        ):
            there = take_same(wanted, held, order.metadata.name)
            found.append(there if there is not None else await self._create(wanted))
        for leftover in held.values():
            # Of a solver that the issuer has no longer; a failed one is to be read.
            if not leftover.status.is_final and leftover.metadata.deletion_timestamp is None:
                await self._delete(leftover)
        memory.ensured = follow_from, {one.metadata.name for one in found}
        return found

    async def _finish(self, order: Order, issuer: ResolvedIssuer, memory: Memory) -> Result:

        csr = order_requests.csr_of(order.spec)
        memory.state = memory.state or "ready"
        if memory.polls:
            there = await order_requests.look(issuer.client, order.status.url)
        else:
            there = await order_requests.finalize(issuer.client, order, csr)
        if there.status == "ready" and memory.polls:
            there = await order_requests.finalize(issuer.client, order, csr)
        if there.status == "valid" and there.certificate:
            async with self._endings[issuer.client.directory_url]:
                return await self._store(order, issuer, there, csr)
        if there.status == "invalid":
            return await self._fail(order, "invalid", _words(there))
        return await self._poll_again(order, there, memory)

    async def _poll_again(self, order: Order, there: ServerOrder, memory: Memory) -> Result:
        """Poll an order that the server processes, or whose state RFC 8555 does not define."""
        now = self._now()
        memory.polling_since = memory.polling_since or now
        since = now - memory.polling_since
        delay = growing(since, at_least=order_requests.poll_delay(memory.polls), at_most=_LONGEST_POLL)
        until = max(now + delay, there.retry_after or now)
        memory.polls += 1
        memory.not_before, memory.is_patience = until, there.retry_after is None
        memory.state = there.status if there.status in order_requests.OPEN_STATES else "processing"
        if since + (until - now) >= RECURRING:
            why = "the ACME server is processing the order"
            if there.status != "processing":
                why = f'the ACME server calls the order "{quote(there.status, 40)}"'
            await self._announce(order, Announced(why, until), memory)
        return Result(wake_at=until)

    async def _store(self, order: Order, issuer: ResolvedIssuer, there: ServerOrder, csr: CsrFacts) -> Result:

        found = await order_requests.download(issuer.client, there.certificate, issuer.spec.preferred_chain)
        wrong = order_requests.wrong_certificate(found.chain[0], csr, self._now())
        if wrong:
            return await self._fail(order, "errored", wrong)
        if preferred := issuer.spec.preferred_chain:
            self._check_chain(order, found, preferred)
        await self._downloaded(order, issuer, found.chain[0])
        status = msgspec.structs.replace(order.status, state="valid", certificate=found.pem, reason="")
        written = await self._write(order, status)
        self._recorder.event(ORDERS, written, "Normal", "Complete", COMPLETE)
        # The next pass deletes its Challenges, whatever wakes it: `_tidy`.
        return Result(when_idle=True)

    def _check_chain(self, order: Order, found: Download, preferred: str) -> None:
        if not found.ends_with(preferred):
            self._recorder.event(
                ORDERS,
                order,
                "Warning",
                "PreferredChainMissing",
                f'The server offers no chain that "{preferred}" has issued (spec.acme.preferredChain of the '
                "issuer); its default chain is used",
            )

    async def _failed_proof(
        self, order: Order, issuer: ResolvedIssuer, challenges: list[Challenge]
    ) -> Result:
        """The Challenges give the reason; the server decides whether the order has failed."""
        failed = [one for one in challenges if one.status.is_final and one.status.state != "valid"]
        why = "; ".join(f"{one.spec.dns_name}: {one.status.reason}" for one in failed)
        there = await order_requests.look(issuer.client, order.status.url)
        state = there.status if there.status in ("invalid", "expired") else "invalid"
        return await self._fail(order, state, why or _words(there))

    async def _say_what_it_waits_for(self, order: Order, challenges: list[Challenge]) -> Result:
        waits = [one for one in challenges if one.status.reason and not self._is_proven(one)]
        reason = "; ".join(f"{one.spec.dns_name}: {one.status.reason}" for one in waits[:3])
        if len(waits) > 3:
            reason += f"; and {len(waits) - 3} more"
        memory = self._memory(order)
        memory.announced = None
        if reason != order.status.reason:
            await self._write(order, msgspec.structs.replace(order.status, reason=reason))
        return Result()

    async def _take(self, error: AcmeError, order: Order, issuer: ResolvedIssuer, memory: Memory) -> Result:
        """Error handling: the kind of error decides what becomes of the Order."""
        reaction = error.reaction
        if isinstance(error, Refused) and (
            reaction is Reaction.ACCOUNT or (error.problem.name == "unauthorized" and not order.status.url)
        ):
            # The issuer's controller finds out whether the account is the cause.
            first = not issuer.client.is_lost and memory.failures == 0
            issuer.client.is_lost = True
            if first or reaction is Reaction.ACCOUNT:
                self._distrust(issuer.view)
                reaction = Reaction.WAIT
        if reaction in (Reaction.ORDER_FAILS, Reaction.OUR_MISTAKE):
            if isinstance(error, Refused):
                self._circuit_gate.answered(order)
                order = await self._annotate(order, {names.ACME_PROBLEM: error.problem.name})
            return await self._fail(order, "errored", str(error))
        if reaction is Reaction.WITHOUT_REPLACES and not memory.replaces_nothing:
            # Without it the order counts against the CA's limits: they are asked first.
            memory.replaces_nothing = True
            return Result(wake_at=self._now())
        is_about_names = False
        if isinstance(error, Refused) and not order.status.url and error.is_limit:
            is_about_names = not self._limited(order, issuer, error)
        memory.failures += 1
        delay = doubled(SHORTEST_WAIT, memory.failures, cap=LONGEST_WAIT)
        until = self._now() + delay
        attempts = with_attempt(order, memory.asked_at or self._now())
        named = error.retry_after if isinstance(error, Refused) else None
        if named is not None:
            until = max(min(named, self._now() + LONGEST_OBEYED), self._now() + SHORTEST_WAIT)
            attempts[names.NOT_BEFORE] = until.astimezone(UTC).isoformat()
        order = await self._annotate(order, attempts)
        memory.not_before, memory.is_patience = until, named is None
        memory.waits_since = self._now()
        if is_about_names:
            self._circuit_gate.answered(order)
        else:
            self._circuit_gate.troubled(order, error, named)
        if (departure := await self._members.leaves(order, has_failed=True, until=named)) is not None:
            return await self._depart(order, departure)
        if named is not None:
            why = with_not_before(str(error), until)
        else:
            why = Announced.of(str(error), until, self._now()).text
        memory.announced = None
        state = memory.state or order.status.state
        await self._write(order, msgspec.structs.replace(order.status, reason=why, state=state))
        return Result(wake_at=until)

    async def _wait(self, order: Order, wait: Wait) -> Result:
        if not wait.is_brief:
            until = None if wait.names_time else wait.until
            announced = Announced.of(wait.why, until, self._now())
            await self._announce(order, announced, self._memory(order))
        return Result(wake_at=wait.until)

    async def _announce(self, order: Order, announced: Announced, memory: Memory) -> None:
        if not announced.is_news(memory.announced, self._now()):
            return
        memory.announced = announced
        status = order.status
        state = memory.state or status.state
        await self._write(order, msgspec.structs.replace(status, reason=announced.text, state=state))

    async def _fail(self, order: Order, state: str, reason: str) -> Result:
        status = msgspec.structs.replace(
            order.status, state=state, reason=reason, failure_time=self._now().replace(microsecond=0)
        )
        written = await self._write(order, status)
        self._recorder.event(ORDERS, written, "Warning", "OrderFailed", reason)
        return await self._tidy(written)

    async def _write(self, order: Order, status: OrderStatus) -> Order:
        changed = msgspec.structs.replace(order, status=status)
        return await self._status.commit(ORDERS, order, changed)

    async def _annotate(self, order: Order, annotations: dict[str, str]) -> Order:
        """Set annotations. State that a restart or a request needs is data, never a part of a reason."""
        meta = order.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotations}}
        written = await self._client.patch(ORDERS, meta.name, meta.namespace, patch)
        self._orders.put(written)
        return written

    async def _create(self, challenge: Challenge) -> Challenge:
        meta = challenge.metadata
        try:
            made = await self._client.create(CHALLENGES, challenge)
        except AlreadyExists:
            made = await self._client.get(CHALLENGES, meta.name, meta.namespace)
        self._challenges.put(made)
        return made

    async def _delete(self, challenge: Challenge) -> None:
        meta = challenge.metadata
        try:
            await self._client.delete(CHALLENGES, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return


def _account_of(issuer: ResolvedIssuer) -> dict[str, str]:
    return {names.ACME_SERVER: issuer.client.directory_url, names.ACME_ACCOUNT: issuer.client.kid}


def _words(there: ServerOrder) -> str:
    return there.error.sentence if there.error is not None else f"the server calls the order {there.status}"
