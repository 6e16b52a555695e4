"""Rate limits of CAs: a ledger per CA, fed by Orders and Challenges, and stored in a ConfigMap.

A ConfigMap belongs to a CA, not to an account, because CAs count the certificates of a domain over all
accounts. All shards share it, because they share the limits (`shared_ledger.py`).

A crash loses nothing that the CA may have counted. An order is written before the CA receives it; orders
admitted at the same time are one write. Later changes are written within half a minute; after a crash they
are read from the Orders and Challenges that have changed since then (by resourceVersion).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from certwright.acme.ratelimits import published
from certwright.acme.ratelimits.ledger import RESERVED_FOR, Ledger, NewOrder, WaitUntil
from certwright.acme.ratelimits.published import Chosen
from certwright.acme.ratelimits.state import FAILED, ISSUED, Seen, catch_up
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.shared_ledger import SharedLedger
from certwright.controllers.acme.waits import Wait
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import owner_value
from certwright.controllers.cache.shard_members import Sharing
from certwright.controllers.requests.issuer_lister import IssuerState
from certwright.kit.rate_limit import micros
from certwright.kube.api.errors import Unreachable
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.kube.api.naming import new_uid
from certwright.kube.client.cache import revision_of
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.resources import names
from certwright.resources.acme import Challenge, Order, OrderSpec
from certwright.resources.references import IssuerReference

if TYPE_CHECKING:
    from certwright.acme.protocol.errors import Refused


_MICRO: Final = timedelta(microseconds=1)
# How long ago a CA may have issued for the same names for the next order to count as a renewal: Boulder's.
_RENEWAL_WITHIN: Final = timedelta(days=120)
# CAs date their certificates back: Let's Encrypt by an hour.
_BACKDATED: Final = timedelta(hours=1)
_SAVE_WITHIN: Final = timedelta(seconds=30)
# The maximum age of other shards' writes when an order asks. The write itself checks the limits; this is for
# what another shard has just learned from a refusal.
_FRESH_S: Final = 1.0
# How often waiting orders check whether another shard has released something.
_POLL_EVERY_S: Final = 15.0
# A reservation whose Order is missing: another shard's Order may not have arrived here yet.
_MAY_ARRIVE: Final = timedelta(minutes=1)
_TIDY_EVERY: Final = timedelta(minutes=10)

_log = logging.getLogger(__name__)

FindIssuer = Callable[[IssuerReference, str], IssuerState | None]


@dataclass(slots=True)
class _Book:
    """The ledger of one CA."""

    shared: SharedLedger
    is_loaded: bool = False
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_planned: bool = False
    is_active: bool = False
    tidied_at: datetime | None = None


class _Known(NamedTuple):
    """An Order that has not ended, with its account."""

    book: _Book
    key: ObjectKey
    account: str


class RateLimits:
    """The rate limits of all CAs: admits new orders, and records what becomes of them.

    The ConfigMaps are in `namespace`; `chosen` is what the user configures for CAs, `sharing` which Orders
    are this replica's.
    """

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        clock: Clock,
        find_issuer: FindIssuer,
        namespace: str,
        chosen: Chosen,
        sharing: Sharing,
    ) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        self._find_issuer = find_issuer
        self._namespace = namespace
        self._chosen = chosen
        self._sharing = sharing
        self._books: dict[str, _Book] = {}
        self._known: dict[str, _Known] = {}
        self._tasks = TaskSet()
        self._wake: Callable[[ObjectKey], None] = lambda _key: None
        self.accounts = AccountLimits(self._ledger_of, self._save_later, clock.now)
        """How many new accounts the CAs allow."""

    def start(self, wake: Callable[[ObjectKey], None]) -> None:
        """Subscribe to Orders and Challenges; `wake` enqueues an Order whose turn may have come."""
        self._wake = wake
        self._caches.orders.add_handler(self._order_changed)
        self._caches.challenges.add_handler(self._challenge_changed)

    async def flush(self) -> None:
        """Write pending changes. Raises what writes to the API raise."""
        for book in self._books.values():
            await book.shared.commit()

    async def close(self) -> None:
        """Stop; `flush` first."""
        await self._tasks.close()

    # --- calls of the Orders' controller -------------------------------------------------------------------

    async def admit(self, order: Order, issuer: ResolvedIssuer, replaces: bool) -> Wait | None:
        """Whether the CA's limits allow a new order now; a `Wait` until they do. Raises `Unreachable`."""
        book = await self._ledger_of(issuer.spec.server)
        new_order = self._new_order(order, issuer.client.kid, replaces=replaces)
        self._known[order.metadata.uid] = _Known(book, order.metadata.key, new_order.account)
        now = self._clock.now()
        if book.tidied_at is None or now - book.tidied_at > _TIDY_EVERY:
            self._abandon_deleted(book, RESERVED_FOR)
        # A reservation is written before the CA receives the order, because a crash would lose it otherwise.
        answer = await book.shared.reserve(lambda ledger: ledger.admit(new_order, now))
        if answer is None:
            return None
        self._save_later(book)
        if book.shared.is_shared and not book.is_active:
            book.is_active = True
            self._tasks.start(self._poll(book), name=f"other shards' ledger of {book.shared.server}")
        return _wait(answer)

    def limit_of(self, order: Order, issuer: ResolvedIssuer, replaces: bool) -> Wait | None:
        """What `admit` would answer now, as far as the limits are loaded; changes nothing."""
        book = self._books.get(issuer.spec.server)
        if book is None or not book.is_loaded:
            return None
        new_order = self._new_order(order, issuer.client.kid, replaces=replaces)
        answer = book.shared.ledger.limit_of(new_order, self._clock.now())
        return _wait(answer) if answer is not None else None

    def limited(self, order: Order, issuer: ResolvedIssuer, error: Refused) -> bool:
        """The CA has refused a new order because of a limit. Returns whether that concerns orders for other
        names too."""
        book = self._books.get(issuer.spec.server)
        if book is None or not book.is_loaded:
            return True
        new_order = self._new_order(order, issuer.client.kid, replaces=bool(order.spec.replaces))
        text, until, now = str(error), error.retry_after, self._clock.now()
        concerns_others = True

        def record(ledger: Ledger) -> None:
            nonlocal concerns_others
            concerns_others = ledger.record_refusal(new_order, text, until, now)

        book.shared.change(record)
        _log.warning("%s has refused an order because of a limit: %s", book.shared.server, error)
        self._save_now(book)
        return concerns_others

    # --- events -------------------------------------------------------------------------------------------

    def _order_changed(self, old: Order | None, new: Order | None) -> None:
        order = new if new is not None else old
        assert order is not None
        self._note_revision(revision_of(order))
        uid, now, is_gone = order.metadata.uid, self._clock.now(), new is None
        known = self._known.get(uid)
        if known is None:
            return

        def count(ledger: Ledger) -> None:
            if not is_gone and order.status.url:
                ledger.placed(uid, now)
            if not is_gone and order.status.is_final:
                end = ledger.issued if order.status.state == "valid" else ledger.failed
                end(uid, now)
            if is_gone or order.status.is_final:
                ledger.forget(uid, now)

        known.book.shared.change(count)
        if is_gone or order.status.is_final:
            self._known.pop(uid, None)
        self._save_later(known.book)

    def _challenge_changed(self, old: Challenge | None, new: Challenge | None) -> None:
        if new is None or new.status.state != "invalid" or old is None or old.status.state == "invalid":
            return
        self._note_revision(revision_of(new))
        owner = controller_of(new.metadata)
        if owner is not None and (known := self._known.get(owner.uid)) is not None:
            self._count_failure(known.book, known.account, new)
            self._save_now(known.book)

    def _count_failure(self, book: _Book, account: str, challenge: Challenge) -> None:
        name, now = challenge.spec.dns_name, self._clock.now()
        book.shared.change(lambda ledger: ledger.failed_validation(account, name, now))

    def _note_revision(self, revision: int) -> None:
        for book in self._books.values():
            book.shared.revision = max(book.shared.revision, revision)

    # --- what an Order uses of the limits -------------------------------------------------------------------

    def _new_order(self, order: Order, account: str, *, replaces: bool) -> NewOrder:
        """The Order as a new order of the ledger. `replaces`: it names the certificate that it replaces."""
        meta = order.metadata
        return NewOrder(
            uid=meta.uid,
            account=account,
            identifiers=_identifiers(order.spec),
            since=meta.creation_timestamp or self._clock.now(),
            replaces=replaces,
            renewal=not replaces and self._is_renewal(order),
        )

    def _is_renewal(self, order: Order) -> bool:
        """Whether an earlier Order of the same Certificate got one for just these names, there and lately."""
        certificate = order.metadata.annotations.get(names.CERTIFICATE_NAME)
        if not certificate:
            return False
        now, identifiers = self._clock.now(), set(_identifiers(order.spec))
        oldest, born = now - _RENEWAL_WITHIN, order.metadata.creation_timestamp or now
        return any(
            other.status.state == "valid"
            and other.metadata.uid != order.metadata.uid
            and other.spec.issuer_ref == order.spec.issuer_ref
            and oldest < (other.metadata.creation_timestamp or oldest) <= born
            and set(_identifiers(other.spec)) == identifiers
            for other in self._caches.orders_for_certificate(
                owner_value(order.metadata.namespace, certificate)
            )
        )

    def _seen(self, order: Order, account: str, *, is_newer: bool) -> Seen:
        """What the Order shows after a restart. `is_newer`: it has changed since the ledger was written."""
        now, status = self._clock.now(), order.status
        by = now
        if status.state == "valid":
            # An unreadable certificate counts as issued now.
            with suppress(PkiError):
                by = min(now, read_certificate(status.certificate).not_before + _BACKDATED)
        elif status.is_final:
            by = status.failure_time or now
        end = ISSUED if status.state == "valid" else FAILED if status.is_final else ""
        new_order = self._new_order(order, account, replaces=bool(order.spec.replaces))
        return Seen(new_order, is_newer, bool(status.url), end, by, by)

    # --- loading ------------------------------------------------------------------------------------------

    async def _ledger_of(self, server: str) -> _Book:
        book = self._books.get(server)
        if book is None:

            def wake(uid: str) -> None:
                if (known := self._known.get(uid)) is not None:
                    self._wake(known.key)

            shared = SharedLedger(
                server,
                published.limits_of(server, self._chosen),
                wake,
                client=self._client,
                clock=self._clock,
                namespace=self._namespace,
                own=self._sharing.own.keys(),
                everyone=self._sharing.everyone,
            )
            book = self._books[server] = _Book(shared)
        if not book.is_loaded:
            async with book.loading:
                if not book.is_loaded:
                    await self._load(book)
        elif book.shared.is_shared:
            await book.shared.refresh(_FRESH_S)
        return book

    async def _load(self, book: _Book) -> None:
        is_saved = await book.shared.load()
        saved, flights = book.shared.saved, book.shared.ledger.flights
        seen: list[Seen] = []
        counted_to: dict[str, tuple[int, str]] = {}
        for order, account in self._orders_at(book.shared.server):
            share = self._sharing.share_of(order.metadata.key)
            if share is not None and not order.status.is_final:
                self._known[order.metadata.uid] = _Known(book, order.metadata.key, account)
            if share is None and is_saved:
                continue
            # Where nothing is saved, the first process counts the Orders of all.
            revision = saved.revision_of(share) if share is not None and is_saved else 0
            counted_to[order.metadata.uid] = revision, account
            is_newer = revision_of(order) > revision
            if is_newer or order.metadata.uid in flights or not order.status.is_final:
                seen.append(self._seen(order, account, is_newer=is_newer))
        now = self._clock.now()
        book.shared.change(lambda ledger: catch_up(ledger, seen, now))
        self._abandon_deleted(book, _MAY_ARRIVE if book.shared.is_shared else timedelta(0))
        for challenge in self._caches.challenges.cache.values():
            owner = controller_of(challenge.metadata)
            revision, account = counted_to.get(owner.uid if owner else "", (sys.maxsize, ""))
            if challenge.status.state == "invalid" and revision_of(challenge) > revision:
                self._count_failure(book, account, challenge)
        everything = (*self._caches.orders.cache.values(), *self._caches.challenges.cache.values())
        book.shared.revision = max((revision_of(resource) for resource in everything), default=0)
        book.is_loaded = True

    def _abandon_deleted(self, book: _Book, older_than: timedelta) -> None:
        """Reservations of Orders that no longer exist; and of accounts, by processes that have ended."""
        now = book.tidied_at = self._clock.now()
        flights = book.shared.ledger.flights
        old = {uid for uid, flight in flights.items() if micros(now) - flight.at >= older_than // _MICRO}
        if old := old - self._known.keys():
            old -= {order.metadata.uid for order in self._caches.orders.cache.values()}
        for uid in sorted(old):
            book.shared.change(partial(Ledger.abandon, uid=uid, now=now))

    def _orders_at(self, server: str) -> Iterator[tuple[Order, str]]:
        """The Orders at that CA, with their accounts."""
        issuers: dict[tuple[str, str, str], IssuerState | None] = {}
        for order in self._caches.orders.cache.values():
            reference, namespace = order.spec.issuer_ref, order.metadata.namespace
            place = (reference.kind_or_default, namespace, reference.name)
            if place not in issuers:
                issuers[place] = self._find_issuer(reference, namespace)
            state = issuers[place]
            if state is None or state.view.spec.acme is None or state.view.spec.acme.server != server:
                continue
            yield order, state.view.account.uri if state.view.account is not None else ""

    # --- saving -------------------------------------------------------------------------------------------

    def _save_later(self, book: _Book) -> None:
        if book.shared.has_changed and book.is_loaded and not book.is_planned:
            book.is_planned = True

            async def save() -> None:
                while book.is_planned:
                    await self._clock.sleep(_SAVE_WITHIN.total_seconds())
                    with suppress(Unreachable):
                        await book.shared.commit()
                        book.is_planned = False

            self._tasks.start(save(), name=f"ledger of {book.shared.server}")

    def _save_now(self, book: _Book) -> None:
        """Write soon what the other shards must learn before they order."""
        self._save_later(book)
        if book.shared.is_shared:

            async def save() -> None:
                with suppress(Unreachable):
                    await book.shared.commit()

            self._tasks.start(save(), name=f"ledger of {book.shared.server}, at once")

    async def _poll(self, book: _Book) -> None:
        """Poll while Orders wait, because another shard may release capacity."""
        while book.shared.ledger.waiting:
            await self._clock.sleep(_POLL_EVERY_S)
            with suppress(Unreachable):
                await book.shared.refresh(_FRESH_S)
        book.is_active = False


class AccountLimits:
    """The limits of new accounts: an `AccountLimit`. `ledger_of` gives the loaded ledger of a server,
    `save_later` schedules the write of a changed one."""

    def __init__(
        self,
        ledger_of: Callable[[str], Awaitable[_Book]],
        save_later: Callable[[_Book], None],
        now: Callable[[], datetime],
    ) -> None:
        self._ledger_of = ledger_of
        self._save_later = save_later
        self._now = now
        self._attempts: dict[str, list[tuple[_Book, str]]] = {}

    async def admit(self, server: str) -> tuple[str, datetime] | None:
        """See `AccountLimit`."""
        book = await self._ledger_of(server)
        uid, now = f"account-{new_uid()}", self._now()
        self._attempts.setdefault(server, []).append((book, uid))
        try:
            answer = await book.shared.reserve(lambda ledger: ledger.admit_account(uid, now))
        except BaseException:
            self.ended(server, is_made=False)
            raise
        if answer is None:
            return None
        self._attempts[server].remove((book, uid))
        return answer.sentence, answer.moment

    def ended(self, server: str, *, is_made: bool) -> None:
        """See `AccountLimit`."""
        # Attempts at one server are interchangeable.
        book, uid = self._attempts[server].pop()
        now = self._now()
        book.shared.change(lambda ledger: ledger.account_ended(uid, now, is_made=is_made))
        self._save_later(book)


def _wait(answer: WaitUntil) -> Wait:
    return Wait(answer.sentence, answer.moment, names_time=True, is_limit=True)


def _identifiers(spec: OrderSpec) -> tuple[str, ...]:
    identifiers = (*spec.dns_names, *spec.ip_addresses, *((spec.common_name,) if spec.common_name else ()))
    return tuple(dict.fromkeys(identifiers))
