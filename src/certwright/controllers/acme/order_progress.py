"""Progress of Orders, which only this process knows: how far each has come at the CA, its pause, its
failures. After a restart the progress follows from the Order and its annotations."""

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
# How long an Order waits for another Order with the same order at the CA.
_PATIENCE = timedelta(minutes=1)


class Unplaced(msgspec.Struct, frozen=True):
    """No order at the CA is known. `may_exist`: a request for an order was sent, and its response is not
    stored. `replaces_nothing`: the CA refuses an order that names the certificate it replaces."""

    may_exist: bool = False
    replaces_nothing: bool = False


class Placed(msgspec.Struct, frozen=True):
    """The CA has the order, and its names are being proven. `is_ready`: all names are proven, and the CA was
    asked to finalize the order, without success so far."""

    is_ready: bool = False


class Finalizing(msgspec.Struct, frozen=True):
    """The CA has a signing request, so all names are proven. `state` is the CA's word for the order, which
    has been polled `polls` - 1 times since `since`. `is_contested`: the CA refused our signing request, so it
    may have the request of another client."""

    since: datetime
    polls: int = 1
    state: str = "processing"
    is_contested: bool = False


Stage = Unplaced | Placed | Finalizing
"""How far an Order has come at the CA."""


class ChallengeInputs(NamedTuple):
    """The inputs for the Challenges that an Order needs: revisions, and the account's key."""

    order: str
    issuer: str
    thumbprint: str


class Ensured(NamedTuple):
    """The names of the Challenges that existed when all were ensured, and what they followed from."""

    inputs: ChallengeInputs
    names: frozenset[str]


class OrderProgress(msgspec.Struct, frozen=True):
    """The progress of the Order with that UID. `failures`: failed requests to the CA in a row. `complaint`:
    the CA's last error about the placed order. `account`: the server and account of the last pass.
    `announced`: the last reason with a time that was written. `described`: the authorizations as this process
    has read them from the CA."""

    uid: str
    stage: Stage = Unplaced()
    failures: int = 0
    pause: Pause | None = None
    account: str | None = None
    announced: Announced | None = None
    described: tuple[ACMEAuthorization, ...] = ()
    ensured: Ensured | None = None
    complaint: str = ""

    def at_account(self, account: str) -> OrderProgress:
        """The progress for that server and account: a pause that another account demanded does not apply."""
        if self.account in (None, account):
            return replace(self, account=account)
        return replace(self, account=account, pause=None, failures=0)


def recalled(order: Order, now: datetime) -> OrderProgress:
    """The progress after a restart, from the attempts in the Order's annotations."""
    attempts = _attempts(order, now)
    named = parse_moment(order.metadata.annotations.get(names.NOT_BEFORE, ""))
    if named is not None:
        named = min(named, now + LONGEST_OBEYED) if named > now else None
    until = named
    if named is None and attempts:
        until = attempts[-1] + doubled(SHORTEST_WAIT, len(attempts), cap=LONGEST_WAIT)
    pause = Pause(until, None, is_ours=named is None) if until is not None else None
    return OrderProgress(order.metadata.uid, failures=len(attempts), pause=pause)


def _attempts(order: Order, now: datetime) -> list[datetime]:
    """The recorded attempts, oldest first. An attempt in the future was not made by this program."""
    texts = order.metadata.annotations.get(names.ACME_ATTEMPTS, "").split(",")
    moments = (parse_moment(text) for text in texts[-_MOST_ATTEMPTS:])
    return sorted(moment for moment in moments if moment is not None and moment <= now)


def with_attempt(order: Order, asked_at: datetime) -> dict[str, str]:
    """The annotation with this attempt added. Attempts older than an hour no longer count, and are
    dropped."""
    attempts = [*_attempts(order, asked_at), asked_at]
    recent = {rfc3339(attempt) for attempt in attempts if attempt > asked_at - _ATTEMPTS_WITHIN}
    return {names.ACME_ATTEMPTS: ",".join(sorted(recent)[-_MOST_ATTEMPTS:])}


def poll_delay(polls: int) -> timedelta:
    """The wait before the next poll, if the server names none: 0.1 s, doubled up to 10 s."""
    return doubled(timedelta(seconds=0.1), polls + 1, cap=timedelta(seconds=10))


class _OrderQueue(msgspec.Struct):
    """The Orders for the same names at one account. `head` has the CA's order, or places the next order; the
    rest wait. `moved_at`: since when `head` is the head."""

    head: ObjectKey
    moved_at: datetime
    waiting: list[ObjectKey]


class EqualOrders:
    """Queues of Orders for the same names at one account: each waits until the Order before it has ended.

    Boulder answers a new order with the account's pending or ready order for the same names. As soon as that
    order has its certificate, the answer is a new order. `wake` enqueues an Order that has become the head.
    """

    def __init__(self, wake: Callable[[ObjectKey], None]) -> None:
        self._wake = wake
        self._queues: dict[Hashable, _OrderQueue] = {}

    def join(self, identity: Hashable, head: ObjectKey, key: ObjectKey, now: datetime) -> None:
        """Append an Order to the queue behind `head`. An Order that was the head goes to the front."""
        queue = self._queues.setdefault(identity, _OrderQueue(head, now, []))
        if queue.head == key:
            queue.head, queue.moved_at = head, now
            queue.waiting.insert(0, key)
        elif key not in queue.waiting:
            queue.waiting.append(key)

    def before(self, key: ObjectKey, now: datetime) -> tuple[ObjectKey, datetime] | None:
        """The Order that this Order waits for, and until when at most; None: it does not wait. A head without
        progress does not stop the others: they then prove the names of the common order themselves."""
        for queue in self._queues.values():
            if key in queue.waiting and now < queue.moved_at + _PATIENCE:
                place = queue.waiting.index(key)
                return queue.waiting[place - 1] if place else queue.head, queue.moved_at + _PATIENCE
        return None

    def ended(self, key: ObjectKey, now: datetime) -> None:
        """Record that the Order has ended or is gone: the first Order that waited for it becomes the head."""
        for identity, queue in list(self._queues.items()):
            if key in queue.waiting:
                queue.waiting.remove(key)
            if key != queue.head:
                continue
            if not queue.waiting:
                del self._queues[identity]
                continue
            queue.head, queue.moved_at = queue.waiting.pop(0), now
            self._wake(queue.head)


class OrderTracker:
    """The progress of all Orders, by key."""

    def __init__(self) -> None:
        self._progress: dict[ObjectKey, OrderProgress] = {}

    def of(self, order: Order, now: datetime) -> OrderProgress:
        """The progress of the Order; without any, from its annotations. Its stage agrees with the Order,
        which has the URL as soon as the order is placed."""
        progress = self._progress.get(order.metadata.key)
        if progress is None or progress.uid != order.metadata.uid:
            progress = recalled(order, now)
        is_placed = not isinstance(progress.stage, Unplaced)
        if is_placed == bool(order.status.url):
            return progress
        return replace(progress, stage=Unplaced() if is_placed else Placed())

    def described(self, order: Order) -> tuple[ACMEAuthorization, ...]:
        """The authorizations of the Order as this process has read them from the CA."""
        progress = self._progress.get(order.metadata.key)
        return progress.described if progress is not None and progress.uid == order.metadata.uid else ()

    def keep(self, order: Order, progress: OrderProgress) -> None:
        """Replace the progress of the Order."""
        self._progress[order.metadata.key] = progress

    def forget(self, key: ObjectKey) -> None:
        """Remove the progress of the Order of that name."""
        self._progress.pop(key, None)
