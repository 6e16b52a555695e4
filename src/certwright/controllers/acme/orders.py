"""Bring one Order to its end: placed, proven, finalised, downloaded.

Wakes on:  Order; its Challenges; its issuer; Secrets of the issuer; the time that the server has named
Reads:     Order, its Challenges, issuer
Writes:    Challenges; Order.status: url, authorizations, state, reason, certificate
Next:      challenges, signing

`OrderReconciler.reconcile` reads from top to bottom: each pass goes through the stages of an Order until it
must wait or has ended.

Source: cert-manager design "ACME Order & Challenge CRDs"; `pkg/controller/acmeorders/sync.go`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from certwright.acme.protocol import orders
from certwright.acme.protocol.errors import AcmeError, Reaction, Refused, Unreachable
from certwright.acme.protocol.exchange import Directory, origin_of
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.controllers.acme import order_requests
from certwright.controllers.acme.circuit_gate import CircuitGate
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.identifiers import Name, canonical, names_of_identity, names_of_spec
from certwright.controllers.acme.order_challenges import (
    ChallengeChanged,
    NoSolver,
    OrderChallenges,
    full_name,
)
from certwright.controllers.acme.order_progress import (
    LONGEST_WAIT,
    OPEN_STATES,
    SHORTEST_WAIT,
    EqualOrders,
    Finalizing,
    OrderProgress,
    OrderTracker,
    Placed,
    Stage,
    Unplaced,
    poll_delay,
    with_attempt,
)
from certwright.controllers.acme.order_requests import Contents, NotOrdered
from certwright.controllers.acme.provenance import is_of_another_account
from certwright.controllers.acme.waits import RECURRING, Announced, Pause, Wait, growing
from certwright.controllers.backoff import LONGEST_OBEYED
from certwright.controllers.cache.shard_filter import working_on
from certwright.controllers.requests.members import Failover, FindFailover
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import IssuerView
from certwright.kit.outgoing import quote
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.kube.util.durations import doubled
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import CsrFacts, read_any_csr
from certwright.pki.errors import PkiError
from certwright.pki.verify import verify
from certwright.resources import migration, names
from certwright.resources.acme import ACMEAuthorization, Challenge, Order, OrderStatus
from certwright.resources.retry import rfc3339, with_not_before
from certwright.resources.table import ORDERS

COMPLETE = "Order completed successfully"
# New orders of a CA go before finished ones: certificates of each CA are downloaded and stored a few at a
# time, which is hundreds in a second if there is nothing else to do.
_END_AT_ONCE = 6
_CHANGED_CHALLENGE_RETRY = timedelta(minutes=10)
# For an order that the server processes: at some CAs people review each.
_LONGEST_POLL = timedelta(hours=1)
_MOST_REASONS = 3
# Orders in a day whose certificates another client of the account got, e.g. a second installation.
_MOST_CONTESTED = 10


class OrderTools(msgspec.Struct, frozen=True, kw_only=True):
    """The functions that the reconciler of Orders calls; `Wiring` binds them (in parentheses: to which).

    `orders_at`: the Orders with that URL at the CA (`Caches`). `superseded`: how many Orders of the request
    were given up in the last day, and `has_issued`: whether that account of the CA issued the certificate to
    replace (both `request_orders`). `wake` enqueues an Order. `is_proven`: whether the CA has called a
    Challenge valid (`ChallengeReconciler`). `refusal_of`: why an Order must not be acted on
    (`Provenance.problem_of_order`). `resolve_issuer` (`IssuerResolver.find`). `limited`: the CA has refused a
    new order because of a limit; returns whether the limit concerns orders for other names too
    (`RateLimits`). `recheck_issuer` enqueues an issuer. `downloaded` is called with a certificate before it
    is stored, MUST NOT raise, and MUST have a timeout (`AriPoller.poll_early`). `find_failover`: whether
    another member of the set signs instead (`Members`).
    """

    challenges: OrderChallenges
    orders_at: Callable[[str], Sequence[Order]]
    superseded: Callable[[Order], int]
    wake: Callable[[ObjectKey], None]
    has_issued: Callable[[Order, Directory, str], bool]
    is_proven: Callable[[Challenge], bool]
    refusal_of: Callable[[Order], str]
    resolve_issuer: Callable[[Order], Awaitable[ResolvedIssuer | Wait]]
    circuit_gate: CircuitGate
    limited: Callable[[Order, ResolvedIssuer, Refused], bool]
    recheck_issuer: Callable[[IssuerView], None]
    downloaded: Callable[[Order, ResolvedIssuer, CertificateFacts], Awaitable[None]]
    find_failover: FindFailover


class OrderReconciler:
    """Reconciles Orders. An Order from before this process started may already have been placed; it is looked
    up at the CA first."""

    def __init__(self, orders: Informer[Order], toolbox: Toolbox, tools: OrderTools) -> None:
        self._orders = orders
        self._tools = tools
        self._status = toolbox.status_of(orders)
        self._client = toolbox.client
        self._executor = toolbox.executor
        self._recorder = toolbox.recorder
        self._now = toolbox.now
        self._began_at = toolbox.now()
        self._tracker = OrderTracker()
        self._equal_orders = EqualOrders(tools.wake)
        self._contents: Contents = {}
        self._endings = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_END_AT_ONCE))

    def described(self, order: Order, url: str) -> ACMEAuthorization | None:
        """The authorization with that URL as this process has read it from the server for this Order."""
        return next(
            (authorization for authorization in self._tracker.described(order) if authorization.url == url),
            None,
        )

    def ended(self, key: ObjectKey) -> None:
        """Wake the Order that waits for the Order of that name, which has ended."""
        self._equal_orders.ended(key, self._now())

    # --- a pass -------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """Advance the Order until it must wait or has ended. Raises what writes to the API raise."""
        # Writes made here continue in this pass; their watch events do not requeue the key.
        with working_on(ORDERS, key):
            order = self._orders.cache.get(key)
            if order is None:
                self._tracker.forget(key)
                return Result()
            is_deleted = order.metadata.deletion_timestamp is not None
            if is_deleted or order.status.is_final:
                # "An order whose state is final is never spoken of to the server again."
                self._tracker.forget(key)
                # "If the Order fails for any reason, the Challenge resources will be retained to allow users
                # to debug the failures": their controller stops them.
                if order.status.state == "valid" and not is_deleted:
                    await self._tools.challenges.delete(order)
                return Result()
            return await self._advance(order)

    async def _advance(self, order: Order) -> Result:
        """One pass. If the Order still waits, another member of the issuer's set may take over."""
        outcome = await self._step(order)
        order = self._orders.cache.get(order.metadata.key) or order
        if order.status.is_final:
            return outcome if isinstance(outcome, Result) else Result()
        wait = outcome if isinstance(outcome, Wait) else Wait("")
        limited_until = wait.until if wait.is_limit and not wait.is_brief else None
        failover = await self._tools.find_failover(order, wait.is_failure, limited_until)
        if isinstance(failover, Failover):
            marks = {names.ACME_SUPERSEDED: "true", names.MEMBER_NOT_BEFORE: rfc3339(failover.not_before)}
            return await self._fail(order, "errored", failover.why, marks)
        if isinstance(outcome, Wait):
            if outcome.is_final:
                return await self._fail(order, "errored", outcome.why)
            outcome = await self._wait(order, outcome)
        is_earlier = failover is not None and (outcome.wake_at is None or failover < outcome.wake_at)
        return Result(wake_at=failover) if is_earlier else outcome

    async def _step(self, order: Order) -> Result | Wait:
        tools = self._tools
        if refusal := tools.refusal_of(order):
            # The owner's creation or approval wakes the Order.
            return Wait(refusal)
        if former := migration.order_annotations(order):
            order = await self._annotate(order, former)
        issuer = await tools.resolve_issuer(order)
        return await self._advance_at(issuer, order) if isinstance(issuer, ResolvedIssuer) else issuer

    async def _advance_at(self, issuer: ResolvedIssuer, order: Order) -> Result | Wait:
        client, gate, asked_at = issuer.client, self._tools.circuit_gate, self._now()
        account = {names.ACME_SERVER: client.directory_url, names.ACME_ACCOUNT: client.kid}
        if is_of_another_account(order.metadata.annotations, account):
            return await self._supersede(order, issuer)
        progress = self._progress(order).at_account(client.directory_url + client.kid)
        pause = progress.pause
        if pause is not None and asked_at < pause.until:
            ends_pause = pause.is_ours and gate.ends_pause(order, pause.since)
            if not ends_pause:
                self._tracker.keep(order, progress)
                return Result(wake_at=pause.until)
        self._tracker.keep(order, replace(progress, pause=None))
        is_doubtful = progress.failures and order.status.url
        if is_doubtful and (wait := gate.admit_continuation(order)) is not None:
            return wait
        try:
            result = await self._issue(order, issuer)
        except (AcmeError, NotOrdered, PkiError) as error:
            # The pass may have written the order's URL.
            order = self._orders.cache.get(order.metadata.key) or order
            return await self._failed(order, issuer, error, asked_at)
        order = self._orders.cache.get(order.metadata.key) or order
        if not order.status.is_final and (progress := self._progress(order)).failures:
            self._tracker.keep(order, replace(progress, failures=0))
        return result

    async def _issue(self, order: Order, issuer: ResolvedIssuer) -> Result | Wait:
        """Take the Order through the stages at the CA that are left. Raises `AcmeError`, `NotOrdered`,
        `PkiError`."""
        client = issuer.client
        if order.status.url and names.ACME_SERVER not in order.metadata.annotations:
            # An Order of a former version, whose issuer may have changed since.
            directory = await client.directory()
            if not directory.serves(order.status.url):
                return await self._supersede(order, issuer, origin_of(order.status.url))

        if isinstance(self._progress(order).stage, Unplaced):
            placed = await self._place(order, issuer)
            if not isinstance(placed, Order):
                return placed
            order = placed

        if isinstance(self._progress(order).stage, Placed):
            if any(not authorization.identifier for authorization in order.status.authorizations):
                # A crash, or an error of the CA, came between its order and their descriptions.
                order = await self._describe(order, issuer, order.status)
            if (waiting := await self._prove(order, issuer)) is not None:
                return waiting
            current = ServerOrder(order.status.url, "ready", order.status.finalize_url)
        else:
            current = await client.run(orders.fetch_order, order.status.url)

        csr, refusal = read_any_csr(order.spec.request), None
        if current.status == "ready":
            if isinstance(self._progress(order).stage, Placed):
                self._enter(order, Placed(is_ready=True))
            current, refusal = await order_requests.finalize(client, order, csr)

        stage = self._progress(order).stage
        finalizing = stage if isinstance(stage, Finalizing) else Finalizing(self._now(), polls=0)
        if refusal is not None:
            finalizing = replace(finalizing, is_contested=True)
        if current.status == "valid" and current.certificate:
            return await self._download(order, issuer, csr, current.certificate, finalizing)
        return await self._poll_later(order, issuer, current, finalizing)

    # --- placed -------------------------------------------------------------------------------------------

    async def _place(self, order: Order, issuer: ResolvedIssuer) -> Order | Result | Wait:
        """Place the order at the CA, if breaker and limits allow it. Returns the Order with its URL, or why
        the pass ends. Raises `AcmeError`, `NotOrdered`."""
        client, tools, spec = issuer.client, self._tools, order.spec
        stage = self._progress(order).stage
        assert isinstance(stage, Unplaced)
        if (before := self._equal_orders.before(order.metadata.key, self._now())) is not None:
            return self._wait_for_same(order, before)

        replaces = ""
        if spec.replaces:
            # A CA refuses an order that names a certificate which another account, or another CA, has issued.
            directory = await client.directory()
            may_replace = bool(directory.renewal_info) and tools.has_issued(order, directory, client.kid)
            replaces = spec.replaces if may_replace and not stage.replaces_nothing else ""
        wait = await tools.circuit_gate.admit(order, issuer, bool(replaces))
        if wait is not None:
            return wait

        born, placed = order.metadata.creation_timestamp, None
        try:
            if stage.may_exist or born is None or born < self._began_at:
                placed = await order_requests.find_lost(client, spec, tools.orders_at, self._contents)
            if placed is None:
                # Only a response shows whether the server has received it.
                self._enter(order, replace(stage, may_exist=True))
                stage = replace(stage, may_exist=False)
                placed = await order_requests.place(client, spec, replaces, self._now())
        except Unreachable:
            raise
        except Exception as error:
            self._enter(order, stage)
            if not (replaces and isinstance(error, Refused) and self._refuses_replaces(order, error)):
                raise
            # Without it the order counts against the CA's limits: they are asked first.
            self._enter(order, replace(stage, replaces_nothing=True))
            return Result(wake_at=self._now())
        if (before := self._join(order, issuer, placed.url)) is not None:
            tools.circuit_gate.record_answer(order)
            return self._wait_for_same(order, before)
        status = msgspec.structs.replace(
            order.status,
            url=placed.url,
            finalize_url=placed.finalize,
            authorizations=tuple(ACMEAuthorization(url=url) for url in placed.authorizations),
            state=placed.status if placed.status in OPEN_STATES else "pending",
            reason="",
        )
        order = await self._describe(order, issuer, status)
        tools.circuit_gate.placed(order)
        return order

    def _refuses_replaces(self, order: Order, error: Refused) -> bool:
        """Whether an order may be accepted that does not name its predecessor. CAs refuse `replaces` with
        many types of problems."""
        is_about_content = 400 <= error.status < 500 and error.reaction not in (
            Reaction.WAIT,
            Reaction.ACCOUNT,
        )
        # Pebble's answer about a certificate whose order it does not find is a serverInternal.
        fails_repeatedly = error.status >= 500 and self._progress(order).failures > 0
        return (is_about_content or fails_repeatedly) and not error.is_limit

    def _join(self, order: Order, issuer: ResolvedIssuer, url: str) -> tuple[ObjectKey, datetime] | None:
        """The Order to wait for, because the CA has answered with the order of that Order."""
        key, now = order.metadata.key, self._now()
        holders = (other.metadata.key for other in self._tools.orders_at(url) if not other.status.is_final)
        holder = next((other for other in holders if other != key), None)
        if holder is None:
            return None
        account = issuer.client.directory_url, issuer.client.kid
        self._equal_orders.join((*account, names_of_spec(order.spec)), holder, key, now)
        return self._equal_orders.before(key, now)

    def _wait_for_same(self, order: Order, before: tuple[ObjectKey, datetime]) -> Wait:
        """Wait for the Order that has the CA's order for the same names, and until when at most."""
        other, until = before
        stage = self._progress(order).stage
        if isinstance(stage, Unplaced):
            self._enter(order, replace(stage, may_exist=False))
        why = f"the CA has this order for Order {other}, too; it is ordered again when that has ended"
        return Wait(why, until, names_time=True)

    async def _describe(self, order: Order, issuer: ResolvedIssuer, status: OrderStatus) -> Order:
        """Write `status` with the descriptions of its authorizations, "to save subsequent calls to the ACME
        server"; without them where they cannot be read, because an order whose URL is lost is made twice.
        Raises `AcmeError`, `NotOrdered`."""
        urls = [authorization.url for authorization in status.authorizations]
        try:
            described = await order_requests.fetch_authorizations(issuer.client, order.spec, urls)
        except (AcmeError, NotOrdered):
            await self._write(order, status)
            raise
        self._tracker.keep(order, replace(self._progress(order), described=described))
        return await self._write(order, msgspec.structs.replace(status, authorizations=described))

    # --- proven -------------------------------------------------------------------------------------------

    async def _prove(self, order: Order, issuer: ResolvedIssuer) -> Result | Wait | None:
        """Have Challenges prove the names. Returns how the pass ends; None: all names are proven. Raises
        `AcmeError`."""
        progress = self._progress(order)
        try:
            challenges, ensured = await self._tools.challenges.ensure(order, issuer, progress.ensured)
        except NoSolver as error:
            until = self._now() + _CHANGED_CHALLENGE_RETRY if isinstance(error, ChallengeChanged) else None
            self._recorder.event(ORDERS, order, "Warning", "Solver", str(error))
            return Wait(str(error), until)
        self._tracker.keep(order, replace(progress, ensured=ensured))

        failed = [item for item in challenges if item.status.is_final and item.status.state != "valid"]
        if failed:
            # The Challenges give the reason; the server decides whether the order has failed.
            current = await issuer.client.run(orders.fetch_order, order.status.url)
            why = "; ".join(f"{item.spec.dns_name}: {item.status.reason}" for item in failed)
            state = current.status if current.status in ("invalid", "expired") else "invalid"
            is_lost = all(item.status.state == "expired" for item in failed)
            return await self._fail(order, state, why or _words(current), replaced_at_most=int(is_lost))

        unproven = [item for item in challenges if not self._tools.is_proven(item)]
        if not unproven:
            return None
        waiting = [item for item in unproven if item.status.reason]
        reasons = [f"{item.spec.dns_name}: {item.status.reason}" for item in waiting[:_MOST_REASONS]]
        if len(waiting) > _MOST_REASONS:
            reasons.append(f"and {len(waiting) - _MOST_REASONS} more")
        return Wait("; ".join(reasons))

    # --- finalized ----------------------------------------------------------------------------------------

    async def _poll_later(
        self, order: Order, issuer: ResolvedIssuer, current: ServerOrder, finalizing: Finalizing
    ) -> Result | Wait:
        """Poll an order that the server processes, or whose state RFC 8555 does not define; fail where it is
        invalid. Raises `AcmeError`, `NotOrdered`."""
        unproven, missing = "", frozenset[Name]()
        if current.status in ("pending", "invalid") and current.error is None:
            # A name is not proven, or not any more: the authorizations show which one.
            former = [authorization.url for authorization in order.status.authorizations]
            found = await order_requests.fetch_authorizations(
                issuer.client, order.spec, current.authorizations or former
            )
            missing = names_of_spec(order.spec) - {
                canonical(kind, full_name(item)) for item in found for kind in ("dns", "ip")
            }
            omitted = tuple(item for item in found if item.url not in former)
            if current.status == "pending" and omitted:
                # The CA's answer to the new order did not list them.
                return await self._prove_omitted(order, issuer, omitted)
            waiting = [item for item in found if item.initial_state != "valid"]
            unproven = ", ".join(
                f"{full_name(item)} is {item.initial_state or 'unknown'}" for item in waiting[:_MOST_REASONS]
            )
            unproven = f": {unproven}" if unproven else ""
        progress, now = self._progress(order), self._now()
        if current.status == "invalid":
            reason = "; ".join(filter(None, (progress.complaint, _words(current) + unproven)))
            # All names were proven: without an error, an authorization has expired since.
            return await self._fail(order, "invalid", reason, replaced_at_most=int(current.error is None))

        since = now - finalizing.since
        delay = growing(since, at_least=poll_delay(finalizing.polls), at_most=_LONGEST_POLL)
        until = max(now + delay, current.retry_after or now)
        state = current.status if current.status in OPEN_STATES else "processing"
        stage = replace(finalizing, polls=finalizing.polls + 1, state=state)
        pause = Pause(until, None, is_ours=current.retry_after is None)
        self._tracker.keep(order, replace(progress, stage=stage, pause=pause))
        if since + (until - now) < RECURRING:
            return Result(wake_at=until)
        if current.status == "pending" and missing:
            listed = ", ".join(sorted(name.value for name in missing))
            why = f'the ACME server calls the order "pending", but requests no proof of {listed}'
            return await self._fail(order, "errored", why)
        if current.retry_after is not None:
            # `certwright renew` does not override a time that the CA has named.
            order = await self._annotate(order, {names.NOT_BEFORE: until.astimezone(UTC).isoformat()})
        why = "the ACME server is processing the order"
        if current.status != "processing":
            why = f'the ACME server calls the order "{quote(current.status, 40)}"{unproven}'
        return Wait(why, until)

    async def _prove_omitted(
        self, order: Order, issuer: ResolvedIssuer, omitted: tuple[ACMEAuthorization, ...]
    ) -> Result | Wait:
        """Have names proven whose authorizations only a later answer of the CA lists."""
        progress = self._progress(order)
        described = (*progress.described, *omitted)
        self._tracker.keep(order, replace(progress, stage=Placed(), described=described))
        known = (*order.status.authorizations, *omitted)
        order = await self._write(order, msgspec.structs.replace(order.status, authorizations=known))
        return await self._prove(order, issuer) or Result(wake_at=self._now())

    async def _download(
        self, order: Order, issuer: ResolvedIssuer, csr: CsrFacts, url: str, finalizing: Finalizing
    ) -> Result:
        """Store the certificate, unless it is not what the Order asks for. Raises `AcmeError`, `PkiError`."""
        client, preferred = issuer.client, issuer.spec.preferred_chain
        # Until the certificate can be read, the order is polled.
        self._enter(order, finalizing)
        async with self._endings[client.directory_url]:
            downloaded = await client.run(orders.download, url, preferred_chain=preferred)
            chain, now = downloaded.chain, self._now()
            verification = await self._executor.run(lambda: verify(chain, (), now), order.metadata.namespace)
            wrong = wrong_certificate(chain[0], csr, now)
            if not wrong and verification.refusal:
                wrong = f"the server returned a certificate that no client accepts: {verification.refusal}"
            if wrong:
                most = _MOST_CONTESTED if finalizing.is_contested else 0
                return await self._fail(order, "errored", wrong, replaced_at_most=most)
            if preferred and not downloaded.ends_with(preferred):
                event = (
                    f'The server offers no chain that "{preferred}" has issued (spec.acme.preferredChain of '
                    "the issuer); its default chain is used"
                )
                self._recorder.event(ORDERS, order, "Warning", "PreferredChainMissing", event)
            await self._tools.downloaded(order, issuer, chain[0])
            status = msgspec.structs.replace(
                order.status, state="valid", certificate=downloaded.pem, reason=""
            )
            written = await self._write(order, status)
        self._recorder.event(ORDERS, written, "Normal", "Complete", COMPLETE)
        # The next pass, whatever its cause, deletes the Challenges.
        return Result(when_idle=True)

    # --- failures -----------------------------------------------------------------------------------------

    async def _failed(
        self,
        order: Order,
        issuer: ResolvedIssuer,
        error: AcmeError | NotOrdered | PkiError,
        asked_at: datetime,
    ) -> Result | Wait:
        """End the pass after a failed request to the CA: the type of the error decides whether the Order ends
        or waits."""
        tools, is_placed = self._tools, bool(order.status.url)
        if isinstance(error, NotOrdered):
            return await self._fail(order, "errored", str(error))
        if isinstance(error, PkiError):
            return await self._fail(order, "errored", f"spec.request cannot be used: {error}")
        refused = error if isinstance(error, Refused) else None
        if error.reaction is Reaction.ACCOUNT:
            # The issuer's controller finds out whether the account is lost.
            issuer.client.is_lost = True
            tools.recheck_issuer(issuer.view)
        if error.reaction in (Reaction.ORDER_FAILS, Reaction.OUR_MISTAKE):
            if refused is None:
                return await self._fail(order, "errored", str(error))
            tools.circuit_gate.record_answer(order)
            return await self._fail(
                order,
                "errored",
                error.in_full,
                {names.ACME_PROBLEM: refused.problem.name},
                replaced_at_most=int(is_placed and refused.is_gone),
            )

        concerns_others = True
        if refused is not None and refused.is_limit and not is_placed:
            concerns_others = tools.limited(order, issuer, refused)
        named = refused.retry_after if refused is not None else None
        now, progress = self._now(), self._progress(order)
        failures = progress.failures + 1
        until = now + doubled(SHORTEST_WAIT, failures, cap=LONGEST_WAIT)
        annotations = with_attempt(order, asked_at)
        if named is not None:
            until = max(min(named, now + LONGEST_OBEYED), now + SHORTEST_WAIT)
            annotations[names.NOT_BEFORE] = until.astimezone(UTC).isoformat()
            reason = with_not_before(str(error), until)
        else:
            reason = Announced.of(str(error), until, now).text
        order = await self._annotate(order, annotations)
        self._tracker.keep(
            order,
            replace(
                progress,
                failures=failures,
                pause=Pause(until, now, is_ours=named is None),
                complaint=str(error) if is_placed and refused is not None else "",
            ),
        )
        if concerns_others:
            tools.circuit_gate.record_failure(order, error, named)
        else:
            tools.circuit_gate.record_answer(order)
        return Wait(reason, until, names_time=True, is_limit=named is not None, is_failure=True)

    async def _supersede(self, order: Order, issuer: ResolvedIssuer, former: str = "") -> Result:
        """End an Order of a server or account that the issuer no longer uses. No other server knows the
        order, and no other account may read it. Its request makes the next Order immediately
        (`RequestOrders`), and nothing counts as a failure, because the annotation is written first.
        `former`: the server, if no annotation names it."""
        annotations = order.metadata.annotations
        if annotations.get(names.ACME_SUPERSEDED) == "true":
            why = "the issuer's profile or duration has changed; another Order takes its place"
            return await self._fail(order, "errored", why)
        former = annotations.get(names.ACME_SERVER) or former or "another server"
        if former == issuer.client.directory_url:
            former = f"account {annotations.get(names.ACME_ACCOUNT, '')}"
        name = f'{issuer.view.kind} "{issuer.view.name}"'
        why = f"{name} no longer uses {former}, where this order is; another Order takes its place"
        return await self._fail(order, "errored", why, {names.ACME_SUPERSEDED: "true"})

    async def _fail(
        self,
        order: Order,
        state: str,
        reason: str,
        annotations: Mapping[str, str] | None = None,
        *,
        replaced_at_most: int = 0,
    ) -> Result:
        """End the Order in a final state; `annotations` are written before.

        If the CA has lost the order, or given its certificate to another client of the account, the request
        makes the next Order immediately, which is no failure: `replaced_at_most` times a day.
        """
        annotations = dict(annotations or {})
        if replaced_at_most and self._tools.superseded(order) < replaced_at_most:
            state, reason = "errored", f"{reason}; another Order takes its place"
            annotations[names.ACME_SUPERSEDED] = "true"
        if annotations:
            order = await self._annotate(order, annotations)
        failed_at = self._now().replace(microsecond=0)
        status = msgspec.structs.replace(order.status, state=state, reason=reason, failure_time=failed_at)
        written = await self._write(order, status)
        self._recorder.event(ORDERS, written, "Warning", "OrderFailed", reason)
        self._tracker.forget(order.metadata.key)
        return Result()

    # --- waits and writes ---------------------------------------------------------------------------------

    async def _wait(self, order: Order, wait: Wait) -> Result:
        """Write why the Order waits, if that is news."""
        progress, now = self._progress(order), self._now()
        announced = Announced.of(wait.why, None if wait.names_time else wait.until, now)
        if wait.is_brief or not announced.is_news(progress.announced, now):
            return Result(wake_at=wait.until)
        self._tracker.keep(order, replace(progress, announced=announced))
        state, stage = order.status.state, progress.stage
        if isinstance(stage, Finalizing):
            state = stage.state
        elif isinstance(stage, Placed) and stage.is_ready:
            state = "ready"
        await self._write(order, msgspec.structs.replace(order.status, reason=announced.text, state=state))
        return Result(wake_at=wait.until)

    def _progress(self, order: Order) -> OrderProgress:
        return self._tracker.of(order, self._now())

    def _enter(self, order: Order, stage: Stage) -> None:
        self._tracker.keep(order, replace(self._progress(order), stage=stage))

    async def _write(self, order: Order, status: OrderStatus) -> Order:
        return await self._status.commit(ORDERS, order, msgspec.structs.replace(order, status=status))

    async def _annotate(self, order: Order, annotations: Mapping[str, str]) -> Order:
        """Set annotations. State that a restart or a request needs is data, never a part of a reason."""
        meta = order.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": dict(annotations)}}
        written = await self._client.patch(ORDERS, meta.name, meta.namespace, patch)
        self._orders.put(written)
        return written


def wrong_certificate(certificate: CertificateFacts, csr: CsrFacts, now: datetime) -> str:
    """Why the certificate must not be used, as a sentence; empty: it may."""
    if certificate.public_key_der != csr.public_key_der:
        return "the server returned a certificate for another key"
    missing = names_of_identity(csr) - names_of_identity(certificate)
    if missing:
        listed = ", ".join(sorted(name.value for name in missing))
        return f"the server returned a certificate without {listed}"
    if certificate.not_after <= now:
        return "the server returned a certificate that has expired"
    return ""


def _words(current: ServerOrder) -> str:
    if current.error is not None:
        return current.error.sentence_with_urn
    return f"the server calls the order {current.status}"
