"""State of one Order between two passes: how far it has come at the CA, its pause, and what else only this
process knows. After a restart, it follows from the Order and its annotations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from certwright.controllers.acme.waits import Announced, Pause
from certwright.controllers.backoff import LONGEST_OBEYED
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.durations import doubled
from certwright.resources import names
from certwright.resources.acme import ACMEAuthorization, Order
from certwright.resources.retry import parse_moment, rfc3339

OPEN_STATES: Final = ("pending", "ready", "processing")
"""States of an order that may still become a certificate."""

SHORTEST_WAIT = timedelta(seconds=1)
LONGEST_WAIT = timedelta(minutes=10)
_ATTEMPTS_WITHIN = timedelta(hours=1)
_MOST_ATTEMPTS = 20
# How long an Order waits for another one to which the CA gave the same order.
_PATIENCE = timedelta(minutes=1)


class Unplaced(msgspec.Struct, frozen=True):
    """No order at the CA is known. `may_exist`: a request for one was sent, and its response is not stored.
    `replaces_nothing`: the CA does not let the order name the certificate that it replaces."""

    may_exist: bool = False
    replaces_nothing: bool = False


class Placed(msgspec.Struct, frozen=True):
    """The CA has the order, and its names are being proven. `is_ready`: all are, and the CA was asked to
    finalize it, without success so far."""

    is_ready: bool = False


class Finalizing(msgspec.Struct, frozen=True):
    """The CA has a signing request, so that all names are proven; it calls the order `state`. The order has
    been polled `polls` - 1 times since `since`. `is_contested`: the CA refused ours, so that it may have
    another client's."""

    since: datetime
    polls: int = 1
    state: str = "processing"
    is_contested: bool = False


Stage = Unplaced | Placed | Finalizing
"""How far an Order has come at the CA."""


class FollowFrom(NamedTuple):
    """What decides which Challenges an Order needs: revisions, and the account's key."""

    order: str
    issuer: str
    thumbprint: str


class Ensured(NamedTuple):
    """The names of the Challenges that existed when all were ensured, and what they followed from."""

    follow_from: FollowFrom
    names: frozenset[str]


class Memory(msgspec.Struct, frozen=True):
    """All that is kept between two passes over the Order with that UID. `failures`: requests to the CA that
    failed in a row. `complaint`: the CA's last error about the placed order. `account`: the server and
    account of the last pass. `announced`: the last reason with a time that was written. `described`: the
    authorizations as this process has read them from the CA."""

    uid: str
    stage: Stage = Unplaced()
    failures: int = 0
    pause: Pause | None = None
    account: str | None = None
    announced: Announced | None = None
    described: tuple[ACMEAuthorization, ...] = ()
    ensured: Ensured | None = None
    complaint: str = ""

    def at_account(self, account: str) -> Memory:
        """The memory for that server and account: a pause that another one has demanded does not apply."""
        if self.account in (None, account):
            return replace(self, account=account)
        return replace(self, account=account, pause=None, failures=0)


def recalled(order: Order, now: datetime) -> Memory:
    """What the Order's annotations show of its attempts, after a restart."""
    attempts = _attempts(order, now)
    named = parse_moment(order.metadata.annotations.get(names.NOT_BEFORE, ""))
    if named is not None:
        named = min(named, now + LONGEST_OBEYED) if named > now else None
    until = named
    if named is None and attempts:
        until = attempts[-1] + doubled(SHORTEST_WAIT, len(attempts), cap=LONGEST_WAIT)
    pause = Pause(until, None, is_ours=named is None) if until is not None else None
    return Memory(order.metadata.uid, failures=len(attempts), pause=pause)


def _attempts(order: Order, now: datetime) -> list[datetime]:
    """The recorded attempts, oldest first. One that lies in the future was not ours."""
    texts = order.metadata.annotations.get(names.ACME_ATTEMPTS, "").split(",")
    moments = (parse_moment(text) for text in texts[-_MOST_ATTEMPTS:])
    return sorted(moment for moment in moments if moment is not None and moment <= now)


def with_attempt(order: Order, asked_at: datetime) -> dict[str, str]:
    """The annotation with one attempt more, of the last hour: earlier ones determine nothing."""
    attempts = [*_attempts(order, asked_at), asked_at]
    recent = {rfc3339(attempt) for attempt in attempts if attempt > asked_at - _ATTEMPTS_WITHIN}
    return {names.ACME_ATTEMPTS: ",".join(sorted(recent)[-_MOST_ATTEMPTS:])}


def poll_delay(polls: int) -> timedelta:
    """The wait before the next poll, if the server names none: 0.1 s, doubled up to 10 s."""
    return doubled(timedelta(seconds=0.1), polls + 1, cap=timedelta(seconds=10))


class _Line(msgspec.Struct):
    """Orders for the same names at one account: `head` has the CA's order, or places the next one; the others
    wait. `moved_at`: since when `head` is the head."""

    head: ObjectKey
    moved_at: datetime
    waiting: list[ObjectKey]


class Lines:
    """Orders that wait for another one, because the CA answered with the order that the other one has.

    Boulder answers a new order with the account's pending or ready order for the same names. As soon as that
    one has its certificate, the next one is another order: so each waits for the one before. `wake` enqueues
    an Order that is the head now.
    """

    def __init__(self, wake: Callable[[ObjectKey], None]) -> None:
        self._wake = wake
        self._lines: dict[Hashable, _Line] = {}

    def join(self, identity: Hashable, head: ObjectKey, key: ObjectKey, now: datetime) -> None:
        """Put an Order at the end of the line behind `head`; a former head goes to the front."""
        line = self._lines.setdefault(identity, _Line(head, now, []))
        if line.head == key:
            line.head, line.moved_at = head, now
            line.waiting.insert(0, key)
        elif key not in line.waiting:
            line.waiting.append(key)

    def before(self, key: ObjectKey, now: datetime) -> tuple[ObjectKey, datetime] | None:
        """The Order that this one waits for, and until when at most; None: it does not wait. A head that does
        not get on must not stop the others: they then prove the names of the common order themselves."""
        for line in self._lines.values():
            if key in line.waiting and now < line.moved_at + _PATIENCE:
                place = line.waiting.index(key)
                return line.waiting[place - 1] if place else line.head, line.moved_at + _PATIENCE
        return None

    def ended(self, key: ObjectKey, now: datetime) -> None:
        """The Order has ended or is gone: the first one that waited for it is the head."""
        for identity, line in list(self._lines.items()):
            if key in line.waiting:
                line.waiting.remove(key)
            if key != line.head:
                continue
            if not line.waiting:
                del self._lines[identity]
                continue
            line.head, line.moved_at = line.waiting.pop(0), now
            self._wake(line.head)


class Memories:
    """The memories of all Orders, by key."""

    def __init__(self) -> None:
        self._memories: dict[ObjectKey, Memory] = {}

    def of(self, order: Order, now: datetime) -> Memory:
        """The memory of the Order; what its annotations show if there is none. Its stage agrees with the
        Order, which has the URL as soon as the order is placed."""
        memory = self._memories.get(order.metadata.key)
        if memory is None or memory.uid != order.metadata.uid:
            memory = recalled(order, now)
        is_placed = not isinstance(memory.stage, Unplaced)
        if is_placed == bool(order.status.url):
            return memory
        return replace(memory, stage=Unplaced() if is_placed else Placed())

    def described(self, order: Order) -> tuple[ACMEAuthorization, ...]:
        """The authorizations of the Order as this process has read them from the CA."""
        memory = self._memories.get(order.metadata.key)
        return memory.described if memory is not None and memory.uid == order.metadata.uid else ()

    def keep(self, order: Order, memory: Memory) -> None:
        """Replace the memory of the Order."""
        self._memories[order.metadata.key] = memory

    def forget(self, key: ObjectKey) -> None:
        """Remove the memory of the Order of that name."""
        self._memories.pop(key, None)
