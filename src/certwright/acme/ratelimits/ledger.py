"""Rate-limit ledger of one CA: which order may be placed now, and until when the other orders wait.

Admission *reserves* capacity: the order counts although the CA has not counted it yet. Capacity is *spent*
when the CA counts: a new order when it is placed, a certificate when it is issued. An order that ends without
a certificate releases its reservation.

A refusal of the CA names its limit, and the end of the wait: Let's Encrypt (Boulder) words refusals "too many
… (N) … in the last …, retry after …: see https://letsencrypt.org/docs/rate-limits/#…"; the anchor names the
limit.

Source: Let's Encrypt, "Rate Limits" (the rules of counting and exemption; an IPv4 address and an IPv6 /64
count as registered domains).
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from certwright.acme.ratelimits import published
from certwright.acme.ratelimits.published import CaLimits
from certwright.kit.rate_limit import Bucket, Rate, micros, moment_of

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_SIGNS: Final = (
    # The first match counts: the text for a set of names mentions certificates too.
    ("#new-certificates-per-exact-set", published.SET),
    ("exact set of", published.SET),
    ("duplicate certificate", published.SET),
    ("#new-certificates-per-registered-domain", published.DOMAIN),
    ("certificates already issued for", published.DOMAIN),
    ("registered domain", published.DOMAIN),
    ("#authorization-failures", published.FAILURES),
    ("failed authorizations", published.FAILURES),
    ("failed validations", published.FAILURES),
    ("#new-registrations", published.ACCOUNTS),
    ("too many registrations", published.ACCOUNTS),
    ("too many new registrations", published.ACCOUNTS),
    ("#new-orders-per-account", published.ORDERS),
    ("too many new orders", published.ORDERS),
)
_ISSUED_FOR = re.compile(r"certificates \([0-9]+\) already issued for")
_UNTIL = re.compile(r"retry after ([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}) ?(?:UTC|Z)")
_QUOTED = re.compile(r'"([^"\s]{1,255})"')
_MICRO: Final = timedelta(microseconds=1)
# Reservations lapse after a while if the names are never validated: dead names must not keep live ones from
# the CA. An issuance after that still counts.
RESERVED_FOR: Final = timedelta(hours=1)
RESERVED_MICROS: Final = RESERVED_FOR // _MICRO
_LAPSE_EVERY: Final = timedelta(minutes=1) // _MICRO
_TIDY_EVERY: Final = timedelta(minutes=10) // _MICRO
_FIRST_PACE: Final = timedelta(seconds=1)
_SLOWEST_PACE: Final = timedelta(hours=1)
_LONGEST_UNKNOWN: Final = timedelta(hours=1)
_LONGEST_NAMED: Final = timedelta(days=7)
LEARNED: Final = "refused"
"""The limit of buckets that were learned from refusals and belong to no known limit."""
_SET: Final = "set "
_DOMAIN: Final = "domain "
"""Prefixes of `whose` in buckets that were learned for names."""
_AT_ORDER: Final = (published.ORDERS, LEARNED)


class NewOrder(msgspec.Struct, frozen=True):
    """An order that requests admission. `uid` is unique for ever; the older order goes first.

    `replaces`: the order names the certificate that it replaces (RFC 9773 §5). `renewal`: the CA has
    recently issued a certificate for exactly these names.
    """

    uid: str
    account: str
    identifiers: tuple[str, ...]
    since: datetime
    replaces: bool = False
    renewal: bool = False

    @property
    def place(self) -> tuple[int, str]:
        """The sort key of its place in a queue."""
        return micros(self.since), self.uid


class WaitUntil(msgspec.Struct, frozen=True):
    """The order must wait until `moment`, an estimate. The sentence names the limit and the moment."""

    moment: datetime
    sentence: str


class Key(NamedTuple):
    """One bucket: the limit and its scope (account, domain, names)."""

    limit: str
    whose: str

    def __str__(self) -> str:
        return f"{self.limit}/{self.whose}"

    @classmethod
    def read(cls, text: str) -> Key:
        """Parse a serialized key."""
        limit, _, whose = text.partition("/")
        return cls(limit, whose)


@dataclass(slots=True)
class _Waiter:
    order: NewOrder
    main: Key
    queues: set[Key] = field(default_factory=set)


class WaitingOrders:
    """Queues of waiting orders, one per limit: first in, first out by age.

    An order waits in the queue of the limit that delays it longest. It keeps its place in another queue if it
    was due there and the wait elsewhere is so short that no other order could have gone first. `wake` is
    called with the uid of an order that should request admission again.
    """

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._waiters: dict[str, _Waiter] = {}
        self._queues: dict[Key, list[tuple[int, str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def __contains__(self, key: Key) -> bool:
        return key in self._queues

    def has(self, uid: str) -> bool:
        """Whether that order waits."""
        return uid in self._waiters

    def lengths(self) -> dict[str, int]:
        """The length of each queue."""
        return {str(key): len(queue) for key, queue in self._queues.items()}

    def length(self, key: Key) -> int:
        """The length of that queue."""
        return len(self._queues.get(key, ()))

    def ahead(self, key: Key, order: NewOrder) -> int:
        """The number of orders before that order, queued or not."""
        queue = self._queues.get(key)
        return bisect_left(queue, order.place) if queue else 0

    def wait(self, order: NewOrder, key: Key, keeps_place: Callable[[Key], bool], *, stands: bool) -> None:
        """Queue the order for `key`. `stands` False: the limit does not free capacity one by one."""
        waiter = self._waiters.get(order.uid)
        if waiter is None:
            waiter = self._waiters[order.uid] = _Waiter(order, key)
        waiter.order, waiter.main = order, key
        for other in [queue for queue in waiter.queues if queue != key and not keeps_place(queue)]:
            self._leave_queue(waiter, other)
        if stands and key not in waiter.queues:
            waiter.queues.add(key)
            insort(self._queues.setdefault(key, []), order.place)

    def remove(self, uid: str) -> None:
        """Remove the order from all queues."""
        waiter = self._waiters.pop(uid, None)
        if waiter is not None:
            for key in list(waiter.queues):
                self._leave_queue(waiter, key)

    def _leave_queue(self, waiter: _Waiter, key: Key) -> None:
        queue = self._queues[key]
        del queue[bisect_left(queue, waiter.order.place)]
        waiter.queues.discard(key)
        if queue:
            self.wake_next(key)
        else:
            del self._queues[key]

    def wake_next(self, key: Key) -> None:
        """Wake the next order in the queue: capacity may be free, or its turn may come earlier."""
        for _, uid in self._queues.get(key, ()):
            if self._waiters[uid].main == key:
                self._wake(uid)
                return


_ACCOUNTS: Final = Key(published.ACCOUNTS, "")


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # 4 MB and 80 ms, needed only with limits

    return PublicSuffixList()


@lru_cache(maxsize=4096)
def registered_domain(identifier: str) -> str:
    """The domain that a name or an address counts for, in lower case: `*.www.example.co.uk` counts for
    `example.co.uk`.

    A public suffix counts as itself.
    """
    name = identifier.lower().removeprefix("*.").rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return _suffixes().privatesuffix(name) or name
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def registered_domains(identifiers: Iterable[str]) -> tuple[str, ...]:
    """The distinct registered domains, sorted."""
    return tuple(sorted({registered_domain(identifier) for identifier in identifiers}))


def set_of(identifiers: Iterable[str]) -> str:
    """The key of exactly this set of names, whatever their order and case: the name of a single one, else
    one of them and a digest of all."""
    names = sorted({identifier.lower().rstrip(".") for identifier in identifiers})
    if len(names) == 1:
        return names[0]
    digest = hashlib.sha256(",".join(names).encode()).hexdigest()[:16]
    return f"{names[0] if names else ''} +{len(names) - 1} {digest}"


def limit_named(text: str) -> str | None:
    """The limit that the refusal names; None without one."""
    lowered = text.lower()
    for sign, limit in _SIGNS:
        if sign in lowered:
            return limit
    return published.DOMAIN if _ISSUED_FOR.search(lowered) else None


def until_named(text: str) -> datetime | None:
    """The moment until which the text requires a wait."""
    match = _UNTIL.search(text)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None


def names_in(text: str) -> frozenset[str]:
    """The quoted strings: the domain or name that the refusal is about."""
    return frozenset(quoted.lower().rstrip(".") for quoted in _QUOTED.findall(text))


@dataclass(slots=True)
class Flight:
    """A reservation: an order, or a new account, that was admitted at `at` and has not ended. `held`: the
    buckets with reserved capacity; `silent`: the buckets that count the certificate without limiting it.
    `has_lapsed`: the reservation no longer delays other orders, but is counted if it is used."""

    at: int
    held: list[Key]
    silent: tuple[Key, ...] = ()
    is_placed: bool = False
    has_lapsed: bool = False


class Ledger:
    """The state of one CA's limits. `wake` is called with the uid of an order that should retry now."""

    def __init__(self, limits: CaLimits, wake: Callable[[str], None]) -> None:
        self.limits = limits
        self.is_changed = False
        """Set by every change that is worth saving; the caller resets it."""
        self.buckets: dict[Key, Bucket] = {}
        self.paces: dict[Key, Rate] = {}
        self.flights: dict[str, Flight] = {}
        self.waiting_elsewhere: Mapping[str, int] = {}
        """The number of orders that wait in other processes, by key."""
        self.waiting = WaitingOrders(wake)
        self._lapsed_at = 0
        self._tidied_at = 0

    # --- admission ---------------------------------------------------------------------------------------

    def admit(self, order: NewOrder, now: datetime) -> WaitUntil | None:
        """None: the order may be placed, and its capacity is reserved from now on. Idempotent: an admitted
        order is counted once."""
        at = micros(now)
        self.sweep(at)
        flight = self.flights.get(order.uid)
        if flight is not None and (flight.is_placed or not flight.has_lapsed):
            return None
        asked, silent = self.keys_of(order)
        free, key = self._free_at(order, asked, at)
        if key is not None:
            self._wait(order, key, free - at)
            return WaitUntil(moment_of(free), self._sentence(key, free))
        self.waiting.remove(order.uid)
        for bucket_key in asked:
            self.bucket(bucket_key).held += 1
        # Only limited buckets count.
        if asked or silent or self._failure_keys(order):
            self.flights[order.uid] = Flight(at, asked, silent)
            self.is_changed = True
        return None

    def limit_of(self, order: NewOrder, now: datetime) -> WaitUntil | None:
        """What the order would have to wait for now; changes nothing."""
        free, key = self._free_at(order, self.keys_of(order)[0], micros(now))
        return None if key is None else WaitUntil(moment_of(free), self._sentence(key, free))

    def expect(self, order: NewOrder, now: datetime) -> None:
        """Queue an order before it requests admission, if it will have to wait."""
        at = micros(now)
        free, key = self._free_at(order, self.keys_of(order)[0], at)
        if key is not None and order.uid not in self.flights:
            self._wait(order, key, free - at)

    def admit_account(self, uid: str, now: datetime) -> WaitUntil | None:
        """None: a new account may be registered from here; `account_ended` must be called
        afterwards. `uid` names the attempt."""
        at, key = micros(now), _ACCOUNTS
        rate = self.rate(key)
        if rate is None or uid in self.flights:
            return None
        self.sweep(at)
        free = self.bucket(key).free_at(rate, at)
        if free > at:
            return WaitUntil(moment_of(free), self._sentence(key, free))
        self.bucket(key).held += 1
        self.flights[uid] = Flight(at, [key])
        self.is_changed = True
        return None

    def account_ended(self, uid: str, now: datetime, *, is_made: bool) -> None:
        """Record the end of the attempt: the CA counts the accounts that it has created."""
        self._end(uid, micros(now), is_issued=is_made)

    def keys_of(self, order: NewOrder) -> tuple[list[Key], tuple[Key, ...]]:
        """The limiting and the merely counting buckets. In Boulder an order that replaces counts for its
        set."""
        the_set = (
            [Key(published.SET, set_of(order.identifiers))] if published.SET in self.limits.limits else []
        )
        limiting: list[Key] = []
        silent: tuple[Key, ...] = ()
        if order.replaces and self.limits.exempts_ari:
            silent = tuple(the_set)
        elif order.renewal and self.limits.exempts_renewals:
            limiting = the_set
        else:
            limiting = [Key(published.ORDERS, order.account)]
            if published.DOMAIN in self.limits.limits:
                limiting += [Key(published.DOMAIN, name) for name in registered_domains(order.identifiers)]
            limiting += the_set
        # Limits learned from refusals apply to every order.
        limiting += [Key(LEARNED, order.account), Key(LEARNED, order.uid), *self._learned_of_names(order)]
        return [key for key in limiting if self.rate(key) is not None], silent

    def _learned_of_names(self, order: NewOrder) -> list[Key]:
        """The learned buckets of exactly these names, and of their registered domains."""
        if not any(key.whose.startswith((_SET, _DOMAIN)) for key in self.paces):
            return []
        domains = [Key(LEARNED, _DOMAIN + domain) for domain in registered_domains(order.identifiers)]
        return [Key(LEARNED, _SET + set_of(order.identifiers)), *domains]

    def _free_at(self, order: NewOrder, asked: Iterable[Key], at: int) -> tuple[int, Key | None]:
        """When capacity is free, and the bucket that lacks it now (None: no bucket does)."""
        free, by = at, None
        for key in (*asked, *self._failure_keys(order)):
            rate, bucket = self.rate(key), self.buckets.get(key)
            if rate is None or bucket is None:
                continue
            ahead = self._ahead(key, order)
            earliest = bucket.free_at(rate, at, ahead)
            if bucket.held and earliest > at + RESERVED_MICROS:
                # Unused reservations of other orders lapse by then.
                earliest = max(at + RESERVED_MICROS, bucket.free_at(rate, at, ahead - bucket.held))
            if earliest > free:
                free, by = earliest, key
        return free, by

    def _ahead(self, key: Key, order: NewOrder) -> int:
        """The number of orders ahead of that order. The queues of other processes are about as old as ours,
        so each order here has its share of them ahead. The first in the queue has none: it takes any free
        capacity."""
        ahead, elsewhere = self.waiting.ahead(key, order), self.waiting_elsewhere.get(str(key), 0)
        return ahead + ahead * elsewhere // (self.waiting.length(key) + 1)

    def _failure_keys(self, order: NewOrder) -> list[Key]:
        if published.FAILURES not in self.limits.limits or (order.replaces and self.limits.exempts_ari):
            return []
        return [_failure_key(order.account, name) for name in order.identifiers]

    def _wait(self, order: NewOrder, key: Key, wait: int) -> None:
        def keeps_place(other: Key) -> bool:
            rate = self.rate(other)
            return rate is not None and wait < rate.every

        is_new = not self.waiting.has(order.uid)
        self.waiting.wait(order, key, keeps_place, stands=key.limit != published.FAILURES)
        # Other processes need the number of waiting orders.
        self.is_changed = self.is_changed or is_new

    def rate(self, key: Key) -> Rate | None:
        """The rate of a bucket; None if the limit does not exist."""
        if key.limit == LEARNED:
            return self.paces.get(key)
        limit = self.limits.limits.get(key.limit)
        return limit.rate_of(key.whose) if limit is not None else None

    def bucket(self, key: Key) -> Bucket:
        """The bucket, created on first use."""
        return self.buckets.setdefault(key, Bucket())

    # --- outcome of an order -------------------------------------------------------------------------------

    def placed(self, uid: str, now: datetime) -> None:
        """Record that the CA has created the order: it counts from this moment."""
        flight = self.flights.get(uid)
        if flight is None or flight.is_placed:
            return
        flight.is_placed = True
        for key in [reserved for reserved in flight.held if reserved.limit in _AT_ORDER]:
            self._settle(flight, key, micros(now), spent=True)

    def issued(self, uid: str, now: datetime) -> None:
        """Record the issuance: the certificate counts from this moment."""
        self._end(uid, micros(now), is_issued=True)

    def failed(self, uid: str, now: datetime) -> None:
        """Record that the order has ended without a certificate."""
        self._end(uid, micros(now), is_issued=False)

    def forget(self, uid: str, now: datetime) -> None:
        """Drop a deleted order. What the CA has counted stays counted."""
        self.waiting.remove(uid)
        self._end(uid, micros(now), is_issued=False)

    def abandon(self, uid: str, now: datetime) -> None:
        """Drop a deleted order with an unknown outcome: it counts as issued, because it may have been."""
        self.waiting.remove(uid)
        self._end(uid, micros(now), is_issued=True)

    def _end(self, uid: str, at: int, *, is_issued: bool) -> None:
        flight = self.flights.pop(uid, None)
        if flight is None:
            return
        for key in list(flight.held):
            # Unknown whether the CA created the order before it failed: it may have.
            self._settle(flight, key, at, spent=is_issued or key.limit in _AT_ORDER)
        for key in flight.silent if is_issued else ():
            if (rate := self.rate(key)) is not None:
                self.bucket(key).spend(rate, at)
        self.is_changed = True

    def _settle(self, flight: Flight, key: Key, at: int, *, spent: bool) -> None:
        flight.held.remove(key)
        bucket, rate = self.bucket(key), self.rate(key)
        if not flight.has_lapsed:
            bucket.held = max(0, bucket.held - 1)
        if spent and rate is not None:
            bucket.spend(rate, at)
        self.is_changed = True
        self.waiting.wake_next(key)

    def sweep(self, at: int) -> None:
        """Let old reservations lapse, and drop buckets that are as good as new. Called periodically."""
        if at - self._lapsed_at >= _LAPSE_EVERY:
            self._lapsed_at = at
            for flight in self.flights.values():
                if flight.has_lapsed or at - flight.at <= RESERVED_MICROS:
                    continue
                flight.has_lapsed = True
                for key in flight.held:
                    self.bucket(key).held = max(0, self.bucket(key).held - 1)
                    self.waiting.wake_next(key)
        if at - self._tidied_at >= _TIDY_EVERY:
            self._tidied_at = at
            for key, bucket in list(self.buckets.items()):
                rate = self.rate(key)
                if key not in self.waiting and (rate is None or bucket.is_idle(rate, at)):
                    del self.buckets[key]
                    self.paces.pop(key, None)

    # --- reports of the CA -------------------------------------------------------------------------------

    def failed_validation(self, account: str, name: str, now: datetime) -> None:
        """Record a failed validation: the CA did not find the challenge response of a name."""
        key = _failure_key(account, name)
        if (rate := self.rate(key)) is not None:
            self.bucket(key).spend(rate, micros(now))
            self.is_changed = True

    def record_refusal(self, order: NewOrder, text: str, retry_after: datetime | None, now: datetime) -> bool:
        """Record that the CA has refused a new order with this text because of a limit: the CA knows better.

        The order must request admission again. Returns whether the limit concerns other names too.
        """
        at = micros(now)
        flight = self.flights.pop(order.uid, None)
        if flight is not None:
            for key in list(flight.held):
                self._settle(flight, key, at, spent=False)
        until = retry_after or until_named(text)
        if until is not None:
            # No published limit has a longer window, and no text may close a bucket for good.
            until = min(until, now + _LONGEST_NAMED)
        meant = self._limited_bucket(order, text)
        if meant is None or meant.limit == LEARNED:
            self._learn(order, meant or Key(LEARNED, order.account), until, now)
        else:
            rate = self.rate(meant)
            assert rate is not None
            self.bucket(meant).close(rate, micros(until) if until else at + rate.every, at)
        self.is_changed = True
        return meant is None or meant.limit == published.ORDERS

    def _limited_bucket(self, order: NewOrder, text: str) -> Key | None:
        """The bucket that the refusal is about: a known bucket, or a learned bucket for the names in the
        refusal; None if the refusal may concern all orders of the account."""
        limit = limit_named(text)
        is_ours = limit in self.limits.limits
        if limit is None or limit == published.ACCOUNTS or (limit == published.ORDERS and not is_ours):
            return None
        if limit == published.ORDERS:
            return Key(limit, order.account)
        if limit == published.SET:
            names_set = set_of(order.identifiers)
            return Key(limit, names_set) if is_ours else Key(LEARNED, _SET + names_set)
        named = names_in(text)
        if limit == published.FAILURES and not is_ours:
            return Key(LEARNED, _SET + set_of(order.identifiers))
        if limit == published.FAILURES:
            names = [name for name in order.identifiers if name.lower().removeprefix("*.") in named]
            return _failure_key(order.account, (names or list(order.identifiers))[0])
        domains = registered_domains(order.identifiers)
        domain = next((registered for registered in domains if registered in named), domains[0])
        return Key(limit, domain) if is_ours else Key(LEARNED, _DOMAIN + domain)

    def _learn(self, order: NewOrder, key: Key, until: datetime | None, now: datetime) -> None:
        """Learn an unknown limit: this order waits as long as the CA says, the other orders of `key` an hour
        at most; then they go one at a time, more slowly after each refusal."""
        current, pace = self.paces.get(key), _FIRST_PACE
        if current is not None:
            # Orders in flight at the same time are refused together: that is one refusal.
            is_same = self.bucket(key).closed_until > micros(now)
            pace = current.window if is_same else min(current.window * 2, _SLOWEST_PACE)
        self._close_learned(key, pace, min(until or now + pace, now + _LONGEST_UNKNOWN), now)
        if until is not None and until > now + _LONGEST_UNKNOWN:
            self._close_learned(Key(LEARNED, order.uid), _FIRST_PACE, until, now)

    def _close_learned(self, key: Key, pace: timedelta, until: datetime, now: datetime) -> None:
        rate = self.paces[key] = Rate(1, pace)
        self.bucket(key).close(rate, micros(until), micros(now))

    # --- messages ----------------------------------------------------------------------------------------

    def _sentence(self, key: Key, free: int) -> str:
        until = f"Waiting until {moment_of(free + 999_999):%Y-%m-%dT%H:%M:%SZ}: {self.limits.name}"
        if key.limit == LEARNED:
            return f"{until} has refused orders because of a rate limit"
        rate = self.rate(key)
        assert rate is not None
        what, whom = {
            published.ORDERS: ("orders", "of this account"),
            published.SET: ("certificates", "for exactly these names"),
            published.FAILURES: ("failed validations", f"of {key.whose.rpartition(' ')[2]}"),
            published.ACCOUNTS: ("new accounts", "from this address"),
        }.get(key.limit, ("certificates", f"for {key.whose}"))
        return f"{until} allows {rate.count} {what} {whom} in {_span(rate.window)}"


def _failure_key(account: str, name: str) -> Key:
    return Key(published.FAILURES, f"{account} {name.lower().removeprefix('*.')}")


def _span(window: timedelta) -> str:
    hours, rest = divmod(window // timedelta(seconds=1), 3600)
    if rest:
        return f"{window // timedelta(seconds=1)} s"
    if hours >= 48 and hours % 24 == 0:
        return f"{hours // 24} days"
    return f"{hours} hours" if hours != 1 else "an hour"
