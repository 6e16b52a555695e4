"""In-memory state of one Order between two passes, and what its annotations show after a restart."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from certwright.controllers.acme.announcing import Announced
from certwright.controllers.retry.backoff import LONGEST_OBEYED
from certwright.kube.util.backoff import doubled
from certwright.resources import names
from certwright.resources.order import ACMEAuthorization, Order
from certwright.resources.retry import parse_moment, rfc3339

SHORTEST_WAIT = timedelta(seconds=1)
LONGEST_WAIT = timedelta(minutes=10)
_ATTEMPTS_WITHIN = timedelta(hours=1)
_MOST_ATTEMPTS = 20


class FollowFrom(NamedTuple):
    """What decides which Challenges an Order needs: revisions, and the account's key."""

    order: str
    issuer: str
    thumbprint: str


@dataclass(slots=True)
class Memory:
    """In-memory state of an Order: lost in a restart, and rebuilt. The server MUST NOT be asked before
    `not_before`, whatever else happens; if it `is_patience`, that time is our own choice, and a certificate
    that is needed immediately ends the wait. `asked_at`: when the server was last sent the order. `polls`:
    how often it was polled after it had accepted the signing request. `ensured`: what the Challenges followed
    from when all existed, and their names."""

    uid: str
    failures: int = 0
    not_before: datetime | None = None
    is_patience: bool = False
    waits_since: datetime | None = None
    asked_at: datetime | None = None
    polls: int = 0
    replaces_nothing: bool = False
    maybe_placed: bool = False
    ensured: tuple[FollowFrom, set[str]] | None = None
    described: tuple[ACMEAuthorization, ...] = ()
    account: str | None = None
    state: str = ""
    polling_since: datetime | None = None
    announced: Announced | None = None


def recalled(order: Order, now: datetime) -> Memory:
    """What the Order's annotations show of its attempts, after a restart."""
    attempts = _attempts(order, now)
    named = parse_moment(order.metadata.annotations.get(names.NOT_BEFORE, ""))
    if named is not None:
        named = min(named, now + LONGEST_OBEYED) if named > now else None
    until = named
    if named is None and attempts:
        until = attempts[-1] + doubled(SHORTEST_WAIT, len(attempts), cap=LONGEST_WAIT)
    return Memory(order.metadata.uid, failures=len(attempts), not_before=until, is_patience=named is None)


def _attempts(order: Order, now: datetime) -> list[datetime]:
    """The recorded attempts, oldest first. One that lies in the future was not ours."""
    texts = order.metadata.annotations.get(names.ACME_ATTEMPTS, "").split(",")
    moments = (parse_moment(text) for text in texts[-_MOST_ATTEMPTS:])
    return sorted(moment for moment in moments if moment is not None and moment <= now)


def with_attempt(order: Order, asked_at: datetime) -> dict[str, str]:
    """The annotation with one attempt more, of the last hour: earlier ones determine nothing."""
    attempts = [*_attempts(order, asked_at), asked_at]
    recent = {rfc3339(one) for one in attempts if one > asked_at - _ATTEMPTS_WITHIN}
    return {names.ACME_ATTEMPTS: ",".join(sorted(recent)[-_MOST_ATTEMPTS:])}
