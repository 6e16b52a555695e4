"""A CA that enforces limits, and clusters that order from it: all on a virtual clock, nothing else is real.

The CA is written without a look at the ledger that is tested: it counts parts of tokens, or keeps a log of
what happened within a window, and knows nothing of lines, plans or promises.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from certwright.acme.ratelimits import published
from certwright.acme.ratelimits.ledger import Ledger, NewOrder, WaitUntil
from certwright.acme.ratelimits.published import CaLimits, Limit
from certwright.acme.ratelimits.state import ISSUED, LedgerState, Seen, catch_up, restore, state
from certwright.kit.rate_limit import Rate

_MICRO = timedelta(microseconds=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
_WRITE = timedelta(milliseconds=5)
_SAVE_WITHIN = timedelta(seconds=30)
ACCOUNT = "https://ca.example/acct/1"
NAMES = {
    "orders": "too many new orders ({n}) from this account in the last {w}, retry after {until}",
    "domain": 'too many certificates ({n}) already issued for "{whose}" in the last {w}, retry after {until}',
    "set": "too many certificates ({n}) already issued for this exact set of identifiers in the last {w}, "
    "retry after {until}",
}


class Refusal(Exception):
    """429, with the CA's words and the moment that it names."""

    def __init__(self, text: str, until: datetime) -> None:
        super().__init__(text)
        self.until = until


class Tokens:
    """`n` tokens, refilled evenly within `w`. A token is cut into as many parts as `w` has microseconds, so
    that each microsecond brings `n` whole parts."""

    def __init__(self, n: int, w: timedelta) -> None:
        self._n, self._token_parts = n, w // _MICRO
        self._left: dict[str, tuple[int, datetime]] = {}

    def _parts(self, whose: str, now: datetime) -> int:
        full = self._n * self._token_parts
        left, as_of = self._left.get(whose, (full, now))
        return min(full, left + (now - as_of) // _MICRO * self._n)

    def refused_until(self, whose: str, now: datetime) -> datetime | None:
        """When there is a whole token again; None: now."""
        lacks = self._token_parts - self._parts(whose, now)
        return None if lacks <= 0 else now + -(-lacks // self._n) * _MICRO

    def take(self, whose: str, now: datetime) -> None:
        """Take one; where there is none, the bucket stays empty."""
        self._left[whose] = max(0, self._parts(whose, now) - self._token_parts), now


class Log:
    """At most `n` within any `w`."""

    def __init__(self, n: int, w: timedelta) -> None:
        self._n, self._w = n, w
        self._log: dict[str, deque[datetime]] = defaultdict(deque)

    def refused_until(self, whose: str, now: datetime) -> datetime | None:
        """When the oldest has left the window; None: there is room now."""
        log = self._log[whose]
        while log and log[0] <= now - self._w:
            log.popleft()
        return log[len(log) - self._n] + self._w if len(log) >= self._n else None

    def take(self, whose: str, now: datetime) -> None:
        self._log[whose].append(now)


class LimitedCa:
    """`rates` by "orders", "domain" and "set": count and window. Certificates are checked when an order is
    made and counted when they are issued, or (`counts_early`) when they are ordered."""

    def __init__(
        self,
        rates: dict[str, tuple[int, timedelta]],
        *,
        counter: Callable[[int, timedelta], Tokens | Log] = Tokens,
        counts_early: bool = False,
    ) -> None:
        self._rates = rates
        self._counters = {name: counter(*rate) for name, rate in rates.items()}
        self._counts_early = counts_early
        self.refusals: list[tuple[datetime, str]] = []
        self.issued: list[tuple[datetime, tuple[str, ...]]] = []

    def _whose(self, account: str, names: tuple[str, ...]) -> list[tuple[str, str]]:
        domains = {".".join(name.split(".")[-2:]) for name in names}
        scopes = [
            ("orders", account),
            *(("domain", domain) for domain in sorted(domains)),
            ("set", repr(sorted(names))),
        ]
        return [scope for scope in scopes if scope[0] in self._counters]

    def order(self, account: str, names: tuple[str, ...], now: datetime) -> None:
        """Make an order. Raises `Refusal`."""
        for name, whose in self._whose(account, names):
            until = self._counters[name].refused_until(whose, now)
            if until is not None:
                count, window = self._rates[name]
                moment = f"{until + timedelta(seconds=1):%Y-%m-%d %H:%M:%S} UTC"
                text = NAMES[name].format(n=count, w=window, whose=whose, until=moment)
                self.refusals.append((now, text))
                raise Refusal(text, until)
        for name, whose in self._whose(account, names):
            if name == "orders" or self._counts_early:
                self._counters[name].take(whose, now)

    def issue(self, account: str, names: tuple[str, ...], now: datetime) -> None:
        for name, whose in self._whose(account, names):
            if name != "orders" and not self._counts_early:
                self._counters[name].take(whose, now)
        self.issued.append((now, names))


class Timeline:
    """What happens, in order of its moments."""

    def __init__(self) -> None:
        self.now = START
        self._queue: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.steps = 0

    def at(self, moment: datetime, action: Callable[[], None]) -> None:
        """Do something at that moment."""
        heapq.heappush(self._queue, (max(moment, self.now), next(self._order), action))

    def run(self, until: datetime | None = None) -> None:
        """Do all that is to be done, until nothing is left or it is later than `until`."""
        while self._queue and (until is None or self._queue[0][0] <= until):
            self.now, _, action = heapq.heappop(self._queue)
            self.steps += 1
            action()


class _Saved(msgspec.Struct):
    ledger: LedgerState = msgspec.field(default_factory=LedgerState)
    revision: int = 0


@dataclass
class _Order:
    new_order: NewOrder
    revision: int = 0
    is_made: bool = False
    url: str = ""
    end: str = ""
    plan: int = 0
    reasons: list[str] = field(default_factory=list)


class Cluster:
    """Orders, and a ledger that says when each may go. `latency` is the way to the CA, once; proving a name
    takes up to `proof`."""

    def __init__(
        self,
        timeline: Timeline,
        ca: LimitedCa,
        limits: CaLimits,
        *,
        name: str = "a",
        account: str = ACCOUNT,
        latency: timedelta = timedelta(seconds=0.1),
        proof: timedelta = timedelta(seconds=30),
        seed: int = 1,
    ) -> None:
        self._timeline, self._ca, self._limits = timeline, ca, limits
        self._name, self._account, self._latency, self._proof = name, account, latency, proof
        self._random = random.Random(seed)
        self.orders: dict[str, _Order] = {}
        self._revision = 0
        self._life = 0
        self._saved: bytes = b""
        self._is_saving = False
        self._save_first: list[_Order] = []
        self.saves = 0
        self._asked: set[str] = set()
        self.asks = 0
        self.refused = 0
        self.finished_at = START
        self.ledger = Ledger(limits, self._wake)

    def add(self, *names: str, since: datetime | None = None) -> None:
        """One more certificate to be ordered."""
        uid = f"{self._name}-{len(self.orders):05d}"
        new_order = NewOrder(uid, self._account, names, since or self._timeline.now)
        self.orders[uid] = _Order(new_order, self._count())
        self._wake(uid)

    @property
    def is_done(self) -> bool:
        """Whether all certificates are there."""
        return all(order.end == ISSUED for order in self.orders.values())

    @property
    def saved_bytes(self) -> int:
        """The size of what was saved last."""
        return len(self._saved)

    def _count(self) -> int:
        self._revision += 1
        return self._revision

    def _later(self, delay: timedelta, action: Callable[[], None]) -> None:
        life = self._life

        def unless_dead() -> None:
            if life == self._life:
                action()

        self._timeline.at(self._timeline.now + delay, unless_dead)

    def _wake(self, uid: str) -> None:
        if uid not in self._asked:
            self._asked.add(uid)
            self._later(timedelta(0), lambda: self._ask(uid))

    def _ask(self, uid: str) -> None:
        self._asked.discard(uid)
        order = self.orders[uid]
        if order.url or order.end:
            return
        self.asks += 1
        if order.is_made:  # what was ordered before a crash is found in the account's list of orders
            self._make(order)
            return
        answer = self.ledger.admit(order.new_order, self._timeline.now)
        self._save_soon()
        if isinstance(answer, WaitUntil):
            self._tell(order, answer.sentence)
            order.plan += 1
            plan = order.plan
            wait = answer.moment - self._timeline.now
            self._later(wait, lambda: self._wake(uid) if plan == order.plan else None)
            return
        order.plan += 1
        self._save_first.append(order)
        if len(self._save_first) == 1:
            self._later(_WRITE, self._send)

    def _send(self) -> None:
        """What was admitted is written down before the CA hears of it: many in one write."""
        self._save()
        going, self._save_first = self._save_first, []
        for order in going:
            self._timeline.at(
                self._timeline.now + self._latency,
                lambda order=order: self._arrive(order),  # type: ignore[misc]
            )

    def _tell(self, order: _Order, reason: str) -> None:
        if not order.reasons or order.reasons[-1] != reason:
            order.reasons.append(reason)
            order.revision = self._count()

    def _arrive(self, order: _Order) -> None:
        if order.is_made:
            return
        try:
            self._ca.order(self._account, order.new_order.identifiers, self._timeline.now)
        except Refusal as refusal:
            text, until = str(refusal), refusal.until
            self._later(self._latency, lambda: self._refuse(order, text, until))
            return
        order.is_made = True
        self._later(self._latency, lambda: self._make(order))

    def _refuse(self, order: _Order, text: str, until: datetime) -> None:
        self.refused += 1
        # Retry-After is in whole seconds.
        wait = timedelta(seconds=-(-(until - self._timeline.now) // timedelta(seconds=1)))
        self.ledger.record_refusal(order.new_order, text, self._timeline.now + wait, self._timeline.now)
        self._wake(order.new_order.uid)

    def _make(self, order: _Order) -> None:
        if order.url:
            return
        order.url, order.revision = "made", self._count()
        self.ledger.admit(order.new_order, self._timeline.now)
        self.ledger.placed(order.new_order.uid, self._timeline.now)
        self._save_soon()
        self._go_on(order)

    def _go_on(self, order: _Order) -> None:
        proof = self._proof * self._random.random()
        self._later(proof, lambda: self._finish(order))

    def _finish(self, order: _Order) -> None:
        self._ca.issue(self._account, order.new_order.identifiers, self._timeline.now)
        order.end = ISSUED
        self.finished_at = self._timeline.now + self._latency

        def seen() -> None:
            order.revision = self._count()
            self.ledger.issued(order.new_order.uid, self._timeline.now)
            self._save_soon()

        self._later(self._latency, seen)

    def _save_soon(self) -> None:
        if self.ledger.is_changed and not self._is_saving:
            self._is_saving = True
            self._later(_SAVE_WITHIN, self._save)

    def _save(self) -> None:
        self._is_saving = False
        if self.ledger.is_changed:
            self.saves += 1
            self.ledger.is_changed = False
            saved = _Saved(state(self.ledger, self._timeline.now), self._revision)
            self._saved = msgspec.json.encode(saved)

    def crash(self) -> None:
        """All that is not written down is lost; the next process begins at once."""
        self._life += 1
        self._asked.clear()
        self._is_saving = False
        self._save_first = []
        now = self._timeline.now
        self.ledger = Ledger(self._limits, self._wake)
        saved = msgspec.json.decode(self._saved, type=_Saved) if self._saved else _Saved()
        restore(self.ledger, saved.ledger, now)
        seen = [
            Seen(order.new_order, order.revision > saved.revision, bool(order.url), order.end, now, now)
            for order in self.orders.values()
        ]
        catch_up(self.ledger, seen, now)
        order_of_asking = list(self.orders)
        self._random.shuffle(order_of_asking)
        for uid in order_of_asking:
            if self.orders[uid].url and not self.orders[uid].end:
                self._go_on(self.orders[uid])
            elif not self.orders[uid].end:
                self._wake(uid)


def rates_of(limits: CaLimits) -> dict[str, tuple[int, timedelta]]:
    """A preset's numbers, for the CA."""
    names = {published.ORDERS: "orders", published.DOMAIN: "domain", published.SET: "set"}
    return {
        word: (limits.limits[name].rate.count, limits.limits[name].rate.window)
        for name, word in names.items()
        if name in limits.limits
    }


def windows_of(limits: CaLimits) -> CaLimits:
    """The same counts within sliding windows, without refill."""
    changed = {
        name: Limit(Rate(limit.rate.count, limit.rate.window, refills=False))
        for name, limit in limits.limits.items()
    }
    return CaLimits(name=limits.name, limits=changed)


def optimum(rates: dict[str, tuple[int, timedelta]], *, per_domain: int, total: int) -> timedelta:
    """The least time in which one account can order certificates for names of their own, `per_domain` for
    each of the domains and `total` together, from buckets that refill: what is more than the bucket holds
    comes one by one."""

    def needs(word: str, many: int) -> timedelta:
        count, window = rates[word]
        return max(0, many - count) * window / count

    return max(needs("orders", total), needs("domain", per_domain))


def optimum_of_windows(rates: dict[str, tuple[int, timedelta]], *, per_domain: int, total: int) -> timedelta:
    """The same where windows slide and the domains' limit is the tighter one: what a domain may not have in
    the first window comes windows later than the one that is in its place there; and the account needs its
    time to fill the first window of every domain."""
    count, window = rates["domain"]
    first = total * min(count, per_domain) // per_domain
    many, within = rates["orders"]
    return (-(-per_domain // count) - 1) * window + (-(-first // many) - 1) * within
