"""The ledgers of this process, one per CA: fed by what becomes of Orders and Challenges, kept in ConfigMaps.

A ConfigMap per CA and not per account, because the CAs count certificates of a domain over all accounts.

What a crash can lose: nothing that the CA may have counted. An order is written down before the CA hears of
it (all that are admitted at the same time in one write). What follows is written within half a minute; after
a crash it is read off the Orders and Challenges that have changed since (their resourceVersion tells).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from certwright.acme.limits import known, recovery
from certwright.acme.limits.asking import Asking, WaitUntil
from certwright.acme.limits.known import Chosen
from certwright.acme.limits.ledger import Ledger, state
from certwright.client.cache import revision_of
from certwright.client.rest import Client
from certwright.controllers.acme.ways import Wait, Way
from certwright.controllers.caches import Caches, owner_value
from certwright.controllers.signing import IssuerState
from certwright.kit.clock import Clock
from certwright.kit.tasks import TaskSet
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.resources import names
from certwright.resources.challenge import Challenge
from certwright.resources.core import ConfigMap
from certwright.resources.errors import AlreadyExists, ApiError, Forbidden, NotFound, Unreachable
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.meta import ObjectKey, ObjectMeta, controller_of
from certwright.resources.order import Order, OrderSpec
from certwright.resources.table import CONFIG_MAPS

if TYPE_CHECKING:
    from certwright.acme.protocol.errors import Refused

_SAVE_WITHIN: Final = timedelta(seconds=30)
# How long ago a CA may have issued for the same names for the next order to count as a renewal: Boulder's.
_RENEWAL_WITHIN: Final = timedelta(days=120)
# CAs date their certificates back: Let's Encrypt by an hour.
_BACKDATED: Final = timedelta(hours=1)
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")

_log = logging.getLogger(__name__)

FindIssuer = Callable[[IssuerReference, str], IssuerState | None]


@dataclass(slots=True)
class _Book:
    """The ledger of one CA, and how much of it is written down. `revision` is the latest of an Order or
    Challenge that it has heard of; `keys` are the Orders that it may have to wake."""

    server: str
    ledger: Ledger
    revision: int = 0
    keys: dict[str, ObjectKey] = field(default_factory=dict)
    is_loaded: bool = False
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_planned: bool = False


class AccountLimits:
    """See `AccountLimit`. `save_later` has a changed ledger written."""

    def __init__(
        self,
        book_of: Callable[[str], Awaitable[_Book]],
        save_later: Callable[[_Book], None],
        now: Callable[[], datetime],
    ) -> None:
        self._book_of = book_of
        self._save_later = save_later
        self._now = now
        self._books: dict[str, _Book] = {}

    async def admit(self, server: str) -> tuple[str, datetime] | None:
        """See `AccountLimit`."""
        book = self._books[server] = await self._book_of(server)
        answer = book.ledger.admit_account(self._now())
        return (answer.sentence, answer.moment) if isinstance(answer, WaitUntil) else None

    def ended(self, server: str, *, is_made: bool) -> None:
        """See `AccountLimit`."""
        book = self._books[server]
        book.ledger.account_ended(self._now(), is_made=is_made)
        self._save_later(book)


class Ledgers:
    """Asked before an order is made, and told what becomes of it. The ConfigMaps lie in `namespace`;
    `chosen` is what the user says of CAs."""

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        clock: Clock,
        find_issuer: FindIssuer,
        namespace: str,
        chosen: Chosen,
    ) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        self._find_issuer = find_issuer
        self._namespace = namespace
        self._chosen = chosen
        self._books: dict[str, _Book] = {}
        self._book_of: dict[str, _Book] = {}
        self._tasks = TaskSet()
        self._wake: Callable[[ObjectKey], None] = lambda _key: None
        self.accounts = AccountLimits(self._book, self._save_later, clock.now)
        """How many new accounts the CAs allow."""

    def start(self, wake: Callable[[ObjectKey], None]) -> None:
        """Hear of Orders and Challenges; `wake` queues an Order whose turn may have come."""
        self._wake = wake
        self._caches.orders.add_handler(self._order_changed)
        self._caches.challenges.add_handler(self._challenge_changed)

    async def flush(self) -> None:
        """Write down what is not yet written. Raises what writes to the API raise."""
        for book in self._books.values():
            if book.is_loaded and book.ledger.is_changed:
                await self._save(book)

    async def close(self) -> None:
        """Stop; `flush` first."""
        await self._tasks.close()

    # --- what the Orders' controller asks and tells --------------------------------------------------------

    async def admit(self, order: Order, way: Way, replaces: bool) -> Wait | None:
        """Whether the CA's limits allow a new order now; a `Wait` until they do. Raises `Unreachable`."""
        book = await self._book(way.spec.server)
        asking = self._asking(order, way.client.kid, replaces=replaces)
        self._know(book, order)
        answer = book.ledger.admit(asking, self._clock.now())
        if isinstance(answer, WaitUntil):
            self._save_later(book)
            return Wait(answer.sentence, answer.moment)
        if book.ledger.is_changed:
            # Before the CA hears of it, or a crash would have it forgotten.
            await self._save(book)
        return None

    def limited(self, order: Order, way: Way, error: Refused) -> None:
        """The CA has refused a new order because of a limit."""
        book = self._books.get(way.spec.server)
        if book is None or not book.is_loaded:
            return
        asking = self._asking(order, way.client.kid, replaces=bool(order.spec.replaces))
        book.ledger.told(asking, str(error), error.retry_after, self._clock.now())
        _log.warning("%s has refused an order because of a limit: %s", book.server, error)
        self._save_later(book)

    def _asking(self, order: Order, account: str, *, replaces: bool) -> Asking:
        meta = order.metadata
        return Asking(
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
        now, wanted = self._clock.now(), set(_identifiers(order.spec))
        oldest, born = now - _RENEWAL_WITHIN, order.metadata.creation_timestamp or now
        return any(
            other.status.state == "valid"
            and other.metadata.uid != order.metadata.uid
            and other.spec.issuer_ref == order.spec.issuer_ref
            and oldest < (other.metadata.creation_timestamp or oldest) <= born
            and set(_identifiers(other.spec)) == wanted
            for other in self._caches.orders_for_certificate(
                owner_value(order.metadata.namespace, certificate)
            )
        )

    # --- what is heard ------------------------------------------------------------------------------------

    def _know(self, book: _Book, order: Order) -> None:
        book.keys[order.metadata.uid] = order.metadata.key
        self._book_of[order.metadata.uid] = book

    def _order_changed(self, old: Order | None, new: Order | None) -> None:
        order = new if new is not None else old
        assert order is not None
        self._note_revision(revision_of(order))
        book = self._book_of.get(order.metadata.uid)
        if book is None:
            return
        uid, now = order.metadata.uid, self._clock.now()
        if new is None:
            book.ledger.forget(uid, now)
        elif new.status.url:
            book.ledger.placed(uid, now)
        if new is not None and new.status.is_final:
            end = book.ledger.issued if new.status.state == "valid" else book.ledger.failed
            end(uid, now)
            book.ledger.forget(uid, now)
        if new is None or new.status.is_final:
            book.keys.pop(uid, None)
            self._book_of.pop(uid, None)
        self._save_later(book)

    def _challenge_changed(self, old: Challenge | None, new: Challenge | None) -> None:
        if new is None or new.status.state != "invalid" or old is None or old.status.state == "invalid":
            return
        self._note_revision(revision_of(new))
        self._count_failure(new)

    def _count_failure(self, challenge: Challenge) -> None:
        owner = controller_of(challenge.metadata)
        book = self._book_of.get(owner.uid) if owner is not None else None
        flight = book.ledger.flights.get(owner.uid) if book is not None and owner is not None else None
        if book is not None and flight is not None:
            book.ledger.failed_validation(flight.asking.account, challenge.spec.dns_name, self._clock.now())
            self._save_later(book)

    def _note_revision(self, revision: int) -> None:
        for book in self._books.values():
            book.revision = max(book.revision, revision)

    # --- loading ------------------------------------------------------------------------------------------

    async def _book(self, server: str) -> _Book:
        book = self._books.get(server)
        if book is None:
            book = self._books[server] = self._new_book(server)
        if not book.is_loaded:
            async with book.loading:
                if not book.is_loaded:
                    await self._load(book)
        return book

    def _new_book(self, server: str) -> _Book:
        keys: dict[str, ObjectKey] = {}

        def wake(uid: str) -> None:
            if (key := keys.get(uid)) is not None:
                self._wake(key)

        return _Book(server, Ledger(known.limits_of(server, self._chosen), wake), keys=keys)

    async def _load(self, book: _Book) -> None:
        saved, revision = await self._read(book.server)
        now = self._clock.now()
        orders = list(self._orders_at(book.server))
        for order, _ in orders:
            if not order.status.is_final:
                self._know(book, order)
        seen = [self._seen(order, account) for order, account in orders if _matters(order, saved, revision)]
        recovery.recover(book.ledger, saved, revision, seen, now)
        for challenge in self._caches.challenges.cache.values():
            if challenge.status.state == "invalid" and revision_of(challenge) > revision:
                self._count_failure(challenge)
        everything = (*self._caches.orders.cache.values(), *self._caches.challenges.cache.values())
        book.revision = max((revision_of(one) for one in everything), default=0)
        book.is_loaded = True

    async def _read(self, server: str) -> tuple[dict[str, Any], int]:
        try:
            found = await self._client.get(CONFIG_MAPS, config_map_name(server), self._namespace)
        except NotFound:
            return {}, 0
        except Forbidden as error:
            _log.warning("the ACME limits of %s are counted from the Orders only: %s", server, error)
            return {}, 0
        try:
            held = msgspec.json.decode(found.data.get("state.json", "{}"), type=_Saved)
        except msgspec.DecodeError as error:
            # Everything is counted anew from the Orders.
            _log.warning("ConfigMap %s cannot be read and is made anew: %s", found.metadata.key, error)
            return {}, 0
        return held.ledger, held.revision

    def _orders_at(self, server: str) -> Iterator[tuple[Order, str]]:
        """The Orders at that CA, with their accounts."""
        issuers: dict[tuple[str, str, str], IssuerState | None] = {}
        for order in self._caches.orders.cache.values():
            reference, namespace = order.spec.issuer_ref, order.metadata.namespace
            place = (reference.kind_or_default, namespace, reference.name)
            if place not in issuers:
                issuers[place] = self._find_issuer(reference, namespace)
            found = issuers[place]
            if found is None or found.view.spec.acme is None or found.view.spec.acme.server != server:
                continue
            yield order, found.view.account.uri if found.view.account is not None else ""

    def _seen(self, order: Order, account: str) -> recovery.Seen:
        now, status = self._clock.now(), order.status
        by = now
        if status.state == "valid":
            by = min(now, _issued_by(status.certificate, now))
        elif status.is_final:
            by = status.failure_time or now
        end = recovery.ISSUED if status.state == "valid" else recovery.FAILED if status.is_final else ""
        asking = self._asking(order, account, replaces=bool(order.spec.replaces))
        return recovery.Seen(asking, revision_of(order), bool(status.url), end, by, by)

    # --- saving -------------------------------------------------------------------------------------------

    def _save_later(self, book: _Book) -> None:
        if book.ledger.is_changed and book.is_loaded and not book.is_planned:
            book.is_planned = True
            self._tasks.start(self._save_in_time(book), name=f"ledger of {book.server}")

    async def _save_in_time(self, book: _Book) -> None:
        while True:
            await self._clock.sleep(_SAVE_WITHIN.total_seconds())
            try:
                await self._save(book)
            except Unreachable:
                continue
            book.is_planned = False
            return

    async def _save(self, book: _Book) -> None:
        """Write the ledger down, once for all who ask for it at the same time. Raises `Unreachable`."""
        async with book.saving:
            if not book.ledger.is_changed:
                return
            book.ledger.is_changed = False
            try:
                await self._write(book)
            except ApiError as error:
                # Not being allowed to write ConfigMaps must not keep anybody from certificates.
                _log.warning("the ACME limits of %s are not saved: %s", book.server, error)
            except BaseException:
                book.ledger.is_changed = True
                raise

    async def _write(self, book: _Book) -> None:
        name, data = config_map_name(book.server), _content(book, self._clock.now())
        try:
            await self._client.patch(CONFIG_MAPS, name, self._namespace, {"data": data})
        except NotFound:
            labels = {names.ACME_LIMITS_LABEL: "true", names.MANAGED_BY_LABEL: "cert-manager"}
            meta = ObjectMeta(name=name, namespace=self._namespace, labels=labels)
            try:
                await self._client.create(CONFIG_MAPS, ConfigMap(metadata=meta, data=data))
            except AlreadyExists:
                await self._client.patch(CONFIG_MAPS, name, self._namespace, {"data": data})


class _Saved(msgspec.Struct):
    revision: int = 0
    ledger: dict[str, Any] = {}


def config_map_name(server: str) -> str:
    """The name of the ConfigMap for the CA with that directory URL."""
    host = _NOT_A_NAME.sub("-", known.host_of(server)).strip("-")[:40]
    return f"acme-limits-{host}-{hashlib.sha256(server.encode()).hexdigest()[:8]}"


def _content(book: _Book, now: datetime) -> dict[str, str]:
    limits = book.ledger.limits
    rules = {
        name: {
            "meaning": known.MEANINGS[name],
            "count": limit.rate.count,
            "windowSeconds": limit.rate.window.total_seconds(),
            "refills": limit.rate.refills,
            "overrides": dict(limit.overrides),
        }
        for name, limit in limits.limits.items()
    }
    saved = _Saved(book.revision, state(book.ledger, now))
    return {
        "server": book.server,
        "limits.json": msgspec.json.encode({"name": limits.name, "limits": rules}).decode(),
        "state.json": msgspec.json.encode(saved).decode(),
    }


def _identifiers(spec: OrderSpec) -> tuple[str, ...]:
    found = (*spec.dns_names, *spec.ip_addresses, *((spec.common_name,) if spec.common_name else ()))
    return tuple(dict.fromkeys(found))


def _matters(order: Order, saved: dict[str, Any], revision: int) -> bool:
    is_flight = order.metadata.uid in saved.get("flights", {})
    return is_flight or not order.status.is_final or revision_of(order) > revision


def _issued_by(pem: bytes, now: datetime) -> datetime:
    """A moment by which the certificate had been issued."""
    try:
        return read_certificate(pem).not_before + _BACKDATED
    except PkiError:
        return now
